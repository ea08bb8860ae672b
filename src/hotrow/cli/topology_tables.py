"""A host and its binding plan as tables for a terminal, and as plain data."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from hotrow.cli.screen import cell
from hotrow.sizes import size_text
from hotrow.topology.affinity import Rehearsed
from hotrow.topology.binding import BindingPlan
from hotrow.topology.machine import NumaNode, Topology, cpus_text


def topology_table(found: Topology) -> Table:
    """What a host is made of, node by node."""
    table = Table(box=None, pad_edge=False, show_header=False)
    smt = max((len(core.cpus) for core in found.cores), default=1)
    each = "1 processor each" if smt == 1 else f"up to {smt} processors each (SMT)"
    table.add_row("sockets", str(found.sockets))
    table.add_row("cores", f"{len(found.cores)}, {each}; this process may use processors {cpus_text(found.allowed)}")
    for cache in found.caches:
        size, kib = cache.size_bytes, cache.size_bytes >> 10
        what = f"{cache.instances} of {f'{size >> 20} MiB' if kib >= 1024 else f'{kib} KiB'}"
        what += f", each of {cache.shared_by} processors" if cache.shared_by > 1 else ""
        table.add_row(f"cache L{cache.level} {cache.kind.lower()}", what)
    for node in found.nodes:
        table.add_row(f"node {node.number}", cell(_node(found, node)))
    for device in found.devices:
        if device.node is None:
            table.add_row(cell(f"{device.kind} {device.name}"), cell(f"{device.detail}, of no known node"))
    return table


def _node(found: Topology, node: NumaNode) -> str:
    cores = sum(core.node == node.number for core in found.cores)
    memory = size_text(node.memory_bytes) if node.memory_bytes else "memory unknown"
    parts = [f"{cores} cores, processors {cpus_text(node.cpus) or 'none'}", memory]
    parts += [f"{each.kind} {each.name} ({each.detail})" for each in found.devices if each.node == node.number]
    return "; ".join(parts)


def binding_table(plan: BindingPlan, tried: Sequence[Rehearsed] | None) -> Table:
    """Which thread is bound where, and why; with what the system made of it."""
    table = Table("thread", "node", "processors", "reason", box=None, pad_edge=False)
    if tried is not None:
        table.add_column("tried")
    for place, each in enumerate(plan.bindings):
        cells = [each.name, str(each.node), cpus_text(each.cpus), each.reason]
        if tried is not None:
            done = tried[place]
            cells.append("bound" if done.bound else f"refused: {done.error or cpus_text(done.found)}")
        table.add_row(*map(cell, cells))
    return table


def topology_document(
    found: Topology, plan: BindingPlan, tried: Sequence[Rehearsed] | None, refusal: str | None
) -> dict[str, Any]:
    """Everything as plain data."""
    document: dict[str, Any] = {"topology": asdict(found), "plan": asdict(plan)}
    if tried is not None:
        document["applied"] = [{"thread": each.binding.name, "bound": each.bound, "cpus": each.found} for each in tried]
        document["interleave_refused"] = refusal
    return document
