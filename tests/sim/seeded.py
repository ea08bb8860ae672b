"""Clusters that are drawn from a seed: speeds, network, faults, rests, and switches of the mode."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Apply, Effect, Event, Grant, RunFacts
from hotrow.server.step_window import early_rows
from hotrow.sim import (
    BatchBytes,
    Checkers,
    ClusterConfig,
    CountingWork,
    LogNormal,
    Network,
    NormalRate,
    SimCluster,
    SimLease,
    SimResult,
    Speeds,
    Stragglers,
    Trace,
    drawn_faults,
)
from hotrow.sim.pace import chance_of
from hotrow.staleness import Cutoff, Staleness

AHEAD = ("sync", "k_step")  # modes with look-ahead
GROUPS = {"hybrid": {"dense", "embedding"}, "k_step": {"embedding"}}  # that a batch is applied in; others: both
NAMES = (
    "sync",
    "async",
    "bulk_sync",
    "bounded_staleness",
    "backup_workers",
    "gba",
    "hybrid",
    "k_step",
    "sync_ahead",
    "k_step_ahead",
)
LOCAL_BATCH = 8
UNTIL_S = 20.0  # faults begin before; a batch takes about a second


class StrictWork(CountingWork):
    """Holds the cluster to what a work may count on: pulled, then computed, then applied or discarded, each once.

    It has a ledger of rows: how often each was written, and how often it had been when a batch read it. In modes
    without staleness a batch computes with the rows as they are, whether they were read early or not.
    """

    def __init__(self) -> None:
        super().__init__(dense_bytes=40, row_bytes_per_sample=2)
        self.pulled: set[int] = set()
        self.early_reads = self.late_reads = 0  # of rows, in look-ahead
        self._writes: Counter[int] = Counter()  # by key
        self._read: dict[int, dict[int, int]] = {}  # by grant, key -> writes that it had when it was read
        self._keys: dict[int, NDArray[np.int64]] = {}  # by grant
        self._exact = False
        self.to_apply: dict[int, set[str]] = {}  # computed -> groups in which it was not applied yet
        self.samples = 0
        self._rows_ahead: dict[int, int] = {}  # by grant whose rows alone are applied, its samples
        self._groups = {"both"}

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        self._groups = GROUPS.get(mode.name, {"both"})
        self._exact = mode.name in AHEAD

    def cut(self, time_s: float) -> None:
        """Batches whose rows alone are applied are trained again."""
        self.samples -= sum(self._rows_ahead.values())

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """What matters comes by the other calls."""

    def pull_early(self, grant: Grant, lease: SimLease, in_hand: Sequence[SimLease]) -> int:
        assert grant.grant not in self.pulled
        keys = keys_of(lease)
        early = keys[early_rows(keys, [keys_of(each) for each in in_hand])]
        self._read[grant.grant] = {key: self._writes[key] for key in early.tolist()}
        self.early_reads += len(early)
        return len(early)

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        assert grant.grant not in self.pulled
        self.pulled.add(grant.grant)
        self._keys[grant.grant] = keys_of(lease)
        early = self._read.pop(grant.grant) if rest else {}
        now = {key: self._writes[key] for key in self._keys[grant.grant].tolist() if key not in early}
        self._read[grant.grant] = early | now
        self.late_reads += len(now) if rest else 0
        return super().pull(grant, lease)

    def compute(self, grant: Grant) -> None:
        self.pulled.remove(grant.grant)
        for key, writes in self._read.pop(grant.grant).items():
            assert not self._exact or writes == self._writes[key], f"grant {grant.grant} computes with an old row {key}"
        self.to_apply[grant.grant] = set(self._groups)

    def apply(self, effect: Apply, samples: int) -> None:
        if effect.group == "dense" and self._groups == {"embedding"}:
            return  # a merge
        for part in effect.parts:
            if effect.group != "dense":
                self._writes.update(self._keys.pop(part.grant).tolist())
            self.to_apply[part.grant].remove(effect.group)
            if effect.group != "dense":
                self._rows_ahead[part.grant] = part.samples
            if not self.to_apply[part.grant]:
                del self.to_apply[part.grant], self._rows_ahead[part.grant]
        self.samples += 0 if effect.group == "dense" else effect.samples
        assert samples == self.samples

    def discard(self, grant: int) -> None:
        self.pulled.discard(grant)
        self._read.pop(grant, None)
        self._keys.pop(grant, None)
        self.to_apply.pop(grant, None)
        self._rows_ahead.pop(grant, None)

    def end(self) -> None:
        """Nothing is kept."""
        assert not self.pulled
        assert not self.to_apply


def keys_of(lease: SimLease) -> NDArray[np.int64]:
    """A few keys, skewed, so that batches share some: the same for a lease that comes again."""
    return np.unique(np.random.default_rng(lease.number).zipf(1.3, 6) % 40)


@dataclass(frozen=True, slots=True)
class Draw:
    """Whole numbers from a seed, each by its name."""

    seed: int

    def whole(self, name: int, low: int, high: int) -> int:
        return low + int(chance_of(self.seed, 77, name) * (high + 1 - low))

    def chance(self, name: int) -> float:
        return chance_of(self.seed, 78, name)


def mode_of_seed(name: str, draw: Draw, workers: int) -> Mode:
    """A mode with drawn parameters; the small ones matter most."""
    small = draw.whole(1, 0, 3)
    late = Staleness(decay=Cutoff(tolerance=2 * small)) if draw.chance(2) < 0.5 else None
    modes: dict[str, Mode] = {
        "sync": Sync(),
        "sync_ahead": Sync(look_ahead=1),
        "async": Async(staleness=late),
        "bulk_sync": BulkSync(bulk=small + 1, staleness=late),
        "bounded_staleness": BoundedStaleness(bound=small, staleness=late),
        "backup_workers": BackupWorkers(backups=min(small, workers - 1)),
        "gba": GBA(tolerance=small),
        "hybrid": Hybrid(max_in_flight=small + 1, scale="global" if draw.chance(3) < 0.5 else "local"),
        "k_step": KStep(k=small + 1, warmup=draw.whole(4, 0, 100)),
        "k_step_ahead": KStep(k=small + 1, warmup=draw.whole(4, 0, 100), look_ahead=1),
    }
    return modes[name]


def cluster_of_seed(draw: Draw) -> ClusterConfig:
    """A few uneven workers on a slow network, with some of every fault."""
    workers = draw.whole(10, 2, 8)
    return ClusterConfig(
        workers=workers,
        local_batch=LOCAL_BATCH,
        global_batch=LOCAL_BATCH * draw.whole(11, 1, 10),
        speeds=Speeds(
            batch_s=1.0,
            sample_s=0.0,
            machines=NormalRate(spread=0.2),
            batches=LogNormal(sigma=0.3),
            stragglers=(Stragglers(share=0.2, factor=4.0, every_s=7.0),),
        ),
        network=Network(latency_s=0.02, bandwidth=2000, reduce_latency_s=0.05),
        faults=drawn_faults(draw.seed, workers, UNTIL_S),
    )


def run_seed(
    names: tuple[str, ...], seed: int, trace: Trace, leases: int = 120, work: StrictWork | None = None
) -> SimResult:
    """The modes one after the other in one run, with rests in between; every checker looks on."""
    draw, checkers, work = Draw(seed), Checkers(), StrictWork() if work is None else work
    samples = leases * LOCAL_BATCH - seed % LOCAL_BATCH  # the last batch is often a small one
    config = cluster_of_seed(draw)
    cluster = SimCluster(
        mode_of_seed(names[0], draw, config.workers),
        config,
        data=samples,
        work=work,
        seed=seed,
        watchers=[work, trace, checkers],
    )
    for place, name in enumerate(names[1:], start=1):
        workers = draw.whole(20 + place, 2, 8)
        later = mode_of_seed(name, Draw(seed + 1000 * place), workers)
        cluster.switch(later, workers=workers, at_s=UNTIL_S * place / len(names))
    if draw.chance(12) < 0.4:
        cluster.rest(at_s=UNTIL_S * (0.3 + draw.chance(13)) + (UNTIL_S if len(names) > 1 else 0))
    result = cluster.run()
    checkers.end(samples)
    work.end()
    assert result.finished, "the run stopped and data are left"
    return result
