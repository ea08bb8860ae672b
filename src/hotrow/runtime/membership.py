"""Joins and leaves of workers during a run: requests, and the number of each worker in the active mode.

Requests come from any thread; the training loop applies them between two events. A mode numbers its workers from 0 when
it opens. While it is active numbers only rise: the number of a worker that left is not used again.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.active_mode import ActiveMode
from hotrow.runtime.backend import WorkerPool
from hotrow.runtime.losses import RoleLoss, RoleLost, WorkersLost
from hotrow.transport.futures import uncancellable_future
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True, eq=False)
class ScaleRequest:
    """A started worker joins, or a member leaves; `done` when it takes part, or has stopped."""

    name: RoleId
    joins: bool
    done: "Future[None]" = field(default_factory=uncancellable_future)


@contextmanager
def _faults_told(request: ScaleRequest) -> Iterator[None]:
    """Whoever waits for a request that is taken hears of its fault, too."""
    try:
        yield
    except BaseException as fault:
        request.done.set_exception(fault)
        raise


class Membership:
    """The workers of a pool by name."""

    def __init__(self, pool: WorkerPool, check_mode: Callable[[Mode, RunFacts], None]) -> None:
        """`check_mode` raises ConfigError where a mode does not support so many workers."""
        self._pool, self._check_mode = pool, check_mode
        self._requests: deque[ScaleRequest] = deque()  # queued
        self._accepted: deque[ScaleRequest] = deque()  # to be applied
        self._staying: tuple[RoleId, ...] = tuple(pool.names)
        self._workers = {name: worker for worker, name in enumerate(self._staying)}  # in the active mode
        self._given = len(self._workers)  # numbers that it has used
        self._leaving: dict[int, ScaleRequest] = {}

    @property
    def pending(self) -> bool:
        """Whether requests or leaving workers wait."""
        return bool(self._requests or self._leaving)

    @property
    def leaving(self) -> list[int]:
        """Workers that get no more batches."""
        return list(self._leaving)

    def add(self, request: ScaleRequest) -> None:
        """Queue a request. Thread-safe."""
        self._requests.append(request)

    def check_join(self, mode: Mode, facts: RunFacts) -> RunFacts:
        """The facts of the run with one more worker; raises where it cannot join. Changes nothing."""
        return self._facts_with(len(self._staying) + 1, mode, facts)

    def check_leave(self, name: RoleId, mode: Mode, facts: RunFacts) -> RunFacts:
        """The facts of the run without a worker; raises where it cannot leave. Changes nothing."""
        if name not in self._staying:
            raise InputError(f"{name!r}: there is no such trainer; there are: {', '.join(self._staying)}")
        if len(self._staying) == 1:
            raise InputError(f"{name!r}: is the last trainer, a run needs one: let another join first")
        return self._facts_with(len(self._staying) - 1, mode, facts)

    def _facts_with(self, workers: int, mode: Mode, facts: RunFacts) -> RunFacts:
        changed = replace(facts, workers=workers)
        try:
            self._check_mode(mode, changed)
        except ConfigError as refusal:
            remedy = "" if mode.dense == "server" else ", or switch to a mode without common steps first, as gba"
            raise ConfigError(f"{refusal}{remedy}") from None
        return changed

    def accept(self, mode: Mode, facts: RunFacts) -> RunFacts:
        """Accept or refuse every queued request; returns the facts of the run once they are applied."""
        while self._requests:
            request = self._requests.popleft()
            if request.joins and self._pool.is_lost(request.name):  # its loss may be counted by now, so it would stay
                request.done.set_exception(RoleLost(f"{request.name} is gone"))
                continue
            try:
                facts = self.check_join(mode, facts) if request.joins else self.check_leave(request.name, mode, facts)
            except HotrowError as refusal:
                try:
                    if request.joins:
                        with suppress(HotrowError):
                            self._pool.stop_worker(request.name)
                finally:
                    request.done.set_exception(refusal)
                continue
            self._accepted.append(request)
            others = tuple(name for name in self._staying if name != request.name)
            self._staying = (*others, request.name) if request.joins else others
        return facts

    @property
    def accepted(self) -> bool:
        """Whether accepted requests wait."""
        return bool(self._accepted)

    def take(self) -> ScaleRequest | None:
        """The next accepted request."""
        return self._accepted.popleft() if self._accepted else None

    def renumber(self) -> list[int]:
        """Number the workers of a mode that opens; returns numbers that changed their worker, or have none now."""
        before = self._workers
        self._workers = {name: worker for worker, name in enumerate(self._pool.names)}
        self._given = len(self._workers)
        return [worker for name, worker in before.items() if self._workers.get(name) != worker]

    def _start_worker(self, request: ScaleRequest, step: int) -> int | None:
        """Start the active mode on one more worker; returns its number, None where it is lost already."""
        worker, self._given = self._given, self._given + 1
        try:
            with _faults_told(request):
                self._pool.admit(request.name)
                self._pool.start_worker(request.name, worker, step)
        except WorkersLost:
            return None
        self._workers[request.name] = worker
        request.done.set_result(None)
        return worker

    def _remove(self, worker: int) -> None:
        """Stop a leaving worker that holds no batch."""
        request = self._leaving.pop(worker)
        del self._workers[request.name]
        self._dismiss(request)

    def lose(self, names: Collection[RoleId], facts: RunFacts) -> RunFacts:
        """Remove lost workers, and requests about them; returns the facts of the run without them."""
        for worker in [worker for worker, request in self._leaving.items() if request.name in names]:
            self._leaving.pop(worker).done.set_result(None)  # it has stopped
        for queue in (self._requests, self._accepted):
            for request in [each for each in queue if each.name in names]:
                queue.remove(request)
                if request.joins:
                    request.done.set_exception(RoleLost(f"{request.name} is gone"))
                else:
                    request.done.set_result(None)
        self._staying = tuple(name for name in self._staying if name not in names)
        self._workers = {name: worker for name, worker in self._workers.items() if name not in names}
        return replace(facts, workers=max(1, len(self._staying)))

    @property
    def staying(self) -> tuple[RoleId, ...]:
        """Workers that stay."""
        return self._staying

    @property
    def size(self) -> int:
        """Workers that stay."""
        return len(self._staying)

    def take_losses(self) -> Sequence[RoleLoss]:
        """Roles that were lost since the last call."""
        return self._pool.take_losses()

    def check_not_empty(self) -> None:
        """RoleLost where no worker is left."""
        if not self._staying:
            self._pool.check_workers()

    def apply_in(self, active: ActiveMode, left: Callable[[int], None]) -> None:
        """Apply accepted requests in a mode whose workers need not wait for each other. `left`: a worker has."""
        while (request := self.take()) is not None:
            if request.joins:
                with active.failing():
                    worker = self._start_worker(request, active.step)
                if worker is not None:
                    active.join(worker)
            else:
                self._leaving[self._workers[request.name]] = request
        for worker in self.leaving:
            if not active.loop.holds(worker):  # in these modes a worker holds one batch at most
                with active.failing():
                    active.leave(worker)
                    left(worker)
                    self._remove(worker)

    def apply_at_rest(self) -> None:
        """Apply all accepted requests at once. No mode is active."""
        for worker in self.leaving:
            self._remove(worker)
        while (request := self.take()) is not None:
            if request.joins:
                with suppress(WorkersLost):  # it is not among the workers once its loss is taken
                    with _faults_told(request):
                        self._pool.admit(request.name)
                    request.done.set_result(None)
            else:
                self._dismiss(request)

    def _dismiss(self, request: ScaleRequest) -> None:
        def left(done: "Future[None]") -> None:
            if (fault := done.exception()) is not None:
                request.done.set_exception(fault)
            else:
                request.done.set_result(None)

        with suppress(HotrowError):
            with _faults_told(request):
                stopped = self._pool.stop_worker(request.name)
            stopped.add_done_callback(left)
