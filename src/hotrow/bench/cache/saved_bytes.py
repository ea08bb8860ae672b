"""Bytes that a cache saves: over traces for every stream and policy, and on real clusters for some cells."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from hotrow.bench.cache import clusters
from hotrow.bench.cache.bound import StepCost
from hotrow.bench.cache.cells import CHECK_BYTES, Cell, cache_of, choices, measure_cell
from hotrow.bench.cache.counting import KEY_BYTES, count_trace, uncached_bytes
from hotrow.bench.cache.plan import FLOAT_BYTES, CachePlan
from hotrow.bench.cache.skew import fitted_exponent
from hotrow.bench.cache.streams import traces, zipf_trace
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.config import Cache
from hotrow.data.source import Source
from hotrow.modes import Hybrid, Sync
from hotrow.optim.sparse import SGD, Adagrad, AnyOptimizer

WARM_SHARE = 10  # without a cache a tenth of the steps is skipped


@dataclass(frozen=True, slots=True)
class WireCell:
    """Bytes of one worker's batch on a cluster, and the same by a trace."""

    optimizer: str  # without a cache none is on the wire: gradients are sent, and no state
    mode: str
    staleness: int | None  # None: without a cache
    wire_bytes: float
    trace_bytes: float


def measure_traces(plan: CachePlan, data: Path | None, watch: BenchProgress) -> tuple[Figures, list[Cell]]:
    """All streams, with every policy."""
    cells: list[Cell] = []
    for trace in traces(plan, data):
        watch.stage(f"bytes of stream {trace.name}", len(list(choices(plan))))
        cells += [measure_cell(plan, trace, policy, staleness, watch) for policy, staleness in choices(plan)]
    return trace_figures(plan, cells), cells


def trace_figures(plan: CachePlan, cells: Sequence[Cell]) -> Figures:
    """Every cell by name, and the best one of the paper's skew with its bound."""
    found: Figures = {}
    for cell in cells:
        name = f"{cell.stream}_{cell.policy}_s{cell.staleness}"
        found[f"bytes_saved_{name}"] = cell.bytes_saved
        found[f"bytes_saved_adagrad_{name}"] = cell.bytes_saved_adagrad
    mine = [cell for cell in cells if cell.stream == "paper_skew"]
    if not mine:
        return found
    best = max(mine, key=lambda cell: cell.bytes_saved)
    return found | {
        "bytes_saved_paper_skew": best.bytes_saved,
        "bytes_saved_paper_skew_adagrad": best.bytes_saved_adagrad,
        "bytes_saved_paper_skew_bound": bound_saving(plan, 0.1),
        "paper_skew_miss_rate": best.miss_rate,
        "paper_skew_left_misses": best.left_misses,
        "paper_skew_left_refreshes": best.left_refreshes,
        "paper_skew_left_checks": best.left_checks,
    }


def bound_saving(plan: CachePlan, outside: float) -> float:
    """Of a cache that always holds the most popular ids, where others are a share `outside` of the lookups.

    Others are fetched and written back, and cached rows are checked: never stale, so nothing else is sent.
    """
    row = FLOAT_BYTES * plan.dim
    fetched = KEY_BYTES + row + 4  # a clock comes with it
    written = 16 + row  # key, clock, and how many updates
    return 1 - (outside * (fetched + written) + (1 - outside) * CHECK_BYTES) / uncached_bytes(1, plan.dim)


def measure_wire(plan: CachePlan, folder: Path, watch: BenchProgress) -> tuple[Figures, list[WireCell]]:
    """Clusters with and without a cache, beside the trace of the same law and as many steps."""
    exponent, job = fitted_exponent(plan.cluster_rows, plan.ids), replace(plan, rounds=1)
    source = clusters.write_samples(job, folder / "wire.parquet", exponent, watch)
    trace = zipf_trace(
        replace(plan, warm=((plan.cluster_warm, 1),), steps=plan.cluster_steps), "wire", plan.cluster_rows, exponent
    )
    cells: list[WireCell] = []
    most = max(plan.staleness)
    watch.stage("bytes on clusters", 5)
    plain = uncached_bytes(round(trace.distinct), plan.dim)
    with closing(clusters.trainer_of(plan, SGD(lr=0.01), None)) as trainer:
        for name, mode in {"hybrid": Hybrid(), "sync look-ahead": Sync(look_ahead=1)}.items():
            cost = clusters.step_cost(job, trainer, mode, source, plan.cluster_warm // WARM_SHARE)
            cells.append(WireCell("any", name, None, cost.nbytes, plain))
            watch.tick()
    cache = cache_of(plan, plan.cluster_rows, plan.epoch_policy, most)
    counts = count_trace(trace, cache, watch)
    for optimizer in (SGD(lr=0.01), Adagrad(lr=0.01)):
        cost = _cached(job, optimizer, cache, source)
        state = plan.dim if isinstance(optimizer, Adagrad) else 0
        expected = counts.bytes_of(plan.dim, state) / counts.batches
        cells.append(WireCell(optimizer.name, "hybrid", most, cost.nbytes, expected))
        watch.tick()
    return wire_figures(cells), cells


def _cached(plan: CachePlan, optimizer: AnyOptimizer, cache: Cache, source: Source) -> StepCost:
    with closing(clusters.trainer_of(plan, optimizer, cache)) as trainer:
        return clusters.step_cost(plan, trainer, Hybrid(), source, plan.cluster_warm)


def wire_figures(cells: Sequence[WireCell]) -> Figures:
    """How far the wire is from the trace, and what the wire saves of Hybrid without a cache."""
    found: Figures = {"wire_vs_trace_worst": max(abs(each.wire_bytes / each.trace_bytes - 1) for each in cells)}
    plain = next(each.wire_bytes for each in cells if each.staleness is None and each.mode == "hybrid")
    cached = [each for each in cells if each.staleness is not None]
    return found | {f"wire_bytes_saved_{each.optimizer}": 1 - each.wire_bytes / plain for each in cached}
