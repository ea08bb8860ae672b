"""A small cluster in virtual time that runs the real disciplines of Sync and GBA, for predictions to be compared with.

No faults, no network: a batch takes what `busy` says, a synchronous step and a batch in GBA cost what `Costs` says.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from hotrow.modes import GBA, Sync
from hotrow.modes.base import Apply, Discipline, Drain, Event, Grant, Joined, Pushed, Ready, RunFacts
from hotrow.switching import Controller, Costs, Decision, ModeName, Observation

SAMPLES = 100  # in a local batch


@dataclass(slots=True)
class Cluster:
    """Workers, and how long a batch keeps one busy that starts it at a time."""

    workers: int
    parts: int
    costs: Costs
    busy: Callable[[int, float], float]
    tolerance: int = 4
    switch_s: float = 0.0  # what a switch takes
    now_s: float = 0.0
    counted: float = 0.0  # samples whose dense gradients had weight 1
    late: int = 0
    applied: int = 0
    log: list[tuple[float, Decision]] = field(default_factory=list)  # of all switches
    step: int = 0
    grants: int = 0
    _ahead: list[tuple[float, int, Pushed, float]] = field(default_factory=list)
    _free_s: float = 0.0  # when the synchronous step before is over

    def run(self, mode: ModeName, until_s: float, controller: Controller, *, auto: bool = False) -> float:
        """Samples per second that counted. `controller` watches; with `auto` its decisions are followed."""
        before, start_s = self.counted, self.now_s
        for worker in range(self.workers):
            controller.joined(worker)
        following: ModeName | None = mode
        while following is not None:
            following = self._run_mode(following, until_s, controller, auto)
        return (self.counted - before) / (self.now_s - start_s)

    def _run_mode(self, mode: ModeName, until_s: float, controller: Controller, auto: bool) -> ModeName | None:
        facts = RunFacts(self.workers, SAMPLES, SAMPLES * self.parts, self.step, self.grants)
        spec = Sync() if mode == "sync" else GBA(tolerance=self.tolerance)
        discipline, following, draining = spec.start(facts), None, False
        controller.started(self.now_s, mode)
        for worker in range(self.workers):
            self._tell(discipline, Joined(worker), mode)
        for worker in range(self.workers):
            self._tell(discipline, Ready(worker), mode)
        while self._ahead:
            self.now_s, _, push, busy_s = heapq.heappop(self._ahead)
            staleness = max(0, discipline.step - push.token)
            controller.observe(Observation(push.worker, self.now_s, busy_s, SAMPLES, staleness))
            if self._tell(discipline, push, mode):
                closed_s = self._free_s if mode == "sync" else self.now_s
                controller.stepped(closed_s)
                if auto and not draining:
                    decision = controller.decide(closed_s, mode)
                    if decision.switch:
                        self.log.append((closed_s, decision))
                        following, draining = decision.mode, True
                        self._tell(discipline, Drain(), mode)
            if self.now_s >= until_s and not draining:
                draining = True
                self._tell(discipline, Drain(), mode)
            self._tell(discipline, Ready(push.worker), mode)
        self.now_s, self.step = max(self.now_s, self._free_s) + self.switch_s, discipline.step
        return following if self.now_s < until_s else None

    def _tell(self, discipline: Discipline, event: Event, mode: ModeName) -> bool:
        """Perform what a discipline says; whether a step closed."""
        effects, closed = discipline.on(event), False
        for effect in effects:
            match effect:
                case Apply(parts=parts):
                    closed = True
                    self._free_s = self.now_s + (self.costs.sync_step_s if mode == "sync" else 0.0)
                    self.counted += sum(part.samples * part.weight for part in parts)
                    self.late += sum(part.weight == 0 for part in parts)
                    self.applied += len(parts)
                case Grant(worker, grant, token):
                    self.grants = grant
                    starts_s = max(self.now_s, self._free_s)
                    busy_s = self.busy(worker, starts_s)
                    push = Pushed("both", worker, grant, token, discipline.step, SAMPLES)
                    beside_s = self.costs.gba_batch_s if mode == "gba" else 0.0
                    heapq.heappush(self._ahead, (starts_s + busy_s + beside_s, grant, push, busy_s))
        return closed
