"""Performs plans of faults on the roles of runs that train, in a thread.

The clock of a plan runs only while a run is exposed.
"""

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from hotrow.chaos.ledger import ROLES_LOST
from hotrow.chaos.links import Links
from hotrow.chaos.plan import PlannedFault
from hotrow.runtime.cluster.facts import ClusterFacts
from hotrow.trainer import Trainer
from hotrow.types import RoleId, RoleKind

WAKE_S = 0.05
LAST_SHARE = 0.3  # of the kills that hit the only role of a kind: another one takes seconds to start
NOTICED_S = 10.0  # for Ray to notice a kill
IDLE_S = 10.0  # without a trained sample: nothing is killed until there is one, or a slow machine would start no role
STALL_S = 120.0  # without a trained sample: nothing is waited for that long


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that was injected; `name` is None where no role could take it, and `why` says so."""

    at_s: float
    fault: PlannedFault
    name: RoleId | None
    mode: str
    step: int
    why: str = ""

    @property
    def sentence(self) -> str:
        """One line of the screen."""
        where = f"({self.mode}, step {self.step:,})"
        if self.name is None:
            return f"no {self.fault.kind} {where}: {self.why}"
        match self.fault.kind:
            case "kill":
                return f"killed {self.name} {where}"
            case "cut":
                return f"cut the link to {self.name} for {self.fault.lasts_s:.1f} s {where}"
        slow = f"by {1e3 * self.fault.delay_s:.0f} ms for {self.fault.lasts_s:.1f} s"
        return f"delayed the link to {self.name} {slow} {where}"


Tell: TypeAlias = Callable[[str], None]


@dataclass(slots=True, eq=False)
class Injector:
    """Works off plans. `stalled` is called where a run makes no progress for STALL_S."""

    links: Links
    tell: Tell
    stalled: Callable[[str], None]
    clock: Callable[[float], None] = lambda _: None  # called with the seconds of all plans
    injected: list[Injected] = field(default_factory=list)
    pids: dict[int, RoleId] = field(default_factory=dict)  # of all roles that were seen
    elapsed_s: float = 0.0  # of the plan's clock
    _ended_s: float = 0.0  # of plans before it
    _left: deque[PlannedFault] = field(default_factory=deque)
    _trainer: Trainer | None = None
    _lost_before: int = 0  # trainers that were killed in runs before this one
    _killed: set[int] = field(default_factory=set)  # processes
    _restores: list[tuple[float, RoleId]] = field(default_factory=list)  # when a link is as before
    _idle_s: float = 0.0  # since a sample was trained

    def begin(self, plan: Sequence[PlannedFault]) -> None:
        """Continue with another plan, from its start."""
        self._ended_s, self.elapsed_s, self._left = self._ended_s + self.elapsed_s, 0.0, deque(plan)

    @property
    def kills(self) -> Counter[RoleKind]:
        """Roles that were killed, by kind."""
        return Counter(each.name.kind for each in self.injected if each.name and each.fault.kind == "kill")

    @contextmanager
    def exposed(self, trainer: Trainer) -> Iterator[None]:
        """Inject faults into a run until the end of the block. Links are as before then."""
        if trainer is not self._trainer:
            self._trainer, self._lost_before = trainer, self.kills["trainer"]
        ended, faults = threading.Event(), list[BaseException]()
        thread = threading.Thread(target=self._run_or_note, args=(trainer, ended, faults), name="chaos", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if faults:
            raise faults[0]

    def _run_or_note(self, trainer: Trainer, ended: threading.Event, faults: list[BaseException]) -> None:
        """Without faults, and without a look at progress, a run would show nothing."""
        try:
            self._run(trainer, ended)
        except BaseException as error:
            faults.append(error)

    def _run(self, trainer: Trainer, ended: threading.Event) -> None:
        began, before = time.monotonic(), self.elapsed_s
        samples, moved = trainer.samples, began
        while not ended.wait(WAKE_S):
            now = time.monotonic()
            self.elapsed_s = before + now - began
            self.clock(self._ended_s + self.elapsed_s)
            facts = trainer.cluster
            assert facts is not None
            self.pids |= {place.pid: name for name, place in facts.roles.items()}
            if trainer.samples != samples:
                samples, moved = trainer.samples, now
            self._idle_s = now - moved
            if self._idle_s > STALL_S:
                self.stalled(f"{trainer.mode.name}, step {trainer.step:,}: no sample was trained for {STALL_S:.0f} s")
                moved = now
            self._restore(self.elapsed_s)
            while self._left and self._left[0].at_s <= self.elapsed_s:
                self._inject(self._left.popleft(), trainer, facts)
        self._restore(float("inf"))

    def _restore(self, until_s: float) -> None:
        for each in [each for each in self._restores if each[0] <= until_s]:
            self._restores.remove(each)
            self.links.restore(each[1])

    def _inject(self, fault: PlannedFault, trainer: Trainer, facts: ClusterFacts) -> None:
        living = self._living(fault.role, facts) or self._living("trainer", facts)
        name, why = None, "there is none"
        if living and fault.kind == "kill" and living[0].kind == "trainer" and self._is_last_trainer(trainer):
            why = f"{trainer.mode.name} keeps the dense parameters on the last trainer"
        elif fault.kind == "kill" and self._idle_s > IDLE_S:
            why = f"no sample was trained for {self._idle_s:.0f} s"
        elif fault.kind == "kill" and len(living) == 1 and fault.draw > LAST_SHARE:
            why = f"{living[0]} is the only one"
        elif living:
            name, why = living[int(fault.draw * len(living))], ""
        done = Injected(self._ended_s + self.elapsed_s, fault, name, trainer.mode.name, trainer.step, why)
        self.injected.append(done)
        if name is not None:
            self._perform(fault, name, facts.roles[name].pid)
        self.tell(done.sentence)

    def _living(self, kind: RoleKind, facts: ClusterFacts) -> list[RoleId]:
        living = [name for name, at in facts.roles.items() if name.kind == kind and at.pid not in self._killed]
        return sorted(living, key=lambda each: each.number)

    def _is_last_trainer(self, trainer: Trainer) -> bool:
        """Whether a run would end with one more trainer. One that was started may not take part yet."""
        if trainer.mode.dense == "server":
            return False
        unnoticed = self.kills["trainer"] - self._lost_before - trainer.statistics.counts.get("trainers_lost", 0)
        return trainer.facts.workers - unnoticed < 2

    def _perform(self, fault: PlannedFault, name: RoleId, pid: int) -> None:
        if fault.kind == "kill":
            self._killed.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        if fault.kind == "cut":
            self.links.cut(name)
        else:
            self.links.delay(name, fault.delay_s)
        self._restores.append((self.elapsed_s + fault.lasts_s, name))


def ended_unused(trainer: Trainer, kills: Mapping[RoleKind, int], counts: Mapping[str, int]) -> Counter[RoleKind]:
    """Roles that have ended and that the run has not missed yet: Ray takes a while to notice the end of a process."""
    until = time.monotonic() + NOTICED_S
    while True:
        facts = trainer.cluster
        assert facts is not None
        found = Counter(name.kind for name in facts.unhandled)
        if found.total() + sum(counts.get(name, 0) for name in ROLES_LOST.values()) >= sum(kills.values()):
            return found
        if time.monotonic() > until:
            return found
        time.sleep(WAKE_S)
