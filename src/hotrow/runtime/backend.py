"""Where a run takes place: who holds its parameters, and who computes."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.executors import Executor
from hotrow.server.replicas import Parameters


class WorkerPool(Protocol):
    """The workers of a site where they come and go, by name."""

    @property
    def names(self) -> Sequence[str]:
        """Who is there. A mode that begins numbers them in this order."""

    def admit(self, name: str) -> None:
        """One more that was started, and waited until now."""

    def start_worker(self, name: str, worker: int, step: int) -> None:
        """The mode at work, after so many steps, begins on one more worker."""

    def stop_worker(self, name: str) -> Future[None]:
        """One that has nothing to do any more, or never had: it stops."""


class Backend(Protocol):
    """This process, or a cluster."""

    @property
    def worker_pool(self) -> WorkerPool | None:
        """None where workers neither come nor go."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense one; None where the model has no parameters."""

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a mode cannot work here."""

    def newest_grant(self) -> int:
        """The largest number of a grant that is known here; those of a run go on from there."""

    def check_consistent(self) -> None:
        """InputError where something failed, and what is held here is of different steps."""

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Parameters, Executor]:
        """A mode begins. It ends when its executor is closed."""

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
