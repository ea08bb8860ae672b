"""GBA Fig. 6, Tables 6.1 to 6.8 and 5.3: a base trained by Sync, days in each mode on top of it, and back to Sync.

All with the hyper-parameters that were tuned for Sync. Each mode starts from the same checkpoint, sees the same rows
and is tested on the same rows as Sync.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from hotrow.modes import Sync
from hotrow.reproduce.days import Chain, Interval, interval
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table
from hotrow.reproduce.settings import MODES, SET_S, TASK, cluster
from hotrow.reproduce.task import Model, TrainingTask

SEEDS = (1, 2, 3, 4, 5)
BOUND = 0.001
# Mean over the days of AUC(mode) - AUC(Sync), from Tables 6.1 to 6.3 and 6.5 to 6.7: Criteo, Alimama, Private.
PAPER = {
    "gba": {"switched": (-0.0010, 0.0000, 0.0005), "back": (-0.0008, 0.0001, 0.0001)},
    "backup_workers": {"switched": (-0.0025, -0.0027, -0.0028), "back": (-0.0012, -0.0069, -0.0034)},
    "bounded_staleness": {"switched": (-0.2150, 0.0000, -0.0001), "back": (-0.0025, -0.0004, -0.0005)},
    "bulk_sync": {"switched": (-0.0090, -0.0010, -0.0006), "back": (-0.0034, -0.0024, -0.0069)},
    "async": {"switched": (-0.2969, -0.1505, -0.0084), "back": (-0.0035, -0.0094, -0.2503)},
}


@dataclass(frozen=True, slots=True)
class Days:
    """How long each stretch is."""

    base: int = 2
    switched: int = 3
    back: int = 2


@dataclass(slots=True)
class Course:
    """One mode and seed: AUC of every day, and what the days in the mode were like."""

    aucs: list[float] = field(default_factory=list)
    drops: int = 0  # batches
    zero_weight: int = 0  # batches whose dense gradient was too late
    staleness: list[float] = field(default_factory=list)  # of gradients, mean of each day
    staleness_max: int = 0
    local_qps: list[float] = field(default_factory=list)
    applied: int = 0  # samples


def run(quick: bool = False, *, tell: Tell = silent) -> dict[str, Any]:
    """By mode: AUCs by seed and day, intervals of their difference from Sync, and the columns of Table 5.3."""
    days = Days(1, 1, 1) if quick else Days()
    task = replace(TASK, train_rows=TASK.train_rows // 16, test_rows=20_000) if quick else TASK
    courses: dict[str, dict[int, Course]] = {name: {} for name in MODES}
    for seed in SEEDS[:2] if quick else SEEDS:
        with TemporaryDirectory() as folder:
            base = Path(folder) / "base"
            start = train_base(task, seed, days.base, base)
            for name in MODES:
                tell(f"seed {seed}, {name}")
                courses[name][seed] = course(task, seed, days, base, start, name)
    return compared(courses, days)


def train_base(task: TrainingTask, seed: int, days: int, folder: Path) -> tuple[int, int]:
    """Days of Sync, saved; steps and samples so far."""
    chain = Chain(Model(task, SET_S, seed))
    for day in range(days):
        chain.train(Sync(), cluster(), day)
    chain.model.save(folder, chain.samples, chain.step)
    chain.model.close()
    return chain.step, chain.samples


def course(task: TrainingTask, seed: int, days: Days, base: Path, start: tuple[int, int], name: str) -> Course:
    """A base, days in a mode, days in Sync."""
    model = Model(task, SET_S, seed)
    model.load(base)
    chain = Chain(model, *start)
    found = Course()
    for day in range(days.base, days.base + days.switched + days.back):
        switched = day < days.base + days.switched
        result = chain.train(MODES[name] if switched else Sync(), cluster(), day)
        found.aucs.append(model.auc(day + 1))
        if switched:
            counted = result.statistics
            found.drops += sum(counted.dropped.values())
            found.zero_weight += counted.zero_weight
            found.staleness.append(counted.gradient.mean or 0.0)
            found.staleness_max = max(found.staleness_max, counted.gradient.largest or 0)
            found.local_qps.append(result.local_qps)
            found.applied += result.samples_applied
    model.close()
    return found


def compared(courses: Mapping[str, Mapping[int, Course]], days: Days) -> dict[str, Any]:
    """Every mode beside Sync, seed by seed."""
    modes: dict[str, Any] = {}
    for name, by_seed in courses.items():
        modes[name] = _columns(by_seed) | {"auc": {str(seed): by_seed[seed].aucs for seed in sorted(by_seed)}}
        if name != "sync":
            gaps = [
                [auc - sync for auc, sync in zip(by_seed[seed].aucs, courses["sync"][seed].aucs, strict=True)]
                for seed in sorted(by_seed)
            ]
            modes[name]["by_day"] = [asdict(interval(day)) for day in zip(*gaps, strict=True)]
            for stretch, part in (("switched", slice(0, days.switched)), ("back", slice(days.switched, None))):
                modes[name][stretch] = asdict(interval([fmean(gap[part]) for gap in gaps]))
    return {"days": asdict(days), "modes": modes, "paper": PAPER, "promises": _promises(modes)}


def _columns(by_seed: Mapping[int, Course]) -> dict[str, float]:
    all_of = list(by_seed.values())
    return {
        "drops": fmean(each.drops for each in all_of),
        "zero_weight": fmean(each.zero_weight for each in all_of),
        "staleness": fmean(fmean(each.staleness) for each in all_of),
        "staleness_max": max(each.staleness_max for each in all_of),
        "local_qps": fmean(fmean(each.local_qps) for each in all_of),
        "samples_applied": fmean(each.applied for each in all_of),
    }


def _promises(modes: Mapping[str, Any]) -> list[dict[str, Any]]:
    made = []
    if "gba" in modes:
        days = [Interval(**each) for each in modes["gba"]["by_day"]]
        worst = max(days, key=lambda each: max(-each.low, each.high))
        said = f"GBA within ±{BOUND} of Sync on every day, from the first on and back"
        made.append(promise(said, worst.within(BOUND), f"the widest interval is {_told(worst)}"))
    if "async" in modes:
        gap = Interval(**modes["async"]["switched"])
        made.append(promise("Async with Sync's hyper-parameters is clearly worse", gap.high < -BOUND, _told(gap)))
    if "gba" in modes and "backup_workers" in modes:
        ours, theirs = modes["gba"]["zero_weight"], modes["backup_workers"]["drops"]
        found = f"{theirs:,.0f} batches dropped by BackupWorkers, {ours:,.0f} of weight 0 in GBA"
        made.append(
            promise("BackupWorkers drops orders of magnitude more than GBA", theirs >= 100 * max(ours, 1), found)
        )
    return made


def lines(result: Mapping[str, Any]) -> list[str]:
    """AUC differences, then Table 5.3's columns, then the promises."""
    rows, columns = [], []
    for name, mode in result["modes"].items():
        aucs = [fmean(day) for day in zip(*mode["auc"].values(), strict=True)]
        seeds = len(mode["auc"])
        if name != "sync":
            gaps = [_told(Interval(**each)) for each in mode["by_day"]]
            paper = " ".join(f"{gap:+.4f}" for gap in PAPER.get(name, {}).get("switched", ()))
            rows.append([name, str(seeds), *gaps, paper or "-"])
        else:
            rows.append(["sync (AUC)", str(seeds), *(f"{auc:.4f}" for auc in aucs), ""])
        late = f"{mode['staleness']:.2f} ({mode['staleness_max']})"
        numbers = (f"{mode[key]:,.0f}" for key in ("local_qps", "drops", "zero_weight", "samples_applied"))
        columns.append([name, late, *numbers])
    days = result["days"]
    names = [f"day {day + 1}" for day in range(days["switched"])] + [f"back {day + 1}" for day in range(days["back"])]
    head = ["AUC - AUC(sync)", "seeds", *names, "paper, days 1 on"]
    second = ["mode", "gradient staleness (max)", "local QPS", "dropped", "weight 0", "samples applied"]
    return [*table(head, rows), "", *table(second, columns), "", *promise_lines(result)]


def _told(gap: Interval) -> str:
    return f"{gap.mean:+.4f} ±{gap.half_width:.4f}"
