"""The automatic choice between Sync and GBA: what it watches, and its decisions with their reasons.

The fields of `Controller` are its whole state. It has no clock: times are arguments, real or virtual. `Pilot` reports
workers (`joined`, `ended`, `lost`), the start of a mode (`started`), each finished batch (`observe`) and each closed
step (`stepped`), and calls `decide` once a step or less often.
"""

from dataclasses import dataclass, field
from statistics import fmean, median

from hotrow.errors import InputError
from hotrow.switching.auto import Auto
from hotrow.switching.decision import TITLES, Decision, compared, reasons
from hotrow.switching.prediction import COMPARED, BatchTime, Costs, ModeName, Prediction, predict

LASTING = 0.25  # a gain has to add up to this share of the time that is remembered; noise seldom does


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished batch."""

    worker: int
    time_s: float  # when it was finished
    busy_s: float  # the work on it that every mode has to do; waiting for others and dense traffic are not in it
    samples: int
    staleness: int = 0
    passed_s: float | None = None  # of busy_s by the clock of time_s, which may be paused; None: all of it

    def __post_init__(self) -> None:
        if not 0 < self.busy_s < float("inf"):
            raise InputError(f"busy_s={self.busy_s!r}: must be above 0; measure it with a clock that is fine enough")
        if self.samples < 1 or self.staleness < 0:
            message = f"samples={self.samples}, staleness={self.staleness}"
            raise InputError(f"{message}: a batch has 1 sample or more, and its staleness is 0 or more")
        if self.passed_s is not None and not 0 <= self.passed_s <= self.busy_s:
            raise InputError(f"passed_s={self.passed_s!r}: must be from 0 to busy_s={self.busy_s!r}")


@dataclass(slots=True)
class Controller:
    """Observes a run and decides when to change its mode."""

    rule: Auto
    costs: Costs | None  # until they are measured; None: a mode that never worked costs what the other one does
    parts: int  # local batches in a global one
    mode: ModeName = "sync"  # at work
    since_s: float = 0.0  # when it began, or when its change was last decided or advised
    decided_s: float = 0.0  # when `decide` was asked last
    missed_s: float = 0.0  # time that the other mode would have saved since then, beyond the gain asked for
    batches: dict[int, list[BatchTime]] = field(default_factory=dict)  # worker -> its last ones, newest last
    idle: set[int] = field(default_factory=set)  # workers without data: no step waits for them
    finished_s: dict[int, float] = field(default_factory=dict)  # worker -> end of its last batch in this mode
    busy_s: dict[int, float] = field(default_factory=dict)  # worker -> work in the running step, by the run's clock
    between_s: list[float] = field(default_factory=list)  # what batches of the running step took beside the work
    stepped_s: float | None = None  # when the step before the running one closed; None: the first one in this mode runs
    measured: dict[ModeName, list[float]] = field(default_factory=dict)  # costs by step, newest last
    overlaps: int = 0  # steps whose cost came out below 0 and was taken as 0: busy times hold too much
    strangers: int = 0  # batches of workers that are not there

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise InputError(f"parts={self.parts}: a global batch has 1 local batch or more")

    def joined(self, worker: int) -> None:
        """A worker is there: nothing is decided until its speed is known."""
        self.batches.setdefault(worker, [])
        self.idle.discard(worker)

    def ended(self, worker: int) -> None:
        """A worker has no more data: it counts no longer, and is known when it joins again."""
        self.idle.add(worker)
        self.finished_s.pop(worker, None)  # until it joins it does not work, in whatever mode

    def lost(self, worker: int) -> None:
        """A worker left: it is forgotten."""
        for known in (self.batches, self.finished_s, self.busy_s):
            known.pop(worker, None)
        self.idle.discard(worker)

    def started(self, time_s: float, mode: ModeName) -> None:
        """A mode begins to work. What the switch itself took is no cost of either mode."""
        self.mode, self.stepped_s = mode, None
        self._count_anew(time_s)
        self.finished_s.clear()
        self.busy_s.clear()
        self.between_s.clear()

    def observe(self, seen: Observation) -> None:
        """Take a batch in, before the step that it is part of is reported as closed."""
        own = self.batches.get(seen.worker)
        if own is None:
            self.strangers += 1
            return
        own.append(BatchTime(seen.busy_s, seen.samples, seen.staleness))
        del own[: -self.rule.window]
        passed_s = seen.busy_s if seen.passed_s is None else seen.passed_s
        self.busy_s[seen.worker] = self.busy_s.get(seen.worker, 0.0) + passed_s
        before_s = self.finished_s.get(seen.worker)
        if before_s is not None and self.mode == "gba":  # in Sync a worker also waits for others
            self.between_s.append(seen.time_s - before_s - passed_s)
        self.finished_s[seen.worker] = seen.time_s

    def stepped(self, time_s: float) -> None:
        """A global step closed."""
        if self.stepped_s is not None and not time_s >= self.stepped_s:
            message = f"time_s={time_s!r}: the step before closed at {self.stepped_s!r}"
            raise InputError(f"{message}; give times of one clock")
        if self.mode == "sync" and self.stepped_s is not None and self.busy_s:
            self._measure(time_s - self.stepped_s - max(self.busy_s.values()))
        if self.mode == "gba" and self.between_s:
            self._measure(fmean(self.between_s))
        self.busy_s.clear()
        self.between_s.clear()
        self.stepped_s = time_s

    def _measure(self, cost_s: float) -> None:
        self.overlaps += cost_s < 0
        costs = self.measured.setdefault(self.mode, [])
        costs.append(max(0.0, cost_s))
        del costs[: -self.rule.window]

    @property
    def present_costs(self) -> Costs:
        """As measured, or as expected of a mode that never worked. Medians forget the pause of a single step."""
        known: dict[ModeName, float] = {}
        if self.costs is not None:
            known = {"sync": self.costs.sync_step_s, "gba": self.costs.gba_batch_s}
        known |= {mode: median(costs) for mode, costs in self.measured.items()}
        either_s = next(iter(known.values()), 0.0)
        return Costs(sync_step_s=known.get("sync", either_s), gba_batch_s=known.get("gba", either_s))

    def decide(self, time_s: float, current: ModeName) -> Decision:
        """Whether to change the mode at work."""
        if current != self.mode:
            raise InputError(f"current={current!r}: {self.mode!r} was started last; call `started` when a mode begins")
        if not time_s >= self.decided_s:
            message = f"time_s={time_s!r}: the last decision was made, or the mode started, at {self.decided_s!r}"
            raise InputError(f"{message}; give times of one clock")
        passed_s, self.decided_s = time_s - self.decided_s, time_s
        watched = self._watched()
        lacking = self._lacking(watched)
        if lacking:
            return Decision(current, False, f"stay in {TITLES[current]}: {lacking}")
        prediction = predict(watched, self.parts, self.present_costs, self.rule.tolerance)
        other: ModeName = "gba" if current == "sync" else "sync"
        gain = prediction.samples_per_s[other] / prediction.samples_per_s[current] - 1
        missed_s = (gain - self.rule.gain) * min(passed_s, prediction.memory_s)  # more is not known
        self.missed_s = max(0.0, self.missed_s + missed_s)
        reserve = self._reserve(time_s, prediction, gain)
        if reserve:
            sentence = f"stay in {compared(prediction, current, other)}: {reserve}"
            return Decision(current, False, sentence, prediction)
        self._count_anew(time_s)
        to = f"to {compared(prediction, other, current)}: {reasons(prediction)}"
        return Decision(other, not self.rule.advise, f"advice: {to}" if self.rule.advise else to, prediction)

    def _reserve(self, time_s: float, prediction: Prediction, gain: float) -> str | None:
        """Why a switch has to wait."""
        if gain <= self.rule.gain:
            return f"a switch needs a gain of more than {100 * self.rule.gain:.3g} %"
        stayed_s, needed_s = time_s - self.since_s, LASTING * prediction.memory_s
        if stayed_s < self.rule.minimum_stay:
            return f"only {stayed_s:,.3g} of at least {self.rule.minimum_stay:,.3g} s are over"
        if self.missed_s < needed_s:
            return f"the gain has to last, {self.missed_s:.3g} of {needed_s:.3g} s are missed so far"
        return None

    def _count_anew(self, time_s: float) -> None:
        self.since_s = self.decided_s = time_s
        self.missed_s = 0.0

    def _watched(self) -> dict[int, list[BatchTime]]:
        """Workers that get batches: Sync gives none to workers beyond the parts of a global batch."""
        there = sorted(self.batches.keys() - self.idle)
        return {worker: self.batches[worker] for worker in (there if self.mode == "gba" else there[: self.parts])}

    def _lacking(self, watched: dict[int, list[BatchTime]]) -> str | None:
        """Why nothing can be predicted yet."""
        if len(watched) < 2:
            return "the modes differ only with two workers or more"
        needed = min(COMPARED, self.rule.window)
        known, worker = min((len(own), worker) for worker, own in watched.items())
        if known < needed:
            return f"worker {worker} has finished {known} of the {needed} batches that a prediction needs"
        return None
