"""The figures of `hotrow bench simulate` for people and for files."""

from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.machine import provenance
from hotrow.bench.report import rounded
from hotrow.bench.rounds import Figures
from hotrow.bench.simulate_plan import SimulatePlan
from hotrow.modes import MODES


def document(plan: SimulatePlan, figures: Figures) -> dict[str, Any]:
    """Everything worth keeping, flat: the figures, then what they depend on."""
    return {**rounded(figures), "job": {**asdict(plan), "hidden": list(plan.hidden)}, **provenance("hotrow")}


def summary(plan: SimulatePlan, figures: Figures) -> Group:
    """The result as a person reads it."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    for words, key, unit in _lines(plan):
        value = figures[key] or 0.0
        table.add_row(words, f"{value:,.0f}" if value >= 100 else f"{value:.2f}", unit)
    return Group(Text(headline(plan), style="bold"), table)


def headline(plan: SimulatePlan) -> str:
    """The job in one line."""
    return f"seconds of the processor, median of {plan.rounds} rounds"


def _lines(plan: SimulatePlan) -> list[tuple[str, str, str]]:
    training = f"DeepFM, {plan.training:,} workers with {plan.local_batch:,} samples"
    return [
        (f"{plan.many:,} workers, async, {plan.updates:,} updates", "staleness_s", "s"),
        ("the same", "staleness_updates_per_s", "updates/s"),
        *((f"{plan.several:,} workers, {name}", f"{name}_updates_per_s", "updates/s") for name in MODES),
        ("DeepFM, plain loop", "train_plain_samples_per_s", "samples/s"),
        (f"{training}, async", "train_async_samples_per_s", "samples/s"),
        ("beside the plain loop", "train_async_vs_plain", "x"),
        (f"{training}, gba", "train_gba_samples_per_s", "samples/s"),
        ("beside the plain loop", "train_gba_vs_plain", "x"),
    ]
