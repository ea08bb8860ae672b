"""A made-up run folder, written with the parts that a real run uses, for tests of the page and for looking at it.

`python made_up_run.py FOLDER` writes a large one with its report.
"""

import json
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotrow.metrics import Scores, sigmoid
from hotrow.obs.events import EventLog
from hotrow.obs.machine import machine
from hotrow.obs.report import write_report
from hotrow.staleness import Histogram

NOON = 1_763_208_000.0  # 15 November 2025
CONFIG = """\
# the whole configuration, defaults included
[data]
format = "criteo"
train = "day_0.gz"
test = { next = "day" }

[model]
name = "deepfm"
hidden = [400, 400, 400]

[tables.default]
dim = 16
capacity = "8GB"
optimizer = { name = "adagrad", lr = 0.05, eps = 1e-8, initial = 0.0, decay = 0.0, clip = 0.0, eps_inside = false }

[run]
epochs = 3
batch = 4096
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the made-up run is like."""

    name: str = "monday"
    tables: tuple[str, ...] = ("default",)
    samples: int = 600_000
    reports: int = 60
    epochs: int = 3
    days: int = 0
    workers: int = 1  # of several some are late, and the mode is changed twice
    said: tuple[str, ...] = ()  # about the mode
    warnings: tuple[str, ...] = ()
    malformed: tuple[str, ...] = ()
    ended: bool = True


