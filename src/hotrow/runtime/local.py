"""A run in this process: one server, and threads or the calling thread alone."""

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.client import LocalTables
from hotrow.client.aggregate import Average
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.executors import Executor, InlineExecutor, ThreadExecutor
from hotrow.server.core import ParameterServer
from hotrow.server.replicas import Parameters, k_step_adam, parameters_in
from hotrow.worker.core import Learner, Loss


class LocalBackend:
    """A model, its tables and the dense optimizer, all here."""

    def __init__(
        self,
        model: nn.Module,
        client: LocalTables,
        optimizer: Optimizer | None,
        *,
        loss: Loss | None = None,
        clip: float | None = None,
        autocast: bool = False,
        average: Average = "batch",
    ) -> None:
        self.server = ParameterServer(model, client, optimizer, average=average, clip=clip)
        self._learner = Learner(model, loss=loss, autocast=autocast)
        self._loss, self._autocast = loss, autocast

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense one; None where the model has no parameters."""
        return self.server.optimizer

    @property
    def staff(self) -> None:
        """Its threads stay as they are."""

    def check_fit(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a mode cannot work here."""
        mode.check(facts)
        if mode.dense == "local":
            k_step_adam(self.server.optimizer)

    def newest_grant(self) -> int:
        """Nobody remembers grants from one run to the next."""
        return 0

    def check_whole(self) -> None:
        """A step is applied whole, or not at all."""

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Parameters, Executor]:
        """A mode begins."""
        parameters = parameters_in(mode, self.server, facts.workers)
        if facts.workers == 1 and parameters.copies is None:
            return parameters, InlineExecutor(self.server, self._learner, mode, facts.step, clock)
        settings: dict[str, Any] = {"loss": self._loss, "autocast": self._autocast, "copies": parameters.copies}
        return parameters, ThreadExecutor(self.server, facts.workers, mode, facts.step, clock, **settings)

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
        return self._learner.predict(batch, self.server.client.lookup(batch, learn=False))
