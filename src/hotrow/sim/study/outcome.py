"""The outcome of a mode in a simulation, and its timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from statistics import pstdev
from typing import Any

from hotrow.modes import MODES, Mode, Sync
from hotrow.modes.base import Apply, Effect, Event, RunFacts
from hotrow.sim import SimResult
from hotrow.sim.auto import AutoDecision, AutoPilot
from hotrow.sim.study.config import SimulationConfig
from hotrow.staleness import Histogram
from hotrow.switching import Auto

STEPS_MOST = 20_000  # times of steps that are kept for a picture
STEPS_IN_A_STRETCH = 8  # fewer would show the phase between steps and windows


@dataclass(frozen=True, slots=True)
class Began:
    """The start of a mode, at the beginning or by a switch."""

    time_s: float
    title: str
    workers: int
    local_batch: int
    step: int


@dataclass(slots=True)
class Notes:
    """Observes a cluster: the periods of its modes, and the times of the first steps."""

    steps: bool  # whether to record their times
    began: list[Began] = field(default_factory=list)
    stepped_s: list[float] = field(default_factory=list)
    is_cut: bool = False  # the mode that starts next is the same one

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode starts."""
        if self.is_cut:
            self.is_cut = False
            return
        self.began.append(Began(time_s, title_of(mode), facts.workers, facts.local_batch, facts.step))

    def cut(self, time_s: float) -> None:
        """A shard was lost."""
        self.is_cut = True

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """Record the steps of an event."""
        if self.steps and len(self.stepped_s) < STEPS_MOST:
            self.stepped_s += [time_s for each in effects if isinstance(each, Apply) and each.group != "embedding"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mode, from its start to its end."""

    label: str
    mode: Mode | Auto  # the first mode, or auto
    facts: RunFacts
    samples_per_step: int  # of the first mode
    result: SimResult
    began: Sequence[Began]
    remarks: Sequence[str]
    stepped_s: Sequence[float] = ()
    decisions: Sequence[AutoDecision] = ()  # by auto
    stays: int = 0  # decisions of auto to change nothing
    switches_left: int = 0  # planned after the end
    metrics: Mapping[str, float | None] | None = None  # None: nothing was trained, or there is no test data
    ids: Histogram | None = None  # staleness; None where there are no ids
    rows: Mapping[str, int] = field(default_factory=dict)  # of each table

    @classmethod
    def of(
        cls, label: str, config: SimulationConfig, result: SimResult, notes: Notes, pilot: AutoPilot | None
    ) -> "Outcome":
        """The outcome without the model's metrics."""
        mode, facts = config.modes[label].mode, config.cluster_of(label).facts
        first = Sync() if isinstance(mode, Auto) else mode
        return cls(
            label,
            mode,
            facts,
            first.samples_per_step(facts),
            result,
            notes.began,
            first.remarks(facts),
            stepped_s=notes.stepped_s,
            decisions=() if pilot is None else pilot.decisions,
            stays=0 if pilot is None else pilot.stays,
        )

    @property
    def switches(self) -> int:
        """The number of switches made."""
        return len(self.began) - 1

    @property
    def idle_share(self) -> float:
        """The share of the workers' time in which they did not compute."""
        workers = self.result.workers.values()
        present_s = sum(each.present_s for each in workers)
        return 1.0 - sum(each.computing_s for each in workers) / present_s if present_s else 0.0

    @property
    def rates(self) -> list[tuple[float, float]]:
        """(middle of a stretch, samples per second in it), for stretches of as many windows as hold enough steps."""
        windows, steps = self.result.rates, self.result.steps
        if len(windows) < 2:
            return []
        each = max(1, ceil(STEPS_IN_A_STRETCH * len(windows) / max(1, steps)))
        width_s = windows[1][0] - windows[0][0]
        stretches = [windows[start : start + each] for start in range(0, len(windows) - each + 1, each)]
        return [(stretch[0][0] + width_s * each / 2, sum(rate for _, rate in stretch) / each) for stretch in stretches]

    @property
    def qps_spread(self) -> float | None:
        """Standard deviation over the stretches; None where there is only one."""
        rates = [rate for _, rate in self.rates]
        return pstdev(rates) if len(rates) > 1 else None

    @property
    def troubles(self) -> list[str]:
        """Remarks for readers of the figures."""
        found = list(self.remarks)
        if self.switches_left:
            found.append(f"{self.switches_left} of its switches were not made: the run ended before")
        if not self.result.finished and not self.result.samples_applied:
            found.append("not one step was made")
        return found

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "mode": self.mode.model_dump(mode="json"),
            "workers": self.facts.workers,
            "local_batch": self.facts.local_batch,
            "global_batch": self.facts.global_batch,
            "samples_per_step": self.samples_per_step,
            "idle_share": self.idle_share,
            "metrics": None if self.metrics is None else dict(self.metrics),
            "rows": dict(self.rows),
            "began": [asdict(each) for each in self.began],
            "decisions": [asdict(each) for each in self.decisions],
            "decisions_to_stay": self.stays,
            "switches_not_made": self.switches_left,
            "remarks": self.troubles,
            **self.result.document(),
            "rates": [list(each) for each in self.rates],
            "qps_spread": self.qps_spread,
            **({} if self.ids is None else {"ids": self.ids.document()}),
        }


def title_of(mode: Mode | Auto) -> str:
    """Its name, with its main setting: "gba, tolerance 4"."""
    setting = setting_of(mode)
    return mode.name if setting is None else f"{mode.name}, {setting}"


def setting_of(mode: Mode | Auto) -> str | None:
    """Its main setting: "tolerance 4"; None where a mode has none."""
    own = MODES[mode.name].parameters if mode.name in MODES else ("tolerance",)
    name = next((each for each in own if isinstance(getattr(mode, each), int)), None)
    return None if name is None else f"{name.replace('_', ' ')} {getattr(mode, name):,}"
