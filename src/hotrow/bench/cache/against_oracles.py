"""The policies of a cache beside oracles that know the trace, in lookups that find their row cached.

One worker, batches of single steps from an empty cache on, so that an oracle and a cache see the same. Staleness plays
no part: a row that is cached and has to be fetched again counts as found.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from hotrow.bench.cache.cells import cache_of
from hotrow.bench.cache.counting import Window, server_of, table_of, train_batch
from hotrow.bench.cache.oracles import lookups, saved_ahead, saved_by_static
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.skew import fitted_exponent
from hotrow.bench.cache.streams import IdTrace, data_sets, sample_trace, zipf_trace
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.cache.cache import RowCache
from hotrow.store.arrays import Keys


@dataclass(frozen=True, slots=True)
class OracleCell:
    """Lookups that find their row, as a share of all of them."""

    stream: str
    rows: int
    found: dict[str, float]  # by policy
    static: float  # offline LFU: the ids that the whole trace looks up most often
    belady: float  # over the window that policy "ahead" has


def measure(plan: CachePlan, data: Path | None, watch: BenchProgress) -> tuple[Figures, list[OracleCell]]:
    """On the paper's skew, a Zipf law and data sets."""
    job = replace(plan, workers=1, warm=(), steps=plan.oracle_steps)
    laws = {"paper_skew": fitted_exponent(plan.oracle_rows, plan.ids), "zipf_1_05": 1.05}
    traces = [zipf_trace(job, name, plan.oracle_rows, exponent) for name, exponent in laws.items()]
    traces += [sample_trace(job, name, samples, ()) for name, samples in data_sets(data)]
    watch.stage("policies beside oracles", len(traces) * (len(plan.policies) + 2))
    cells = [_cell(plan, trace, watch) for trace in traces]
    return figures_of(cells), cells


def _cell(plan: CachePlan, trace: IdTrace, watch: BenchProgress) -> OracleCell:
    batches = trace.steps[0]
    capacity, every = plan.capacity(trace.rows), lookups(batches)
    found = {}
    for policy in plan.policies:
        found[policy] = _found(plan, trace.rows, policy, batches) / every
        watch.tick()
    static = saved_by_static(batches, capacity) / every
    watch.tick()
    belady = saved_ahead(batches, capacity, plan.window) / every
    watch.tick()
    return OracleCell(trace.name, trace.rows, found, static, belady)


def _found(plan: CachePlan, rows: int, policy: str, batches: list[Keys]) -> int:
    """Lookups of one worker that find their row cached."""
    cache = cache_of(plan, rows, policy, max(plan.staleness))
    with closing(RowCache(table_of(cache), cache)) as mine, closing(server_of(cache)) as server:
        window = Window(mine, batches)
        for turn in range(len(batches)):
            train_batch(mine, server, window, turn)
        counts = mine.counts
        return counts.hits + counts.ahead + counts.invalid


def figures_of(cells: list[OracleCell]) -> Figures:
    """The worst stream of each; `saving_vs_oracle` is of the best policy that knows nothing of the future."""
    blind = [max((share for name, share in cell.found.items() if name != "ahead"), default=0.0) for cell in cells]
    found: Figures = {"saving_vs_oracle": min(share / cell.static for share, cell in zip(blind, cells, strict=True))}
    if all("ahead" in cell.found for cell in cells):
        found["ahead_vs_oracle"] = min(cell.found["ahead"] / cell.static for cell in cells)
        found["ahead_vs_belady"] = min(cell.found["ahead"] / cell.belady for cell in cells)
    return found
