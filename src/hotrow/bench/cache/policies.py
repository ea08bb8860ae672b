"""Miss rate by the size of the cache and by policy (HET, Fig. 8), over the stream with the paper's skew."""

from hotrow.bench.cache.cells import Cell, measure_cell
from hotrow.bench.cache.oracles import lookups
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.skew import presence, weights
from hotrow.bench.cache.streams import IdTrace, paper_trace
from hotrow.bench.curve import Point
from hotrow.bench.rounds import BenchProgress, Figures

IDEAL = "ideal"  # a cache that always holds the most popular ids


def measure(plan: CachePlan, watch: BenchProgress) -> tuple[Figures, list[Cell], list[Point]]:
    """A cell for each size and policy, and the points of the picture, in percent."""
    trace, most = paper_trace(plan, "paper_skew_grid", plan.grid_rows), max(plan.staleness)
    watch.stage("miss rates by size and policy", len(plan.sizes) * len(plan.policies))
    cells = [measure_cell(plan, trace, policy, most, watch, size) for size in plan.sizes for policy in plan.policies]
    points = [
        {"size": 100 * size, IDEAL: 100 * ideal_miss_rate(plan, trace, size)}
        | {cell.policy: 100 * cell.miss_rate for cell in cells if cell.size == size}
        for size in plan.sizes
    ]
    found: Figures = {f"miss_rate_{cell.policy}_{_percent(cell.size)}": cell.miss_rate for cell in cells}
    return found | {"policies_lookups": float(sum(map(lookups, trace.steps)))}, cells, points


def ideal_miss_rate(plan: CachePlan, trace: IdTrace, size: float) -> float:
    """The share of the lookups that are of ids outside of the most popular ones, by the law itself."""
    assert trace.exponent is not None
    updates = presence(weights(trace.rows, trace.exponent), plan.ids)
    return float(updates[plan.capacity(trace.rows, size) :].sum() / updates.sum())


def _percent(size: float) -> str:
    return f"{100 * size:g}pct"
