"""A capacity plan as tables for a terminal, and as plain data."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from hotrow.cli.formatting import several
from hotrow.cli.screen import cell
from hotrow.plan.capacity import CapacityPlan
from hotrow.plan.parameters import ParameterPlan
from hotrow.plan.speed import TITLES
from hotrow.sizes import size_text


def capacity_tables(plan: CapacityPlan) -> Iterator[Table]:
    """Rows and bytes of the tables, then of shards and hosts with network and speed."""
    yield _tables(plan)
    yield _totals(plan)


def _tables(plan: CapacityPlan) -> Table:
    table = _table(
        "table", "ids", "at most", "rows in RAM", "rows on disk", "bytes a row", "RAM", "disk", "ids a batch"
    )
    for each in plan.tables:
        layout = each.table.layout
        table.add_row(
            cell(each.table.name),
            f"{each.distinct:,.0f}",
            f"{each.distinct_most:,.0f}",
            f"{each.ram_rows:,.0f}",
            f"{each.disk_rows:,.0f}",
            f"{layout.ram_bytes}" + (f" / {layout.disk_bytes}" if each.disk_rows else ""),
            size_text(each.ram_bytes),
            size_text(each.disk_bytes),
            f"{each.unique_per_batch:,.0f}",
        )
    return table


def _totals(plan: CapacityPlan) -> Table:
    shape, traffic, seconds = plan.shape, plan.traffic, plan.seconds
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("all tables", f"{size_text(plan.ram_bytes)} RAM, {size_text(plan.disk_bytes)} disk")
    table.add_row(f"of {several(shape.shards, 'shard')}, each", _parts(plan, shape.shards))
    table.add_row(f"of {several(plan.used_hosts, 'host')}, each", _parts(plan, plan.used_hosts))
    table.add_row(
        "network of a batch",
        f"{size_text(round(traffic.total))} of a trainer: ids {size_text(round(traffic.lookup_out))}, rows "
        f"{size_text(round(traffic.lookup_in))}, gradients {size_text(round(traffic.push_out))}, dense "
        f"{size_text(round(traffic.dense_out + traffic.dense_in))}",
    )
    table.add_row(
        "network of a step", f"{size_text(round(plan.step_bytes))}: {shape.parts:,} batches of {shape.local_batch:,}"
    )
    parts = (("computes", seconds.compute), ("network", seconds.rows), ("disk", seconds.disk), ("dense", seconds.dense))
    table.add_row(
        f"a batch of {shape.local_batch:,}", ", ".join(f"{name} {1000 * value:.3g} ms" for name, value in parts)
    )
    rates = ", ".join(f"{TITLES[name]} {rate:,.0f}" for name, rate in plan.choice.samples_per_s.items())
    table.add_row("samples/s", f"{rates}; one trainer {plan.trainer_samples_per_s:,.0f}")
    table.add_row("mode", cell(plan.choice.reason))
    return table


def _parts(plan: CapacityPlan, number: int) -> str:
    return f"{size_text(round(plan.ram_bytes / number))} RAM, {size_text(round(plan.disk_bytes / number))} disk"


def parameter_tables(plan: ParameterPlan) -> Iterator[Table]:
    """The arithmetic, line by line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for line in plan.lines:
        table.add_row(cell(line.name), cell(line.value), cell(f"= {line.how}"))
    yield table
    others = _table("in RAM alone, with", "bytes a row", "RAM", "hosts")
    for each in plan.variants:
        kind = f"{each.type}, {each.optimizer}"
        others.add_row(kind, f"{each.bytes_per_row:.1f}", size_text(each.ram_bytes), f"{each.hosts:,}")
    yield others


def capacity_document(plan: CapacityPlan) -> dict[str, Any]:
    """Everything as plain data."""
    return {
        **asdict(plan),
        "ram_bytes": plan.ram_bytes,
        "disk_bytes": plan.disk_bytes,
        "used_hosts": plan.used_hosts,
        "step_bytes": plan.step_bytes,
    }


def parameter_document(plan: ParameterPlan) -> dict[str, Any]:
    """Everything as plain data."""
    return asdict(plan)


def _table(*names: str) -> Table:
    """Names on the left, figures on the right."""
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    return table
