"""The figures of `hotrow bench checkpoint` for people and for files."""

from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.checkpoint_plan import CheckpointPlan
from hotrow.bench.machine import provenance
from hotrow.bench.report import rounded
from hotrow.bench.rounds import Figures

TABLES = ("plain", "lru")
COLD = 0.5  # share of the bytes that came from the disk, from which on a read counts as cold
LINES = (
    ("bytes", "a full checkpoint", "MB"),
    ("save_s", "save", "s"),
    ("raw_write_s", "raw write and fsync", "s"),
    ("save_vs_raw", "save / raw write", "x"),
    ("load_s", "load into an empty table", "s"),
    ("raw_read_s", "raw read", "s"),
    ("load_vs_raw", "load / raw read", "x"),
    ("load_processor_s", "processor time of a load", "s"),
    ("load_system_s", "of that, in the system: reads and new memory", "s"),
    ("pause_s", "training stops for the cut", "ms"),
    ("pause_share", "training loses during a background save", "%"),
    ("pause_share_processor", "of that, processor time of training", "%"),
    ("steps_during_save", "steps during a background save", ""),
    ("copied_bytes", "rows held in an old form, at most", "MB"),
    ("delta_share", "bytes of a delta / of a full one", "%"),
    ("delta_s", "save of a delta", "s"),
)


def document(plan: CheckpointPlan, figures: Figures) -> dict[str, Any]:
    """Everything worth keeping, flat: the figures, then what they depend on."""
    return {**rounded(figures), "cold": cold(figures), "job": asdict(plan), **provenance("hotrow")}


def summary(plan: CheckpointPlan, figures: Figures) -> Group:
    """The result as a person reads it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in TABLES:
        table.add_column("no limit" if name == "plain" else "LRU, full", justify="right")
    table.add_column("unit", style="dim")
    for key, words, unit in LINES:
        table.add_row(words, *(_cell(figures[f"{name}_{key}"] or 0.0, unit) for name in TABLES), unit)
    state = "not in memory before" if cold(figures) else "in memory before: the system did not drop them"
    return Group(Text(headline(plan), style="bold"), table, Text(f"files that are read were {state}"))


def cold(figures: Figures) -> bool:
    """Whether reads came from the disk."""
    return all((figures[f"{name}_read_from_disk"] or 0.0) >= COLD for name in TABLES)


def headline(plan: CheckpointPlan) -> str:
    """The job in one line."""
    return (
        f"{plan.rows:,} rows, dim {plan.dim}, Adagrad, {plan.threads} thread(s), batch {plan.samples:,}, "
        f"median of {plan.rounds} rounds"
    )


def _cell(value: float, unit: str) -> str:
    match unit:
        case "MB":
            return f"{value / 1e6:,.1f}"
        case "%":
            return f"{100 * value:.1f}"
        case "ms":
            return f"{1e3 * value:.2f}"
        case "":
            return f"{value:.0f}"
        case _:
            return f"{value:.2f}"
