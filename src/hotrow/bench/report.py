"""What a run leaves behind: a table to read and a JSON file to keep."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hotrow.bench.curve import Point
from hotrow.bench.machine import provenance
from hotrow.bench.peers import Adapter, lines_of, versions_of
from hotrow.bench.plan import CURVE_DIM, StorePlan
from hotrow.bench.rounds import Figures

# (key behind the dim, words, unit); an empty key draws a line, {name} stands for every peer.
LINES = (
    ("step_mids", "Hotrow, Adagrad step", "M ids/s"),
    ("torch_mids", "torch, Adagrad step", "M ids/s"),
    ("{name}_mids", "{title}, Adagrad step", "M ids/s"),
    ("step_vs_torch", "Hotrow / torch", "x"),
    ("step_vs_{name}", "Hotrow / {title}", "x"),
    ("", "", ""),
    ("rowwise_mids", "Hotrow, row-wise Adagrad step", "M ids/s"),
    ("{name}_rowwise_mids", "{title}, row-wise Adagrad step", "M ids/s"),
    ("rowwise_vs_{name}", "Hotrow / {title}", "x"),
    ("", "", ""),
    ("find_mids", "Hotrow, find", "M ids/s"),
    ("unique_mids", "Hotrow, unique on one thread", "M ids/s"),
    ("", "", ""),
    ("random_read_mrows", "machine: random row reads", "M rows/s"),
    ("copy_gbps", "machine: copy, read + written", "GB/s"),
    ("limit_mids", "machine: step at these limits", "M ids/s"),
    ("limit_share", "Hotrow's share of that", "%"),
    ("", "", ""),
    ("bytes_per_row_overhead", "memory beyond value and state", "bytes/row"),
    ("bytes_per_row_overhead_lru", "the same of a full LRU table", "bytes/row"),
    ("worst_growth_ms", "worst stall while growing", "ms"),
    ("worst_idle_stall_ms", "same loop without growth", "ms"),
    ("worst_touch_stall_ms", "touching that much new memory", "ms"),
    ("huge_share", "in 2 MB pages: Hotrow", "%"),
    ("torch_huge_share", "in 2 MB pages: torch", "%"),
    ("{name}_huge_share", "in 2 MB pages: {title}", "%"),
    ("", "", ""),
    ("evict_step_vs_plain", "step: full LRU table / no limit", "x"),
    ("evicted_per_batch", "distinct ids that evict there", "%"),
    ("shm_vs_anon", "step: shared memory / own memory", "x"),
    ("bf16_vs_fp32", "step: bfloat16 / float32", "x"),
    ("attach_mrows", "attach to a segment, one thread", "M rows/s"),
    ("attach_open_ms", "opening its file before that", "ms"),
)


def document(
    plan: StorePlan, figures: Figures, curve: list[Point] | None, adapters: Sequence[Adapter] = ()
) -> dict[str, Any]:
    """Everything worth keeping, flat: the figures, then what they depend on."""
    reads = {str(4 * dim): figures[f"d{dim}_random_read_mrows"] for dim in plan.dims}
    return {
        **rounded(figures),
        "limits": {"copy_gbps": rounded(figures)["copy_gbps"], "random_read_mrows_by_row_bytes": rounded(reads)},
        "curve": None if curve is None else [rounded(point) for point in curve],
        "job": {
            "rows": plan.rows,
            "ids": plan.ids,
            "exponent": plan.exponent,
            "threads": plan.threads,
            "rounds": plan.rounds,
            "dims": list(plan.dims),
        },
        **provenance("hotrow", versions_of(adapters)),
    }


def rounded(figures: Mapping[str, float | None]) -> Figures:
    """Digits that mean something."""
    return {key: None if value is None else round(value, 4) for key, value in figures.items()}


def write_json(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, indent=2) + "\n")


def summary(plan: StorePlan, figures: Figures, curve: list[Point] | None, adapters: Sequence[Adapter] = ()) -> Group:
    """The result as a person reads it."""
    parts: list[Text | Table] = [Text(headline(plan), style="bold"), _figures_table(plan, figures, adapters)]
    if curve is not None:
        parts.append(_curve_table(curve))
    return Group(*parts)


def headline(plan: StorePlan) -> str:
    """The job in one line."""
    return (
        f"{plan.ids:,} ids per batch, Zipf {plan.exponent} over {plan.rows:,} rows, "
        f"{plan.threads} threads, {plan.rounds} rounds"
    )


def curve_headline(plan: StorePlan) -> str:
    """The job of the curve in one line."""
    return (
        f"Adagrad at dim {CURVE_DIM}, {plan.ids:,} ids per batch, Zipf {plan.exponent}, {plan.threads} threads; "
        f"band: middle half of {plan.rounds} rounds"
    )


def _figures_table(plan: StorePlan, figures: Figures, adapters: Sequence[Adapter]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for dim in plan.dims:
        table.add_column(f"dim {dim}", justify="right")
    table.add_column("unit", style="dim")
    for key, words, unit in lines_of(LINES, adapters):
        cells = [_cell(figures[f"d{dim}_{key}"], unit) for dim in plan.dims] if key else ["" for _ in plan.dims]
        table.add_row(words, *cells, unit)
    return table


def _curve_table(curve: list[Point]) -> Table:
    table = Table(
        "rows", "step", "find", "step at limits", "random reads", box=None, pad_edge=False, header_style="bold"
    )
    for column in table.columns:
        column.justify = "right"
    for point in curve:
        rates = (point[key] for key in ("step_mids", "find_mids", "limit_mids", "random_read_mrows"))
        table.add_row(f"{point['rows']:,.0f}", *(f"{rate:.1f}" for rate in rates))
    table.title = f"M ids/s by table size, dim {CURVE_DIM}"
    table.title_justify = "left"
    return table


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    if unit == "%":
        return f"{100 * value:.0f}"
    return f"{value:.2f}" if unit == "x" else f"{value:.1f}"
