"""The figures of `hotrow bench cache` for people and for files."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.cache.against_oracles import OracleCell
from hotrow.bench.cache.cells import Cell
from hotrow.bench.cache.epoch import EpochRow
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.saved_bytes import WireCell
from hotrow.bench.curve import Point
from hotrow.bench.machine import provenance
from hotrow.bench.report import rounded, write_json
from hotrow.bench.rounds import Figures

# (key, words, unit, what it should be)
LINES = (
    ("bytes_saved_paper_skew", "bytes saved, paper's skew, best policy", "%", "88"),
    ("bytes_saved_paper_skew_bound", "and by a cache of the most popular ids", "%", ""),
    ("saving_vs_oracle", "found lookups / offline LFU, worst stream", "x", "0.9"),
    ("ahead_vs_oracle", "policy ahead / offline LFU, worst stream", "x", "1"),
    ("ahead_vs_belady", "policy ahead / Belady over its window", "x", "0.95"),
    ("wire_bytes_saved_sgd", "bytes saved on a cluster, SGD", "%", ""),
    ("wire_bytes_saved_adagrad", "bytes saved on a cluster, Adagrad", "%", ""),
    ("wire_vs_trace_worst", "cluster and trace differ, at most", "%", "5"),
    ("epoch_bound_share", "epoch: cached / its bound, worst link", "x", "0.85"),
    ("epoch_speedup_0_01gbit", "0.01 Gb/s: cached / Hybrid", "x", ""),
    ("epoch_speedup_1gbit", "1 Gb/s: cached / Hybrid", "x", "4.4"),
    ("epoch_speedup_own_cores_1gbit", "the same on own cores, computed", "x", "4.4"),
    ("epoch_speedup_10gbit", "10 Gb/s: cached / Hybrid", "x", "2.3"),
    ("epoch_speedup_own_cores_10gbit", "the same on own cores, computed", "x", "2.3"),
    ("hit_rate_vs_local", "lookup that only hits / local table", "x", "0.6"),
    ("hit_step_vs_local", "the same with the update", "x", ""),
    ("decision_share", "decisions / cached step with its network, worst", "x", "below 0.15"),
)


@dataclass(slots=True)
class CacheResults:
    """Everything that was measured, by part."""

    figures: Figures = field(default_factory=dict)
    grid: list[Cell] = field(default_factory=list)
    oracles: list[OracleCell] = field(default_factory=list)
    wire: list[WireCell] = field(default_factory=list)
    policies: list[Cell] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)  # of the picture
    epochs: list[EpochRow] = field(default_factory=list)


def document(plan: CachePlan, found: CacheResults) -> dict[str, Any]:
    """Everything worth keeping: the figures, the tables that were measured, and what they depend on."""
    tables = ("grid", "oracles", "wire", "policies", "epochs")
    return {
        **rounded(found.figures),
        **{name: [_rounded(asdict(row)) for row in getattr(found, name)] for name in tables if getattr(found, name)},
        "job": asdict(plan),
        **provenance("hotrow"),
    }


def write(path: Path, document: dict[str, Any], *, update: bool) -> None:
    """Write a document; `update`: into the one that is there."""
    if update and path.exists():
        document = updated(json.loads(path.read_text()), document)
    write_json(path, document)


def updated(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The document of an earlier run with all that a later one has measured in its place; `runs` has both.

    Rows of tables are replaced where the later run has rows of the same stream, or any in tables without streams.
    """
    whole = {**before, **now}
    for name in ("grid", "oracles"):
        streams = {row["stream"] for row in now.get(name, ())}
        kept = [row for row in before.get(name, ()) if row["stream"] not in streams]
        if kept or name in now:
            whole[name] = kept + now.get(name, [])
    return {**whole, "runs": [*_runs(before), *_runs(now)]}