def write_run(folder: Path, shape: Shape = Shape()) -> Path:  # noqa: B008  # frozen
    """Write every file of a run folder but its report."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "machine.json").write_text(json.dumps(machine()))
    moment = iter(np.arange(NOON, NOON + 1e6, 2.0).tolist())
    with closing(EventLog(folder, clock=lambda: next(moment))) as log:
        _events(log, shape)
    scores = _scores(50_000, seed=1)
    pictures = {"test": {**scores.pictures(), "metrics": scores.metrics()}}
    (folder / "evaluation.json").write_text(json.dumps(pictures))
    tables = {name: {**_table(name, shape.samples), **_counts(place)} for place, name in enumerate(shape.tables)}
    (folder / "tables.json").write_text(json.dumps(tables))
    return folder


def _events(log: EventLog, shape: Shape) -> None:
    start = {"run": shape.name, "model": "deepfm", "parameters": 512_345, "samples_expected": shape.samples}
    log.write("start", **start, tables=list(shape.tables), resumed=False)
    log.write("mode", samples=0, step=0, before=None, mode="sync", sentence=None, chosen="auto", **_batches(shape))
    for text in shape.said:
        log.write("remark", samples=0, step=0, mode="sync", sentence=text)
    for text in shape.malformed:
        log.write("malformed", file="day_0.tsv", line=17, reason="39 columns, 40 were expected", text=text)
    for text in shape.warnings:
        log.write("warning", text=text)
    chance = np.random.default_rng(0)
    for report in range(1, shape.reports + 1):
        samples = shape.samples * report // shape.reports
        epoch = (report - 1) * shape.epochs // shape.reports
        log.write("progress", **_progress(samples, shape, epoch, chance))
        if shape.workers > 1 and report in (shape.reports // 4, shape.reports // 2):
            names = ("sync", "gba") if report == shape.reports // 4 else ("gba", "sync")
            why = f"to {names[1]}: 9,876 samples/s predicted" if names[1] == "gba" else None
            place = {"samples": samples, "step": samples // 4096}
            log.write("mode", **place, before=names[0], mode=names[1], sentence=why)
        if report * shape.epochs % shape.reports < shape.epochs:
            log.write("evaluation", **_evaluation("valid", samples, epoch, None, 2_000 + epoch))
            tables = {name: _table(name, samples) for name in shape.tables}
            log.write("tables", samples=samples, tables=tables)
            log.write("statistics", samples=samples, **_statistics(samples, shape))
    for day in range(shape.days):
        log.write("evaluation", **_evaluation("test", shape.samples, day, f"day {day}", 300 + 7 * day))
    if shape.ended:
        if not shape.days:
            log.write("evaluation", **_evaluation("test", shape.samples, 0, None, 9_000))
        best = {"metric": "auc", "value": 0.8034, "epoch": 1}
        counts = {"malformed_lines": len(shape.malformed), "refused_gradients": 0, "short_steps": 3}
        figures = {"samples": shape.samples, "step": shape.samples // 4096, "seconds": 723.4, "samples_per_s": 41_210.0}
        log.write("end", **figures, stopped="epochs done", best=best, counts=counts)


def _batches(shape: Shape) -> dict[str, int]:
    return {"workers": shape.workers, "local_batch": 4096 // shape.workers, "global_batch": 4096}


def _statistics(samples: int, shape: Shape) -> dict[str, Any]:
    batches = samples * shape.workers // 4096
    late = Histogram({0: batches} if shape.workers == 1 else {age: max(1, batches >> age) for age in range(9)})
    counts: dict[str, Any] = {
        "granted": batches,
        "applied": batches,
        "parked": 0,
        "decayed": 0,
        "zero_weight": 0,
        "short_steps": 3,
    }
    counts |= {"duplicates": 0, "after_loss": 0, "dropped": {"late": 17} if shape.workers > 1 else {}}
    kinds = {"data": late, "gradient": late, "rows": Histogram(), "ids": late}
    return {**counts, **{kind: histogram.document() for kind, histogram in kinds.items()}}


def _progress(samples: int, shape: Shape, epoch: int, chance: np.random.Generator) -> dict[str, Any]:
    part = samples / shape.samples
    return {
        "samples": samples,
        "step": samples // 4096,
        "epoch": epoch,
        "loss": 0.44 + 0.12 * np.exp(-6 * part) + 0.004 * chance.normal() - 0.012 * (epoch + 1),
        "auc": 0.80 - 0.16 * np.exp(-6 * part) + 0.003 * chance.normal() + 0.01 * (epoch + 1),
        "samples_per_s": 41_000 * (1 + 0.05 * chance.normal()) * (1 - 0.3 * np.exp(-20 * part)),
        "lr": 1e-3,
        "reading_share": abs(0.02 + 0.01 * chance.normal()),
        "staleness": None if shape.workers == 1 else 1.0,
    }


def _evaluation(split: str, samples: int, epoch: int, day: str | None, rows: int) -> dict[str, Any]:
    figures = _scores(rows, seed=rows).metrics()
    place = {"samples": samples, "step": samples // 4096, "epoch": epoch, "day": day}
    return {"split": split, **place, "rows": rows, "metrics": figures}


def _scores(rows: int, seed: int) -> Scores:
    chance = np.random.default_rng(seed)
    logits = chance.normal(-1.4, 1.3, rows)
    scores = Scores()
    scores.add(chance.random(rows) < sigmoid(0.95 * logits), logits)
    return scores


def _table(name: str, samples: int) -> dict[str, int]:
    rows = int(40 * samples**0.75 / (1 + sum(name.encode()) % 7))
    values, state = rows * 64, rows * 64
    lives = {"created": rows + 1000, "evicted": 1000, "expired": 0, "turned_away": 12}
    size = {"rows": rows, "dim": 16, "value_bytes": values, "state_bytes": state, "bytes": values + state + rows * 40}
    return {**size, **lives}


def _counts(place: int) -> dict[str, Any]:
    ranks = np.unique(np.geomspace(1, 300_000, 150).astype(int))
    skew = [[int(rank), int(1 + 90_000 / (place + 1) / rank ** (1.05 + 0.05 * place))] for rank in ranks]
    spans = [(0, 0), *((2**power, 2 ** (power + 1) - 1) for power in range(12))]
    rows = [int(400_000 * 0.55**number * (1 + place)) for number in range(13)]
    return {"skew": skew, "updates": [[low, high, count] for (low, high), count in zip(spans, rows, strict=True)]}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    strange = ('<script>alert("line")</script>\t1\t2', "0\t1\t" + "68fd1e64\t" * 40)
    said = ("2 workers where the global batch needs 4: steps will be short",)
    large = Shape(
        tables=("user", "item", "context"), samples=9_000_000, reports=500, warnings=said, malformed=strange, workers=4
    )
    print(write_report(write_run(target, large)))
