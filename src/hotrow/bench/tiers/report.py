"""The figures of `hotrow bench tiers` for people and for files."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.machine import provenance
from hotrow.bench.peers import Adapter, lines_of, versions_of
from hotrow.bench.report import rounded
from hotrow.bench.rounds import Figures
from hotrow.bench.tiers.capacity import points_of
from hotrow.bench.tiers.plan import CLUSTER_MODES, PARTS, TiersPlan
from hotrow.errors import ConfigError

SPEED = (
    ("samples_per_s", "rows in two tiers", "samples/s"),
    ("ram_samples_per_s", "all rows in memory", "samples/s"),
    ("tiered_vs_ram", "two tiers / memory", "x"),
    ("processor_vs_ram", "the same in processor time", "x"),
    ("processor_ms", "processor time of a step", "ms"),
    ("disk_rate_share", "requests / random reads of that size of the disk alone", "%"),
    ("disk_request_share", "requests / random reads of a block of the disk alone", "%"),
    ("disk_row_share", "rows from disk / random reads of a block", "%"),
    ("disk_rows_per_s", "rows from disk while training", "1/s"),
    ("disk_reads_per_s", "requests while training", "1/s"),
    ("disk_read_bytes", "bytes of a request", ""),
    ("fio_reads_per_s", "random reads of a block of the disk alone", "1/s"),
    ("fio_sized_reads_per_s", "random reads as large as a request", "1/s"),
    ("ram_hit_share", "distinct ids of a batch found in memory", "%"),
    ("buffered_share", "rows that came back from the write buffer", "%"),
    ("ahead_share", "rows from disk that came ahead of their lookup", "%"),
    ("disk_wait_ms", "lookups wait for the disk, a step", "ms"),
    ("disk_write_mbps", "written meanwhile", "MB/s"),
    ("memory_bytes", "memory of the table", "MB"),
    ("disk_bytes", "its file", "MB"),
)
PEERS = (
    ("lookup_kids", "lookups and updates alone", "k ids/s"),
    ("{name}_kids", "{title}", "k ids/s"),
    ("vs_{name}", "times {title}", "x"),
)
CLUSTER = (
    ("step_ms", "a step", "ms"),
    ("disk_wait_ms", "lookups wait for the disk, a step", "ms"),
    ("disk_wait_share", "of the time", "%"),
    ("late_share", "rows from disk that a lookup waited for", "%"),
)
OPTIONS = (
    ("base", "direct I/O, io_uring, load-ahead", None),
    ("buffered", "through the page cache", "direct_gain"),
    ("threads", "threads that call pread", "uring_gain"),
    ("inline", "without load-ahead", "ahead_gain"),
    ("bound", "with core binding", "binding_gain"),
)


def document(plan: TiersPlan, figures: dict[str, Figures], adapters: Sequence[Adapter] = ()) -> dict[str, Any]:
    """By part: its figures, then what they depend on."""
    job = asdict(plan)
    capacity = job.pop("capacity")
    about = provenance("hotrow", versions_of(adapters))
    return {
        part: {**rounded(found), "job": {**job, "capacity": capacity} if part == "capacity" else job, **about}
        for part, found in figures.items()
    }


def merged(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Parts that a file has already stay in it, unless they were measured again."""
    if not path.exists():
        return found
    try:
        before = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"--json {path}: is not JSON ({error}): name another file") from error
    if not isinstance(before, dict) or not set(before) <= set(PARTS):
        raise ConfigError(f"--json {path}: holds figures of another benchmark: name another file")
    both = {**before, **found}
    return {part: both[part] for part in PARTS if part in both}