def _runs(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Command, commit, date and job of everything in a document; files of before have one job, of the last run."""
    own = {key: document[key] for key in ("command", "commit", "date", "job") if key in document}
    return list(document.get("runs", [own]))


def _rounded(row: Any) -> Any:
    if isinstance(row, dict):
        return {key: _rounded(value) for key, value in row.items()}
    return round(row, 4) if isinstance(row, float) else row


def summary(plan: CachePlan, found: CacheResults) -> Group:
    """The result as a person reads it."""
    parts: list[Text | Table] = [Text(headline(plan), style="bold"), _lines(found.figures)]
    if found.grid:
        parts.append(_grid(found.grid))
    if found.policies:
        parts.append(_policies(plan, found.policies))
    if found.wire:
        parts.append(_wire(found.wire))
    if found.epochs:
        parts.append(_epochs(plan, found.epochs))
        parts += [Text(sentence, style="bold") for sentence in faults(found.epochs)]
    return Group(*parts)


def faults(rows: Sequence[EpochRow]) -> list[str]:
    """A sentence for each epoch that was faster than its bound, which cannot be."""
    return [
        f"{row.contestant} at {row.gbps:g} Gb/s: {row.bound_share:.2f} of its bound; above 1 is a fault of the "
        "measurement: measure more steps or rounds"
        for row in rows
        if row.bound_share > 1
    ]


def headline(plan: CachePlan) -> str:
    """The job in one line."""
    return (
        f"{plan.workers} workers, batches of {plan.samples} samples, dim {plan.dim}, SGD unless it says otherwise, "
        f"caches of {100 * plan.size:g} % of the rows"
    )


def picture_headline(plan: CachePlan) -> str:
    """The job of the picture in one line."""
    return (
        f"{plan.grid_rows:,} rows, a tenth of the ids takes 90 % of the updates; {plan.workers} workers, "
        f"s = {max(plan.staleness)}"
    )


def _lines(figures: Figures) -> Table:
    table = _table("", "found", "wanted", "unit")
    for key, words, unit, wanted in LINES:
        if (value := figures.get(key)) is not None:
            table.add_row(words, f"{100 * value:.1f}" if unit == "%" else f"{value:.2f}", wanted, unit)
    return table


def _grid(cells: Sequence[Cell]) -> Table:
    """Sync and Hybrid without a cache send the same rows and gradients, so nothing is saved there."""
    table = _table(
        "stream", "rows", "policy", "s", "misses %", "bytes saved %", "Adagrad %", "no cache: Sync, Hybrid %"
    )
    for cell in cells:
        saved = (100 * cell.miss_rate, 100 * cell.bytes_saved, 100 * cell.bytes_saved_adagrad)
        shown = (f"{each:.1f}" for each in saved)
        table.add_row(cell.stream, f"{cell.rows:,}", cell.policy, str(cell.staleness), *shown, "0")
    return table


def _policies(plan: CachePlan, cells: Sequence[Cell]) -> Table:
    table = _table("misses %, cache of", *(f"{100 * size:g} %" for size in plan.sizes))
    for policy in dict.fromkeys(cell.policy for cell in cells):
        table.add_row(policy, *(f"{100 * cell.miss_rate:.1f}" for cell in cells if cell.policy == policy))
    return table


def _wire(cells: Sequence[WireCell]) -> Table:
    table = _table("on a cluster", "optimizer", "s", "KB a batch", "by the trace")
    for cell in cells:
        staleness = "no cache" if cell.staleness is None else str(cell.staleness)
        sizes = (f"{each / 1e3:,.0f}" for each in (cell.wire_bytes, cell.trace_bytes))
        table.add_row(cell.mode, cell.optimizer, staleness, *sizes)
    return table


def _epochs(plan: CachePlan, rows: Sequence[EpochRow]) -> Table:
    table = _table(
        "Gb/s", f"epoch of {plan.epoch_samples:,} samples", "s", "bound", "share", "link", "processor", "cached is x"
    )
    for row in rows:
        times = (row.epoch_s, row.bound_s, row.bound_share, row.link_s, row.processor_s, row.speedup)
        table.add_row(f"{row.gbps:g}", row.contestant, *(f"{each:.2f}" for each in times))
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left")
    return table
