"""GBA Fig. 7 and 8: after a base by Sync, GBA with other local batches.

In Fig. 7 the number of workers changes with the local batch, and the global batch stays: so must the AUC. In Fig. 8 the
number of workers stays and the global batch changes: the hyper-parameters no longer fit, and the AUC shows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from hotrow.modes import GBA, Mode, Sync
from hotrow.reproduce.days import Chain, Interval, interval
from hotrow.reproduce.gba_figure_6 import BOUND, SEEDS, train_base
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table
from hotrow.reproduce.settings import GLOBAL_BATCH, SET_S, TASK, cluster
from hotrow.reproduce.task import Model, TrainingTask
from hotrow.sim.config import ClusterConfig

BASE_DAYS, GBA_DAYS = 2, 2
SAME_GLOBAL = ((8, 256), (16, 128), (32, 64), (64, 32))  # workers, local batch
OTHER_GLOBAL = ((32, 32), (32, 64), (32, 256))


def run(quick: bool = False, *, tell: Tell = silent) -> dict[str, Any]:
    """By workers and local batch: mean AUC over the days after the base, and its difference from Sync's."""
    task = replace(TASK, train_rows=TASK.train_rows // 16, test_rows=20_000) if quick else TASK
    aucs: dict[str, dict[int, float]] = {}
    for seed in SEEDS[:2] if quick else SEEDS:
        with TemporaryDirectory() as folder:
            base = Path(folder) / "base"
            start = train_base(task, seed, BASE_DAYS, base)
            for name, mode, shape in settings():
                tell(f"seed {seed}, {name}")
                aucs.setdefault(name, {})[seed] = after_base(task, seed, base, start, mode, shape)
    return compared(aucs)


def settings() -> list[tuple[str, Mode, ClusterConfig]]:
    """Sync, and GBA in every shape."""
    shapes = dict.fromkeys((*SAME_GLOBAL, *OTHER_GLOBAL))
    made: list[tuple[str, Mode, ClusterConfig]] = [("sync", Sync(), cluster())]
    made += [(f"{workers}x{local}", GBA(), cluster(workers, local, workers * local)) for workers, local in shapes]
    return made


def after_base(
    task: TrainingTask, seed: int, base: Path, start: tuple[int, int], mode: Mode, shape: ClusterConfig
) -> float:
    """Mean AUC of the days on top of a base."""
    model = Model(task, SET_S, seed)
    model.load(base)
    chain = Chain(model, *start)
    found = []
    for day in range(BASE_DAYS, BASE_DAYS + GBA_DAYS):
        chain.train(mode, shape, day)
        found.append(model.auc(day + 1))
    model.close()
    return fmean(found)


def compared(aucs: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Both figures, and what they promise."""
    seven, eight = _rows(aucs, SAME_GLOBAL), _rows(aucs, OTHER_GLOBAL)
    worst = max((Interval(**row["minus_sync"]) for row in seven), key=lambda each: max(-each.low, each.high))
    others = [Interval(**row["minus_sync"]) for row in eight if row["global_batch"] != GLOBAL_BATCH]
    promises = [
        promise(f"the same global batch: within ±{BOUND} of Sync", worst.within(BOUND), f"widest {_told(worst)}"),
        promise(
            "another global batch: the AUC is lower",
            all(each.high < 0 for each in others),
            ", ".join(_told(each) for each in others),
        ),
    ]
    return {"figure_7": seven, "figure_8": eight, "promises": promises}


def lines(result: Mapping[str, Any]) -> list[str]:
    """A table for each figure, then the promises."""
    head = ["workers x local batch", "global batch", "seeds", "AUC", "AUC - AUC(sync)"]
    made: list[str] = []
    for figure in ("figure_7", "figure_8"):
        rows = [
            [
                f"{row['workers']} x {row['local_batch']}",
                f"{row['global_batch']:,}",
                str(row["minus_sync"]["pairs"]),
                f"{row['auc']:.4f}",
                _told(Interval(**row["minus_sync"])),
            ]
            for row in result[figure]
        ]
        made += [figure.replace("_", " "), *table(head, rows), ""]
    return made + promise_lines(result)


def _rows(aucs: Mapping[str, Mapping[int, float]], shapes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    rows = []
    for workers, local in shapes:
        by_seed = aucs[f"{workers}x{local}"]
        gap = interval([by_seed[seed] - aucs["sync"][seed] for seed in sorted(by_seed)])
        rows.append(
            {
                "workers": workers,
                "local_batch": local,
                "global_batch": workers * local,
                "auc": fmean(by_seed.values()),
                "minus_sync": asdict(gap),
            }
        )
    return rows


def _told(gap: Interval) -> str:
    return f"{gap.mean:+.4f} ±{gap.half_width:.4f}"