def summary(plan: TiersPlan, figures: dict[str, Figures], adapters: Sequence[Adapter] = ()) -> Group:
    """The result as a person reads it."""
    made: list[Text | Table] = []
    if (speed := figures.get("speed")) is not None:
        made += [Text(headline(plan), style="bold"), _speed_table(plan, speed, adapters)]
        if not speed[f"d{plan.dims[0]}_fio_installed"]:
            made.append(Text("fio is not installed: threads of this process measured the disk alone"))
    if (options := figures.get("options")) is not None:
        made += [Text(f"options, dim {max(plan.dims)}", style="bold"), _options_table(options)]
        if options["bound_threads"] == 0:
            made.append(Text("one NUMA node: core binding binds nothing, a gain of it is noise"))
    if (cluster := figures.get("cluster")) is not None:
        made += [Text(f"one trainer and one shard, dim {min(plan.dims)}", style="bold"), _cluster_table(cluster)]
    if (capacity := figures.get("capacity")) is not None:
        made += [Text(capacity_headline(plan), style="bold"), _capacity_table(plan, capacity)]
        flat, processor = capacity["capacity_flatness"] or 0.0, capacity["processor_flatness"] or 0.0
        made.append(Text(f"slowest / fastest of these, within rounds: {flat:.2f}, by processor time {processor:.2f}"))
    return Group(*made)


def headline(plan: TiersPlan) -> str:
    """The job of the part `speed` in one line."""
    return (
        f"DeepFM, {plan.features} features over {plan.rows:,} ids (Zipf {plan.zipf}), memory for one row in "
        f"{plan.rows_per_place}, batch {plan.samples:,}, {plan.threads} threads, "
        f"{plan.rounds} rounds of {plan.steps} steps"
    )


def capacity_headline(plan: TiersPlan) -> str:
    """The job of the part `capacity` in one line."""
    job = plan.capacity
    return (
        f"dim {job.dim}, SGD, {job.memory_bytes / 1e9:g} GB of memory, batch {plan.samples:,}: of its ids "
        f"{job.stored_share:.0%} from rows on disk, {job.new_share:.0%} new, the others hot"
    )


def _speed_table(plan: TiersPlan, figures: Figures, adapters: Sequence[Adapter]) -> Table:
    table = _plain_table("", *(f"dim {dim}" for dim in plan.dims), "unit")
    for key, words, unit in (*SPEED, *(lines_of(PEERS, adapters) if adapters else ())):
        table.add_row(words, *(_cell(figures[f"d{dim}_{key}"], unit) for dim in plan.dims), unit)
    return table


def _options_table(figures: Figures) -> Table:
    table = _plain_table("", "step, ms", "disk wait, ms", "gain of the option")
    for name, words, gain in OPTIONS:
        if f"{name}_step_ms" in figures:
            cells = (_cell(figures[f"{name}_{key}"], "ms") for key in ("step_ms", "disk_wait_ms"))
            table.add_row(words, *cells, "" if gain is None else _cell(figures[gain], "x"))
        else:
            table.add_row(words, "not measured", "", "")
    return table


def _cluster_table(figures: Figures) -> Table:
    table = _plain_table("", *(f"{mode}, {words}" for mode in CLUSTER_MODES for words in ("hints", "none")), "unit")
    for key, words, unit in CLUSTER:
        cells = (
            _cell(figures[f"{mode}_{name}_{key}"], unit) for mode in CLUSTER_MODES for name in ("hinted", "unhinted")
        )
        table.add_row(words, *cells, unit)
    return table


def _capacity_table(plan: TiersPlan, figures: Figures) -> Table:
    table = _plain_table("parameters", "rows on disk", "samples/s", "relative", "processor, ms", "rows from disk")
    for point in points_of(plan.capacity):
        rates = (("samples_per_s", "samples/s"), ("relative", "x"))
        keys = (*rates, ("processor_ms", "ms"), ("moved_up_per_step", "1/s"))
        cells = (_cell(figures[f"{point.name}_{key}"], unit) for key, unit in keys)
        table.add_row(f"{point.parameters / 1e12:g} T", f"{point.rows:,}", *cells)
    return table


def _plain_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name == "unit" else "right")
    return table


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    match unit:
        case "%":
            return f"{100 * value:.0f}"
        case "x":
            return f"{value:.2f}"
        case "ms":
            return f"{value:.1f}"
        case "MB":
            return f"{value / 1e6:,.0f}"
        case _:
            return f"{value:,.0f}"
