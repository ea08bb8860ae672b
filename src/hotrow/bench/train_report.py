"""The figures of `hotrow bench train` for people and for files."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.machine import provenance
from hotrow.bench.peers import Adapter, lines_of, versions_of
from hotrow.bench.report import rounded
from hotrow.bench.rounds import Figures
from hotrow.bench.train_plan import TrainPlan

LINES = (
    ("samples_per_s", "ours", "samples/s"),
    ("step_ms", "a step of ours", "ms"),
    ("inline_ms", "ours in line", "ms"),
    ("ahead_ms", "ours with a step of look-ahead", "ms"),
    ("dense_ms", "the network alone", "ms"),
    ("torch_ms", "torch, EmbeddingBag(sparse=True)", "ms"),
    ("{name}_ms", "{title}, exact Adagrad", "ms"),
    ("network_share", "the network's share of a step", "%"),
    ("embedding_share", "outside the network", "%"),
    ("vs_torch", "times torch", "x"),
    ("vs_{name}", "times {title}, exact", "x"),
    ("rowwise_step_ms", "ours, row-wise Adagrad", "ms"),
    ("{name}_rowwise_ms", "{title}, row-wise", "ms"),
    ("byhand_ms", "torch by hand, row-wise", "ms"),
    ("rowwise_vs_best", "times the fastest of these, row-wise", "x"),
)


def document(plan: TrainPlan, figures: Figures, adapters: Sequence[Adapter] = ()) -> dict[str, Any]:
    """Everything worth keeping, flat: the figures, then what they depend on."""
    return {
        **rounded(figures),
        "job": {
            "rows": plan.rows,
            "features": plan.features,
            "numbers": plan.numbers,
            "zipf": plan.zipf,
            "samples": plan.samples,
            "steps": plan.steps,
            "rounds": plan.rounds,
            "threads": plan.threads,
            "dims": list(plan.dims),
            "networks": {name: list(hidden) for name, hidden in plan.networks.items()},
        },
        **provenance("hotrow", versions_of(adapters)),
    }


def summary(plan: TrainPlan, figures: Figures, adapters: Sequence[Adapter] = ()) -> Group:
    """The result as a person reads it."""
    jobs = [f"{name}_d{dim}" for name in plan.networks for dim in plan.dims]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for job in jobs:
        table.add_column(job.replace("_", " "), justify="right")
    table.add_column("unit", style="dim")
    for key, words, unit in lines_of(LINES, adapters):
        table.add_row(words, *(_cell(figures[f"{job}_{key}"], unit) for job in jobs), unit)
    reader, need = figures["reader_rows_per_s"], figures["reader_vs_need"]
    message = f"reader alone: {reader or 0:,.0f} rows/s, {need or 0:.1f} times what the fastest of ours needs"
    return Group(Text(headline(plan), style="bold"), table, Text(message))


def headline(plan: TrainPlan) -> str:
    """The job in one line."""
    return (
        f"DeepFM, {plan.features} features over {plan.rows:,} ids (Zipf {plan.zipf}), batch {plan.samples:,}, "
        f"{plan.threads} threads, {plan.rounds} rounds of {plan.steps} steps"
    )


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    if unit == "%":
        return f"{100 * value:.0f}"
    return f"{value:,.0f}" if unit == "samples/s" else f"{value:.2f}" if unit == "x" else f"{value:.1f}"
