"""Where a run takes place: who holds its parameters, and who computes."""

from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from hotrow.data.batch import Batch
from hotrow.engines.clock import RunClock
from hotrow.engines.crew import Crew
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.server.replicas import Parameters


class Site(Protocol):
    """This process, or a cluster."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense one; None where the model has no parameters."""

    def demand_fit(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a mode cannot work here."""

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Parameters, Crew]:
        """A mode begins. It ends when its crew is closed."""

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
