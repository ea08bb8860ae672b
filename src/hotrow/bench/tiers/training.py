"""The DeepFM of `hotrow bench train` on a table in two tiers, or on one in memory alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.network import network
from hotrow.bench.rounds import Contestant
from hotrow.bench.tiers.counted import MeasuredStretch, TierCounts
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.bench.train import FILL, StartedLoader
from hotrow.client.local import LocalTables
from hotrow.config import Table
from hotrow.data.source import Source
from hotrow.errors import InputError
from hotrow.modes import Sync
from hotrow.store.ram import RamTier
from hotrow.store.ssd import INDEX_CACHE, DiskIo, SsdTier
from hotrow.store.tier_plan import plan_tiers
from hotrow.store.tiered import TieredTier
from hotrow.topology.affinity import ThreadBinder
from hotrow.topology.binding import ThreadCounts, plan_binding
from hotrow.topology.sysfs import read_topology
from hotrow.trainer import Trainer

SourceOf = Callable[[int], Source]  # the data of a round


class TierTraining:
    """Our trainer, its table, and what the table did in each stretch."""

    def __init__(
        self, plan: TiersPlan, table: Table, *, io: DiskIo = "auto", binder: ThreadBinder | None = None
    ) -> None:
        self._binder = ThreadBinder() if binder is None else binder
        model, dense = network(plan.train, table.dim, plan.hidden)
        with self._bound():
            self.trainer = Trainer(
                model,
                table,
                optimizer=dense,
                global_batch=plan.samples,
                threads=plan.threads,
                report_every_s=3600,
                mode=Sync(look_ahead=0),
            )
        tables = self.trainer.tables
        assert isinstance(tables, LocalTables)
        self._tables, self.tier = tables, tables.tiers["default"]
        if isinstance(self.tier, TieredTier) and io != "auto":
            use_io(self.tier, io)

    def fill(self, keys: NDArray[np.int64]) -> None:
        """Make rows in this order: the last ones stay in memory."""
        with self._bound():
            make_rows(self.tier, keys)

    def contestant(
        self, plan: TiersPlan, source_of: SourceOf, kept: list[MeasuredStretch] | None = None, *, ahead: bool = True
    ) -> Contestant:
        """Seconds of a step in the stretch of a round, from the moment when its first batch and its rows are there.

        Where rows are loaded ahead, those of the first batch come before the clock starts: its step does not count.
        """
        load_rows = self._tables.start_load if ahead and self._tables.loads_ahead else None

        def contestant(turn: int) -> float:
            started = partial(self._binder.bind, "reader")
            with (
                self._bound(),
                closing(StartedLoader(source_of(turn), plan.samples, load_rows, thread_started=started)) as loader,
            ):
                before, processor, start = self.counts(), time.process_time(), time.perf_counter()
                steps = self._fit(loader) - (load_rows is not None)
                seconds = time.perf_counter() - start
                if kept is not None:
                    kept.append(
                        MeasuredStretch(seconds, steps, self.counts() - before, time.process_time() - processor)
                    )
                return seconds / steps

        return contestant

    def counts(self) -> TierCounts:
        """Since the table was made; zeros without a disk."""
        if not isinstance(self.tier, TieredTier):
            return TierCounts()
        disk, stats = self.tier.disk.stats(), self.tier.stats()
        return TierCounts(
            reads=disk.reads,
            read_bytes=disk.read_bytes,
            write_bytes=disk.write_bytes,
            moved_up=stats.moved_up,
            moved_ahead=stats.moved_ahead,
            wait_s=stats.disk_wait_s,
            buffered=disk.rows_read_buffered,
        )

    def close(self) -> None:
        """Release the table and remove its file."""
        self.trainer.close()

    @contextmanager
    def _bound(self) -> Iterator[None]:
        """As `engine.bind_cores` binds a run, but for a stretch: threads of the store are those of all contestants."""
        self._binder.open()
        self._binder.bind("trainer")
        try:
            yield
        finally:
            self._binder.close()

    def _fit(self, loader: StartedLoader) -> int:
        first = self.trainer.step
        for _ in self.trainer.fit(loader):
            pass
        return self.trainer.step - first


def core_binder(threads: int) -> ThreadBinder | None:
    """Binds the threads of a trainer; None: this system does not tell its cores. On one NUMA node it binds nothing."""
    try:
        topology = read_topology()
    except InputError:
        return None
    return ThreadBinder(plan_binding(topology, ThreadCounts(store=max(1, threads - 1))))


def make_rows(tier: RamTier, keys: NDArray[np.int64]) -> None:
    """In batches that memory has room for."""
    most = min(FILL, tier.ram_rows_max // 4) if isinstance(tier, TieredTier) else FILL
    for start in range(0, len(keys), most):
        tier.find_or_init(keys[start : start + most])


def use_io(tier: TieredTier, io: DiskIo) -> None:
    """Replace the empty file of a table by one that is read through `io`. There is no such setting of a table."""
    old, plan = tier.disk, plan_tiers(tier.table)
    assert len(tier) == 0
    old.close(remove=True)
    tier.disk = SsdTier(
        tier.table,
        old.path,
        dim=tier.dim,
        state_dim=tier.state_dim,
        fields=tier.fields,
        capacity_bytes=plan.disk_bytes,
        threads=tier.threads,
        direct=tier.table.direct_io,
        io=io,
        write_behind=plan.write_behind_bytes,
        index=plan.index,
        index_cache=plan.index_cache_bytes or INDEX_CACHE,
    )
