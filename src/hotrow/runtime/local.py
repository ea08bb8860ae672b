"""Training in this process: one parameter server, and threads or the calling thread."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.cache.local import CachedLocalTables
from hotrow.cache.modes import check_cached_mode
from hotrow.checkpoint.local_cut import LocalCut, track_changes
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.row_loader import LocalRowLoader
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader, RowReading
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.device import CPU, Device, move_state
from hotrow.runtime.executors import Executor, LocalWork, ThreadExecutor
from hotrow.runtime.inline import InlineExecutor, InlineStepExecutor
from hotrow.runtime.local_tables import open_local_tables
from hotrow.runtime.look_ahead import LookAheadChoice, LookAheadChoices, expiry_fault
from hotrow.runtime.state import RunState
from hotrow.runtime.step_threads import StepThreadExecutor
from hotrow.server.core import ParameterServer
from hotrow.server.replicas import LocalParameters, Parameters, ReplicatedParameters, k_step_adam
from hotrow.store.heap import keep_freed_memory
from hotrow.topology.affinity import ThreadBinder
from hotrow.worker.spec import TrainingSpec

if TYPE_CHECKING:  # with Triton
    from hotrow.client.gpu_tables import GpuTables


class LocalBackend:
    """A model, its tables and the dense optimizer, all in this process."""

    def __init__(
        self, spec: TrainingSpec, state: RunState, binder: ThreadBinder | None = None, device: Device = CPU
    ) -> None:
        """`binder` binds threads to cores; None: they are free."""
        keep_freed_memory()
        self._binder, self._device = ThreadBinder() if binder is None else binder, device
        self._learner = spec.learner(device=device.network)  # first: buffers of the model are others there
        if spec.optimizer is not None:
            move_state(spec.optimizer)
        self.tables, self.remarks = open_local_tables(spec, device)
        self._in_gpu_memory = self.tables.in_gpu_memory
        self.server = ParameterServer(spec.model, self.tables, spec.optimizer, average=spec.average, clip=spec.clip)
        self._spec, self._state = spec, state
        self._choices = LookAheadChoices()

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
        check_cached_mode(self.tables.specs, mode)
        if mode.dense == "local":
            k_step_adam(self.optimizer)
        fault = self._look_ahead_fault(facts)
        if fault is not None and mode.first_look_ahead:
            raise ConfigError(f"look_ahead=1: {fault}, or leave it at 'auto'")

    def _look_ahead_fault(self, facts: RunFacts) -> str | None:
        """Why a mode cannot look ahead, and what to change; None: it can."""
        if self._in_gpu_memory:
            return f"rows of table {self._in_gpu_memory[0]!r} are in GPU memory, where a step is not split: set hbm=0"
        return expiry_fault(self.tables.specs, facts)

    def track_changes(self) -> None:
        """From the next cut on, cuts of changes are possible."""
        track_changes(self.tables.tiers)

    def begin_cut(self, place: Place, *, delta: bool) -> LocalCut:
        """The rows of this moment, written by the process itself."""
        self.tables.settle()
        self.tables.flush()
        return LocalCut(self.tables.tiers, delta=delta)

    def check_alive(self) -> None:
        """Nothing to do: no other process has a part in the run."""

    def row_loader(self) -> LocalRowLoader:
        """This process reads them."""
        self.tables.release_rows()
        return LocalRowLoader(self.tables.tiers)

    def newest_grant(self) -> int:
        """0: grants are not kept from one run to the next."""
        return 0

    def attached_samples(self) -> int:
        """Of all tables."""
        return self.tables.samples

    def check_consistent(self) -> None:
        """InputError where an update of rows that was left for later has failed.

        The training loop records other steps that were applied in part.
        """
        if any(tier.deferred.failed for tier in self.tables.tiers.values()):
            raise InputError(
                "an update of rows has failed, so that rows and dense parameters are of different steps: "
                "load the last checkpoint, or begin again with another Trainer"
            )

    def look_ahead_choice(self, mode: Mode, facts: RunFacts) -> LookAheadChoice | None:
        """The measurement that decides on the look-ahead of a mode; None: there is nothing to decide."""
        if getattr(mode, "look_ahead", 0) != "auto" or self._look_ahead_fault(facts) is not None:
            return None
        return self._choices.of(mode, facts)

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Parameters, Executor]:
        """Start a mode. The tables count samples from where the run is, which after a load may be earlier."""
        self.tables.samples = self._state.samples
        if isinstance(self.tables, CachedLocalTables):
            self.tables.open_caches(facts.workers)
        self.server.late = mode.late
        self._binder.bind("trainer" if facts.workers == 1 else "store")  # the loop's thread computes, or updates rows
        if mode.dense == "local":
            replicas = ReplicatedParameters(self.server, facts.workers)
            return replicas, self._threads(self._work(mode, replicas, clock), replicas.copies, facts)
        work = self._work(mode, self.server, clock)
        if facts.workers == 1:
            inline = InlineStepExecutor if self._looks_ahead(mode) else InlineExecutor
            return self.server, inline(work, self._learner, facts.step)
        return self.server, self._threads(work, [deepcopy(self._spec.model) for _ in range(facts.workers)], facts)

    def _work(self, mode: Mode, parameters: LocalParameters, clock: RunClock) -> LocalWork:
        return LocalWork(mode, self.tables, parameters, clock, self._binder)

    def _threads(self, work: LocalWork, models: Sequence[nn.Module], facts: RunFacts) -> ThreadExecutor:
        learners = [self._spec.learner(model, device=self._device.network) for model in models]
        threads = StepThreadExecutor if self._looks_ahead(work.mode) else ThreadExecutor
        return threads(work, learners, self.server.pull_into, facts.step)

    def _looks_ahead(self, mode: Mode) -> bool:
        return mode.looks_ahead and not self._in_gpu_memory

    def take_scores(self) -> None:
        """None: outputs come with their steps."""

    @property
    def row_prefetch(self) -> RowReading | None:
        """Where tables have rows on disk, or in GPU memory."""
        return self.tables.start_load if self.tables.loads_ahead else None

    @contextmanager
    def reading(self, loader: Loader) -> Iterator[None]:
        """This process reads."""
        loader.thread_started = partial(self._binder.bind, "reader")
        self._end_reading()
        try:
            yield
        finally:
            loader.thread_started = None
            self._end_reading()

    def _end_reading(self) -> None:
        """What was read before and not looked up, because a fit ended early, will not be."""
        if self._in_gpu_memory:
            cast("GpuTables", self.tables).end_reading()

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is created or changed."""
        return self._learner.predict(batch, self.tables.lookup(batch, learn=False))

    def evaluate(self, loader: Loader) -> None:
        """None: this process predicts."""

    def close(self) -> None:
        """Release all rows; segments that are to be kept stay. Threads are free again.

        The model and the state of the optimizer stay on the device of the run.
        """
        self.tables.close()
        self._binder.close()
