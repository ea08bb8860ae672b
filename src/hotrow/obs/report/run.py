"""The story of a run, told from its events: what was trained, what was measured, how it ended.

A run that was resumed goes on from its last checkpoint: what it had trained after that is trained again, so the older
points beyond are taken back. A fresh start in the same folder begins the story anew.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hotrow.obs.events import Events

Record: TypeAlias = dict[str, Any]

LARGEST = 1e300  # what a file says beyond it is no figure, and no picture could show it


@dataclass(slots=True)
class RunRecord:
    """The events by kind. `end` is None while a run goes on, or after a hard stop."""

    start: Record | None = None
    last_start: Record | None = None  # of its last resumption, where it was resumed
    end: Record | None = None
    resumed: int = 0
    last_time: float | None = None
    progress: list[Record] = field(default_factory=list)
    evaluations: list[Record] = field(default_factory=list)
    tables: list[Record] = field(default_factory=list)
    malformed: list[Record] = field(default_factory=list)
    warnings: list[Record] = field(default_factory=list)
    checkpoints: list[Record] = field(default_factory=list)
    modes: list[Record] = field(default_factory=list)  # the first one and every switch
    remarks: list[Record] = field(default_factory=list)
    statistics: list[Record] = field(default_factory=list)
    nonfinite: int = 0  # events in which a number was NaN or infinite
    unreadable: int = 0  # lines of the log

    @property
    def name(self) -> str | None:
        return text(self.start, "run")

    @property
    def started(self) -> float | None:
        return number(self.start, "time")

    @property
    def samples(self) -> float | None:
        """Samples trained so far."""
        last = self.end or (self.progress[-1] if self.progress else None)
        return number(last, "samples")


def tell(log: Events) -> RunRecord:
    """Sort the events of a log into a run."""
    run = RunRecord()
    for event in log.events:
        if event["kind"] == "start":
            run = _started(run, event)
        _take(run, event)
    run.unreadable = log.unreadable
    return run


def _started(run: RunRecord, event: Record) -> RunRecord:
    if not event.get("resumed"):
        return RunRecord(start=event, last_start=event)
    run.resumed += 1
    run.start, run.last_start = run.start or event, event
    run.end = None
    return run


def _take(run: RunRecord, event: Record) -> None:
    run.last_time = number(event, "time")
    run.nonfinite += bool(event.get("nonfinite"))
    kept = {
        "progress": run.progress,
        "evaluation": run.evaluations,
        "tables": run.tables,
        "malformed": run.malformed,
        "warning": run.warnings,
        "checkpoint": run.checkpoints,
        "mode": run.modes,
        "remark": run.remarks,
        "statistics": run.statistics,
    }.get(event["kind"])
    if kept is not None:
        samples = number(event, "samples")
        while samples is not None and kept and (number(kept[-1], "samples") or 0) > samples:
            kept.pop()
        kept.append(event)
    elif event["kind"] == "end":
        run.end = event


def number(record: Any, *path: str | int) -> float | None:
    """The finite number at a path of keys and places; None where there is none."""
    for key in path:
        record = _inside(record, key)
    usable = isinstance(record, int | float) and not isinstance(record, bool) and abs(record) < LARGEST
    return record if usable else None


def epoch(record: Any) -> float | None:
    """The epoch as people count, from 1; the log counts from 0."""
    found = number(record, "epoch")
    return None if found is None else found + 1


def text(record: Any, key: str) -> str | None:
    """The text under a key; None where there is none."""
    value = _inside(record, key)
    return value if isinstance(value, str) and value else None


def columns(rows: Any, *paths: str | int | tuple[str, ...]) -> tuple[list[float], ...]:
    """One list of numbers for each path; a row that lacks one of its numbers is in none of them."""
    steps = [path if isinstance(path, tuple) else (path,) for path in paths]
    found = [[number(row, *path) for path in steps] for row in rows] if isinstance(rows, list) else []
    whole = [[value for value in row if value is not None] for row in found]
    kept = [row for row in whole if len(row) == len(paths)]
    return tuple([row[place] for row in kept] for place in range(len(paths)))


def _inside(record: Any, key: str | int) -> Any:
    if isinstance(record, dict):
        return record.get(key)
    return record[key] if isinstance(record, list) and isinstance(key, int) and key < len(record) else None
