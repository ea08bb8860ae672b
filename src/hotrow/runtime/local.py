"""Training in this process: one parameter server, and threads or the calling thread."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy

from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.client import LocalTables
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.executors import Executor, InlineExecutor, LocalWork, ThreadExecutor
from hotrow.runtime.state import RunState
from hotrow.server.core import ParameterServer
from hotrow.server.replicas import Parameters, ReplicatedParameters, k_step_adam
from hotrow.worker.spec import TrainingSpec


class LocalBackend:
    """A model, its tables and the dense optimizer, all in this process."""

    def __init__(self, spec: TrainingSpec, state: RunState) -> None:
        self.tables = LocalTables(spec.tables, threads=spec.threads, attach=spec.attach)
        self.server = ParameterServer(spec.model, self.tables, spec.optimizer, average=spec.average, clip=spec.clip)
        self._spec, self._state = spec, state
        self._learner = spec.learner()

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense optimizer; None where the model has no parameters."""
        return self._spec.optimizer

    @property
    def worker_pool(self) -> None:
        """Threads neither join nor leave."""

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where this process does not support a mode."""
        mode.check(facts)
        if mode.dense == "local":
            k_step_adam(self.optimizer)

    def newest_grant(self) -> int:
        """0: grants are not kept from one run to the next."""
        return 0

    def attached_samples(self) -> int:
        """Of all tables."""
        return self.tables.samples

    def check_consistent(self) -> None:
        """No effect: the training loop records a step that was applied in part."""

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Parameters, Executor]:
        """Start a mode. The tables count samples from where the run is, which after a load may be earlier."""
        self.tables.samples = self._state.samples
        self.server.late = mode.late
        if mode.dense == "local":
            replicas = ReplicatedParameters(self.server, facts.workers)
            return replicas, self._threads(LocalWork(mode, self.tables, replicas, clock), replicas.copies, facts)
        work = LocalWork(mode, self.tables, self.server, clock)
        if facts.workers == 1:
            return self.server, InlineExecutor(work, self._learner, facts.step)
        return self.server, self._threads(work, [deepcopy(self._spec.model) for _ in range(facts.workers)], facts)

    def _threads(self, work: LocalWork, models: Sequence[nn.Module], facts: RunFacts) -> ThreadExecutor:
        learners = [self._spec.learner(model) for model in models]
        return ThreadExecutor(work, learners, self.server.pull_into, facts.step)

    def reading(self, loader: Loader) -> AbstractContextManager[None]:
        """This process reads."""
        return nullcontext()

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is created or changed."""
        return self._learner.predict(batch, self.tables.lookup(batch, learn=False))

    def close(self) -> None:
        """Release all rows; segments that are to be kept stay."""
        self.tables.close()
