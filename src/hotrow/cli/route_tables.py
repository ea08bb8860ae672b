"""A route plan as tables for a terminal, and as plain data."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from hotrow.routes import RoutePlan
from hotrow.sizes import size_text


def route_table(plan: RoutePlan) -> Table:
    """GB/s of each pair's link, the middleman of a pair without one."""
    table = Table("from \\ to", box=None, pad_edge=False)
    ways = {(each.source, each.target): each for each in plan.routes}
    gpus = range(plan.fabric.gpus)
    for target in gpus:
        table.add_column(str(target), justify="right")
    for source in gpus:
        cells = []
        for target in gpus:
            way = ways.get((source, target))
            if way is not None and way.middleman is not None:
                cells.append(f"via {way.middleman}")
            else:
                rate = plan.fabric.links[source][target]
                cells.append(f"{rate:g}" if rate else "-" if way is None else "host")
        table.add_row(str(source), *cells)
    return table


def phase_table(plan: RoutePlan) -> Table:
    """What each phase copies, and how long."""
    table = Table("phase", box=None, pad_edge=False)
    for title in ("copies", "forwarded", "own", "ms"):
        table.add_column(title, justify="right")
    forwarded = {(each.source, each.target) for each in plan.buffers}
    for number, phase in enumerate(plan.phases, 1):
        sizes = [0, 0]
        for copy in phase.copies:
            sizes[(copy.block.source, copy.block.target) in forwarded] += copy.size
        table.add_row(
            str(number), str(len(phase.copies)), size_text(sizes[1]), size_text(sizes[0]), f"{1e3 * phase.seconds:.3f}"
        )
    return table


def buffer_table(plan: RoutePlan) -> Table:
    """Forward buffers of each GPU."""
    table = Table("GPU", "buffers", "of pairs", box=None, pad_edge=False)
    for gpu, size in enumerate(plan.buffer_bytes):
        pairs = [f"{each.source}-{each.target}" for each in plan.buffers if each.gpu == gpu]
        table.add_row(str(gpu), size_text(size), ", ".join(pairs) or "none")
    return table


def time_lines(plan: RoutePlan, at_once: RoutePlan) -> list[str]:
    """Times of the whole exchange, over the host and in two phases."""
    if not plan.routes:
        return ["a single GPU exchanges nothing"]
    if all(route.kind == "direct" for route in plan.routes):
        return [f"all pairs have a link: one phase, {1e3 * plan.two_phase_s:.3f} ms"]
    lines = [f"two phases: {1e3 * plan.two_phase_s:.3f} ms, {_proof(plan)}"]
    for name, each in (("one after the other", plan), ("all at once", at_once)):
        if each.direct_s is not None and each.saved is not None:
            compared = f"two phases take {100 * abs(each.saved):.1f} % {'less' if each.saved >= 0 else 'more'}"
            lines.append(f"over the host, copies {name}: {1e3 * each.direct_s:.3f} ms; {compared}")
    if plan.direct_s is None:
        lines.append("over the host: not known, give --sockets")
    return lines


def _proof(plan: RoutePlan) -> str:
    if not plan.buffers:
        return "nothing is forwarded"
    return "no other choice of middlemen is faster" if plan.proven else "the fastest choice of middlemen that was found"


def route_document(plan: RoutePlan, at_once: RoutePlan, assumptions: tuple[str, ...]) -> dict[str, Any]:
    """Everything as plain data."""
    return {
        **asdict(plan),
        "two_phase_s": plan.two_phase_s,
        "direct_at_once_s": at_once.direct_s,
        "saved": plan.saved,
        "saved_at_once": at_once.saved,
        "buffer_bytes": plan.buffer_bytes,
        "assumptions": assumptions,
    }
