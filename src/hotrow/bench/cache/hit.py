"""Lookups of a cache in which every row is found and valid, beside the same lookups in a table of this process.

In processor time of the thread, so other programs on the machine count less. `decisions` has the share of a whole step.
"""

import time
from collections.abc import Callable
from contextlib import closing

import numpy as np

from hotrow.bench.cache.cells import cache_of
from hotrow.bench.cache.decisions import EXPONENT, NEVER_STALE, reply_to
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.streams import zipf_trace
from hotrow.bench.rounds import BenchProgress, Contestant, Figures, interleave, median_ratio
from hotrow.cache.cache import RowCache
from hotrow.config import Table
from hotrow.optim.sparse import SGD
from hotrow.store import RamTier
from hotrow.store.arrays import Keys


class LocalLookups:
    """A table without a cache."""

    def __init__(self, table: Table) -> None:
        self.tier, self._dim = RamTier(table, threads=1), table.dim

    def run(self, keys: Keys, *, update: bool) -> None:
        out = np.empty((len(keys), self._dim), np.float32)
        plan = self.tier.find_or_init(keys, out)
        if update:
            self.tier.apply(plan, out)


class CacheHitLookups:
    """A cache; the server sends absent rows, and answers that all others are valid."""

    def __init__(self, plan: CachePlan, table: Table, rows: int) -> None:
        settings = cache_of(plan, rows, "lfu", NEVER_STALE, size=1.0)
        self.cache, self._dim = RowCache(table.model_copy(update={"cache": settings}), settings), table.dim

    def run(self, keys: Keys, *, update: bool) -> None:
        batch = self.cache.begin(keys, samples=0)
        self.cache.receive(batch, reply_to(len(batch.request.checked), batch.request.fetched, self._dim))
        out = np.empty((len(keys), self._dim), np.float32)
        self.cache.read(batch, out)
        if update:
            self.cache.apply(batch, out, np.ones(len(keys), np.float32), samples=0)
        self.cache.finish(batch)


def measure(plan: CachePlan, watch: BenchProgress) -> Figures:
    """All in turns, on the same batches; the first pass fills table and cache."""
    batches = zipf_trace(plan, "hits", plan.oracle_rows, EXPONENT).steps[0][: plan.hit_batches]
    rng = np.random.default_rng(plan.seed)
    batches = [rng.permutation(keys) for keys in batches]
    table = Table(dim=plan.dim, optimizer=SGD(lr=1e-6))
    cached, local = CacheHitLookups(plan, table, plan.oracle_rows), LocalLookups(table)
    with closing(cached.cache), closing(local.tier):
        contestants = {
            "local lookup": _pass(lambda keys: local.run(keys, update=False), batches),
            "cached lookup": _pass(lambda keys: cached.run(keys, update=False), batches),
            "local step": _pass(lambda keys: local.run(keys, update=True), batches),
            "cached step": _pass(lambda keys: cached.run(keys, update=True), batches),
        }
        watch.stage("lookups that only hit", plan.hit_rounds)
        seconds = interleave(contestants, plan.hit_rounds, watch, burst=1, warm_up=1)
        misses = cached.cache.counts.misses
    assert misses == len(np.unique(np.concatenate(batches)))  # those of the first pass
    return {
        "hit_rate_vs_local": median_ratio(seconds["local lookup"], seconds["cached lookup"]),
        "hit_step_vs_local": median_ratio(seconds["local step"], seconds["cached step"]),
        **{f"hit_{name.replace(' ', '_')}_us": 1e6 * float(np.median(each)) for name, each in seconds.items()},
        "hit_ids": float(np.mean([len(keys) for keys in batches])),
    }


def _pass(run: Callable[[Keys], None], batches: list[Keys]) -> Contestant:
    """Processor seconds of a batch, over all of them."""

    def contestant(_: int) -> float:
        start = time.thread_time()
        for keys in batches:
            run(keys)
        return (time.thread_time() - start) / len(batches)

    return contestant
