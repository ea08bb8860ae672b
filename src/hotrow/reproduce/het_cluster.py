"""The cluster of HET's Fig. 7 and 9 in virtual time: real keys through production caches, and no gradients.

Keys follow Zipf's law with the exponent at which the first tenth of the ids takes 90 % of the draws. The paper's Fig. 3
says it of updates, of which a batch makes one for each distinct id: a law fitted to updates is steeper. A batch has 128
samples of 39 ids, a row 128 floats, and the dense part is that of WDL (Tables 3 and 4).
The paper's table has 33.76 million rows; here it is smaller, so that caches of a tenth of it fill within the warm-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hotrow.config import Cache, Table
from hotrow.modes import Hybrid, Mode, Sync
from hotrow.modes.base import Grant
from hotrow.optim.sparse import SGD
from hotrow.sim import BatchBytes, ClusterConfig, Network, SimCluster, SimLease, Speeds
from hotrow.sim.keyed import CachedKeyedWork, KeyedWork
from hotrow.store.arrays import Keys

DIM, SAMPLES, FEATURES, DENSE_BYTES = 128, 128, 39, 4 * 137_980
COMPUTE_S = 5e-3  # of a batch: stated, not measured
LATENCY_S = 1e-4
GIGABIT = 125_000_000  # bytes per second
HEAD, HEAD_SHARE = 0.1, 0.9  # a tenth of the ids takes so much of the draws
IN_FLIGHT = 4

Variant = Literal["hybrid", "s=0", "s=10", "s=100", "ar", "sync"]
TITLES: dict[Variant, str] = {
    "hybrid": "Hybrid, no cache",
    "s=0": "Hybrid, cache s = 0",
    "s=10": "Hybrid, cache s = 10",
    "s=100": "Hybrid, cache s = 100",
    "ar": "replicas, all-gather (HET AR)",
    "sync": "Sync, look-ahead, no cache",
}


@dataclass(frozen=True, slots=True)
class HetSize:
    """How much is simulated."""

    ids: int = 20_000
    warm_up: int = 20  # batches of each worker, not measured
    measured: int = 40


@dataclass(frozen=True, slots=True)
class HetSpeed:
    """Figures of one variant, after the warm-up."""

    qps: float
    row_bytes: float  # of a batch, all messages about rows
    hits: float | None  # of the distinct ids of a batch


class ReplicatedWork(KeyedWork):
    """All rows on every worker; the gradients of a step are all-gathered in a ring.

    A ring of N workers passes on N - 1 times the gradients of one worker, where an all-reduce passes on 2 (N - 1) times
    an Nth of its bytes: so the rows of a batch of S bytes cost as much as N S / 2 bytes of dense gradients.
    """

    def __init__(self, seed: int, size: HetSize, workers: int) -> None:
        super().__init__(lambda lease: keys_of(lease, seed, size.ids), DIM, DENSE_BYTES)
        self._workers, self.gathered = workers, 0

    def pull_early(self, grant: Grant, lease: SimLease, in_hand: Sequence[SimLease]) -> int:
        return 0

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        rows = super().pull(grant, lease).bytes_up_rows
        self.gathered += rows * (self._workers - 1)
        return BatchBytes(0, DENSE_BYTES + rows * self._workers // 2, 0, lease.samples)


class CountedWork(CachedKeyedWork):
    """Counts hits when a reply is back: until then a cache takes a row for valid that may turn out not to be."""

    hits = distinct = 0

    def receive(self, grant: int) -> None:
        cache, batch = self.caches.batch(grant, "default")
        invalid = cache.counts.invalid
        super().receive(grant)
        self.hits += len(batch.request.checked) - (cache.counts.invalid - invalid)
        self.distinct += len(batch.keys)


@lru_cache(maxsize=4)
def exponent(ids: int) -> float:
    """Of Zipf's law, so that the head takes its share of the draws."""
    ranks = np.arange(1, ids + 1, dtype=np.float64)
    low, high = 0.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        weights = ranks**-middle
        below = weights[: round(HEAD * ids)].sum() < HEAD_SHARE * weights.sum()
        low, high = (middle, high) if below else (low, middle)
    return high


@lru_cache(maxsize=4)
def _cumulated(ids: int) -> NDArray[np.float64]:
    whole = np.cumsum(np.arange(1, ids + 1, dtype=np.float64) ** -exponent(ids))
    shares: NDArray[np.float64] = whole / whole[-1]
    return shares


def keys_of(lease: SimLease, seed: int, ids: int) -> Keys:
    """The distinct ids of a batch."""
    drawn = np.random.default_rng([seed, lease.number]).random(lease.samples * FEATURES)
    return np.unique(np.searchsorted(_cumulated(ids), drawn)).astype(np.uint64)


def network(gigabits: int, servers: int) -> Network:
    """Every machine has one link of this speed."""
    link = gigabits * GIGABIT
    return Network(
        latency_s=LATENCY_S,
        bandwidth=servers * link,
        worker_bandwidth=link,
        reduce_latency_s=LATENCY_S,
        reduce_bandwidth=link,
    )


def speed_of(variant: Variant, workers: int, gigabits: int, servers: int, size: HetSize, seed: int) -> HetSpeed:
    """One variant on one cluster, after a warm-up."""
    config = ClusterConfig(
        workers=workers,
        local_batch=SAMPLES,
        speeds=Speeds(batch_s=COMPUTE_S, sample_s=0.0),
        network=network(gigabits, servers),
    )
    work = _work(variant, workers, size, seed)
    mode: Mode = Sync(look_ahead=1) if variant in ("sync", "ar") else Hybrid(max_in_flight=IN_FLIGHT)
    total = workers * SAMPLES * (size.warm_up + size.measured)
    watchers = (work,) if isinstance(work, CachedKeyedWork) else ()
    cluster = SimCluster(mode, config, data=total, work=work, watchers=watchers, seed=seed)
    try:
        before = cluster.run(until_samples=workers * SAMPLES * size.warm_up)
        gathered = work.gathered if isinstance(work, ReplicatedWork) else 0
        counted = (work.hits, work.distinct) if isinstance(work, CountedWork) else (0, 0)
        after = cluster.run(until_samples=total)
    finally:
        if isinstance(work, CachedKeyedWork):
            work.close()
    samples = after.samples_applied - before.samples_applied
    sent = after.row_bytes - before.row_bytes
    if isinstance(work, ReplicatedWork):
        sent = work.gathered - gathered
    hits = None
    if isinstance(work, CountedWork):
        hits = (work.hits - counted[0]) / (work.distinct - counted[1])
    return HetSpeed(samples / (after.seconds - before.seconds), sent * SAMPLES / samples, hits)


def _work(variant: Variant, workers: int, size: HetSize, seed: int) -> KeyedWork:
    if variant == "ar":
        return ReplicatedWork(seed, size, workers)
    if not variant.startswith("s="):
        return KeyedWork(lambda lease: keys_of(lease, seed, size.ids), DIM, DENSE_BYTES)
    cache = Cache(capacity=max(1, size.ids // 10), staleness=int(variant.removeprefix("s=")), policy="lfu")
    table = Table(dim=DIM, optimizer=SGD(lr=0.01), cache=cache)
    return CountedWork(lambda lease: keys_of(lease, seed, size.ids), table, DENSE_BYTES)
