"""A training loop whose workers finish when a test says so, on a backend that notes who joins and leaves."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hotrow.checkpoint.place import Place
from hotrow.checkpoint.row_loader import RowLoader
from hotrow.checkpoint.saving import TablesCut
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader
from hotrow.errors import ConfigError
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Discipline, Effect, Event, Grant, RunFacts
from hotrow.runtime import BatchResult, LeaseQueue, StepResult, TrainingLoop
from hotrow.runtime.clock import Elapsed, RunClock
from hotrow.runtime.executors import WorkerLoss
from hotrow.runtime.losses import RoleLoss, RoleLost, SavedRows
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision, decide_cut, decide_cut_without_trainers
from hotrow.server.core import ApplyResult
from hotrow.types import RoleId

SAMPLES = 2


@dataclass(slots=True)
class Nothing:
    """Parameters that nobody looks at."""

    changes_when_computed: bool = False
    settled: int = 0
    applied: int = 0  # since then

    discarded: list[int] = field(default_factory=list)

    def discard(self, grant: int) -> None:
        self.discarded.append(grant)

    def apply(self, effect: Apply, *, samples: int, lr_scale: float = 1.0) -> ApplyResult:
        self.applied += 1
        return ApplyResult()

    def settle(self) -> None:
        self.settled += self.applied > 0
        self.applied = 0

    def rest(self) -> ApplyResult:
        return ApplyResult()


@dataclass(slots=True, eq=False)
class ScriptedBackend:
    """A backend, its executor and its worker pool in one."""

    names: list[RoleId]
    last: Callable[[list[Grant]], Grant]  # who finishes next
    optimizer: None = None
    lock: AbstractContextManager[object] = field(default_factory=nullcontext)
    out: list[Grant] = field(default_factory=list)  # being computed
    step: int = 0
    begun: list[tuple[str, int, int]] = field(default_factory=list)  # name, worker, step
    opened: list[tuple[str, int]] = field(default_factory=list)  # mode, workers
    gone: list[str] = field(default_factory=list)
    runs_ahead: bool = False
    together: bool = False  # all that is computed is there at once
    parameters: Nothing = field(default_factory=Nothing)
    working: dict[int, RoleId] = field(default_factory=dict)  # by number in the mode
    role_losses: list[RoleLoss] = field(default_factory=list)
    worker_losses: list[WorkerLoss] = field(default_factory=list)
    lost_before: list[str] = field(default_factory=list)  # workers that ended before they could join
    results: int = 0
    act_at: int = 0  # before so many results are given
    act: Callable[[], None] = lambda: None
    ahead: int = 0  # steps by which the trainers that are left are ahead of the driver, at a cut
    saved: SavedRows | None = None  # the last checkpoint
    looked: int = 0  # for lost roles
    unanswered: list[int] = field(default_factory=list)  # grants that count

    @property
    def has_result(self) -> bool:
        return self.together and bool(self.out)

    @property
    def worker_pool(self) -> "ScriptedBackend":
        return self

    row_prefetch = None

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        mode.check(facts)
        if mode.dense != "server" and facts.parts % facts.workers:
            raise ConfigError(f"trainers={facts.workers}: does not fit")

    def look_ahead_choice(self, mode: Mode, facts: RunFacts) -> None:
        return None

    def newest_grant(self) -> int:
        return 0

    def attached_samples(self) -> int:
        return 0

    def check_consistent(self) -> None: ...

    def check_alive(self) -> None:
        self.looked += 1

    def row_loader(self) -> RowLoader:
        raise AssertionError("nothing is loaded here")

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[Nothing, "ScriptedBackend"]:
        assert facts.workers == len(self.names)
        self.opened.append((mode.name, facts.workers))
        self.step = facts.step
        self.working = dict(enumerate(self.names))
        self.parameters = Nothing()
        return self.parameters, self

    def take_scores(self) -> None: ...

    def track_changes(self) -> None: ...

    def begin_cut(self, place: Place, *, delta: bool) -> TablesCut:
        raise AssertionError("nothing is saved here")

    def reading(self, loader: Loader) -> AbstractContextManager[None]:
        return nullcontext()

    def predict(self, batch: Batch) -> Tensor:
        raise AssertionError("nobody predicts in these tests")

    def evaluate(self, loader: Loader) -> None:
        raise AssertionError("nobody evaluates in these tests")

    def is_lost(self, name: RoleId) -> bool:
        return name in self.lost_before

    def admit(self, name: RoleId) -> None:
        self.names.append(name)

    def start_worker(self, name: RoleId, worker: int, step: int) -> None:
        self.begun.append((name, worker, step))
        self.working[worker] = name

    def stop_worker(self, name: RoleId) -> "Future[None]":
        self.gone.append(name)
        if name in self.names:
            self.names.remove(name)
        left: Future[None] = Future()
        left.set_result(None)
        return left

    def lose(self, name: RoleId, *, stays: bool = False, scores: int = 0) -> None:
        """A worker ends, or loses its batches with another role."""
        worker = next(worker for worker, each in self.working.items() if each == name)
        self.worker_losses.append(WorkerLoss(worker, name, stays))
        self.out = [grant for grant in self.out if grant.worker != worker]
        if not stays:
            self.names.remove(name)
            del self.working[worker]
            self.role_losses.append(RoleLoss(name, "it was killed", scores=scores))

    def take_losses(self) -> list[RoleLoss]:
        losses, self.role_losses = self.role_losses, []
        return losses

    must_cut = False

    def take_lost_workers(self) -> list[WorkerLoss]:
        losses, self.worker_losses = self.worker_losses, []
        return losses

    def cut(self, push: Callable[[BatchResult], int]) -> CutDecision:
        """All that is left is at the open step, unless a test says otherwise."""
        self.out.clear()
        if not self.names and self.saved is not None:
            return decide_cut_without_trainers(self.step, self.saved, begun=False)
        self.check_workers()
        reached = dict.fromkeys(self.names, self.step + self.ahead)
        return decide_cut(self.step, reached, begun=False, ahead=max(1, self.ahead))

    def note_unanswered(self, grant: int) -> None:
        self.unanswered.append(grant)

    def check_workers(self) -> None:
        if not self.names:
            raise RoleLost("all are gone")

    def submit(self, grant: Grant, batch: Batch) -> None:
        self.out.append(grant)

    def set_step(self, step: int) -> None:
        self.step = step

    def next_result(self) -> BatchResult | None:
        self.results += 1
        if self.results == self.act_at:
            self.act()
        if self.worker_losses:
            return None
        grant = self.last(self.out)
        self.out.remove(grant)
        return BatchResult(grant, self.step, self.step, SAMPLES, 0.0, torch.zeros(SAMPLES), Elapsed(1.0, 1.0))

    def close(self, *, failed: bool = False) -> None:
        self.out.clear()


def by_number(out: list[Grant]) -> Grant:
    """First come, first served."""
    return min(out, key=lambda grant: grant.grant)


class Run:
    """An engine on it, what its discipline heard, and the leases that are done."""

    def __init__(self, mode: Mode, workers: int, parts: int = 4, last: Callable[[list[Grant]], Grant] = by_number):
        self.state = RunState()
        self.site = ScriptedBackend([RoleId("trainer", worker) for worker in range(workers)], last=last)
        self.engine = TrainingLoop(self.site, self.state, mode=mode, facts=RunFacts(workers, SAMPLES, parts * SAMPLES))
        self.done: list[int] = []
        self.heard: list[Event] = []

    def request(self, name: str, *, joins: bool) -> ScaleRequest:
        request = ScaleRequest(RoleId.parse(name), joins)
        self.engine.scale(request)
        return request

    def steps(self, batches: int, *, epochs: int = 1) -> Iterator[StepResult]:
        """Of all epochs, in which each lease has to be trained once."""
        pool = LeaseQueue(leases(batches, epochs), done=lambda lease: self.done.append(lease.number))
        step = 0
        while pool.open_epoch() is not None:
            for stepped in self.engine.steps(pool, step):
                self._listen()
                step = stepped.step + 1
                yield stepped
        self.engine.rest()
        self.engine.close()

    def _listen(self) -> None:
        """To the discipline of the mode at work, from now on."""
        active = self.engine._active
        assert active is not None
        if not isinstance(active.loop.discipline, Heard):
            active.loop.discipline = Heard(active.loop.discipline, self.heard)


@dataclass(slots=True)
class Heard:
    """A discipline, with what it hears written down."""

    discipline: Discipline
    heard: list[Event]

    @property
    def step(self) -> int:
        return self.discipline.step

    @property
    def counts(self) -> dict[str, int]:
        return self.discipline.counts

    def on(self, event: Event) -> list[Effect]:
        self.heard.append(event)
        return self.discipline.on(event)


def leases(count: int, epochs: int) -> Iterator[tuple[Lease, Batch]]:
    batch = Batch((), np.zeros((SAMPLES, 1), np.float32), np.zeros((SAMPLES, 1), np.float32))
    for epoch in range(epochs):
        for number in range(count):
            yield Lease(epoch * count + number, epoch, number, SAMPLES), batch
