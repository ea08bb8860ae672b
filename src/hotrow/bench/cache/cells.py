"""The cells of a grid: a stream, a policy, a bound of staleness and a size, and what a cache saves there."""

from collections.abc import Iterator
from dataclasses import dataclass

from hotrow.bench.cache.counting import TraceCounts, count_trace, uncached_bytes
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.streams import IdTrace
from hotrow.bench.rounds import BenchProgress
from hotrow.config import Cache

CHECK_BYTES = 12  # key and clock of a cached row


@dataclass(frozen=True, slots=True)
class Cell:
    """Bytes as a share of those of the same batches without a cache."""

    stream: str
    rows: int
    distinct: float  # ids of a batch
    policy: str
    staleness: int
    size: float
    miss_rate: float
    bytes_saved: float  # SGD
    bytes_saved_adagrad: float
    left_misses: float  # bytes that are left with SGD, by their cause: rows that were absent
    left_refreshes: float  # cached rows that were too far ahead or behind
    left_checks: float  # keys and clocks


def cache_of(plan: CachePlan, rows: int, policy: str, staleness: int, size: float | None = None) -> Cache:
    """The settings of a cell's cache."""
    given = {"capacity": plan.capacity(rows, size), "staleness": staleness, "policy": policy}
    return Cache(**given, **({"window": plan.window} if policy == "ahead" else {}))


def choices(plan: CachePlan) -> Iterator[tuple[str, int]]:
    """Every policy at the largest staleness, the paper's at all others."""
    most = max(plan.staleness)
    yield from ((policy, most) for policy in plan.policies)
    yield from (("lfu", staleness) for staleness in plan.staleness if staleness != most)


def measure_cell(
    plan: CachePlan, trace: IdTrace, policy: str, staleness: int, watch: BenchProgress, size: float | None = None
) -> Cell:
    """One cell, counted over a trace."""
    counts = count_trace(trace, cache_of(plan, trace.rows, policy, staleness, size), watch)
    return cell_of(plan, trace, policy, staleness, plan.size if size is None else size, counts)


def cell_of(plan: CachePlan, trace: IdTrace, policy: str, staleness: int, size: float, counts: TraceCounts) -> Cell:
    """What is left of the bytes without a cache, and why."""
    whole = uncached_bytes(counts.ids, plan.dim)
    checks = CHECK_BYTES * (counts.ids - counts.misses) / whole
    left = 1 - counts.saving(plan.dim)
    moved = (counts.misses + counts.evicted) / (counts.fetched + counts.written)
    return Cell(
        stream=trace.name,
        rows=trace.rows,
        distinct=trace.distinct,
        policy=policy,
        staleness=staleness,
        size=size,
        miss_rate=counts.miss_rate,
        bytes_saved=counts.saving(plan.dim),
        bytes_saved_adagrad=counts.saving(plan.dim, plan.dim),
        left_misses=(left - checks) * moved,
        left_refreshes=(left - checks) * (1 - moved),
        left_checks=checks,
    )
