"""Tables of this process whose rows are used in GPU memory, above the tier in memory or on disk that holds them all.

The tier below stays what checkpoints, exports and reports read: `flush` brings all changes down to it. A lookup pulls
what GPU memory lacks. Rows that a batch uses are not displaced as long as its lookup or its gradients are referred to,
so every gradient finds its row.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotrow.client.aggregate import Average, RowPart, TableGradients
from hotrow.client.base import FeatureVectors
from hotrow.client.device_pooling import pooled_rows
from hotrow.client.gpu_ids import GpuIds, IdsAhead
from hotrow.client.gpu_updates import GpuGradients, GpuUse, combined
from hotrow.client.local import LocalTables
from hotrow.client.local_lookup import LocalLookup
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.errors import ConfigError
from hotrow.staleness import Histogram, Staleness
from hotrow.store import Applied, find_or_first
from hotrow.store.hbm import HbmSpec, HbmTier
from hotrow.store.hbm.batch_working_set import BatchWorkingSet
from hotrow.store.host_tier import HostTier


@dataclass(frozen=True, slots=True, eq=False)
class GpuLookup(LocalLookup):
    """One lookup; plans are of the tables in host memory."""

    used: dict[str, GpuUse] = field(default_factory=dict)  # by table
    pulled: dict[str, Tensor] = field(default_factory=dict)  # versions of the rows, where they are needed


class GpuTables(LocalTables):
    """Tables in the memory of this process, some of which are used in the memory of a GPU."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        rows: Mapping[str, int],
        device: torch.device,
        *,
        threads: int | None = None,
        attach: bool = True,
        **settings: Any,
    ) -> None:
        """`rows`: by table, how many of them fit in GPU memory; `settings` of `HbmSpec` are for tests.

        Where torch has to be deterministic, gradients of duplicates are summed in the same order every time.
        """
        super().__init__(tables, threads=threads, attach=attach)
        self.device = device
        self._lock = threading.RLock()  # workers compute in threads; Triton's interpreter runs in one at a time
        self._ids = IdsAhead(device)
        self._taken: dict[str, int] = {}
        self._in_use: dict[str, weakref.WeakSet[GpuUse]] = {name: weakref.WeakSet() for name in rows}
        self._parked: dict[str, weakref.WeakSet[GpuGradients]] = {name: weakref.WeakSet() for name in rows}  # uncut
        self.working: dict[str, BatchWorkingSet] = {}
        settings = {"deterministic": torch.are_deterministic_algorithms_enabled()} | settings
        try:
            for name, capacity in rows.items():
                host = HostTier(self.tiers[name])
                upper = self._upper(host.spec(capacity, **settings))
                self.working[name] = BatchWorkingSet(upper, host)
        except BaseException:
            self.close()
            raise

    def _upper(self, spec: HbmSpec) -> HbmTier:
        try:
            return HbmTier(spec, self.device)
        except torch.OutOfMemoryError as full:
            raise ConfigError(
                f"tables.{spec.name}.hbm={self.specs[spec.name].hbm!r}: {spec.slots:,} rows find no room on "
                f"{self.device} ({full}): ask for less, or take hbm=0 for host memory"
            ) from None

    @property
    def in_gpu_memory(self) -> tuple[str, ...]:
        """Tables whose rows are used in GPU memory."""
        return tuple(self.working)

    @property
    def loads_ahead(self) -> bool:
        """Ids of read batches go to the GPU."""
        return True

    def start_load(self, batch: Batch) -> Callable[[], None]:
        """Send the ids of a batch that will be looked up soon to the GPU. In any thread.

        Rows come up when the batch before was looked up. Those on disk come with them: the tier below cannot tell which
        of them GPU memory has.
        """
        self._ids.copy_ahead(batch, self.working)
        return super().start_load(self._others(batch))

    def end_reading(self) -> None:
        """Batches that were read and not looked up will not be."""
        self._ids.clear()

    def lookup(self, batch: Batch, *, learn: bool, versions: bool = False, worker: int = 0) -> LocalLookup:
        """Vectors for all ids of a batch; those of tables in GPU memory are there."""
        plain = super().lookup(self._others(batch), learn=learn, versions=versions)
        outputs = {id(output.part): output for output in plain.outputs}
        used, pulled = {}, {}
        with self._lock:
            ids = self._ids.take(batch, self.working, looked_up=learn)
            for table, mine in ids.tables.items():
                if learn:
                    used[table], vectors = self._look_up_here(table, mine)
                    if versions:
                        pulled[table] = self.working[table].upper.counters(used[table].plan, "version")
                else:
                    vectors = self._predicted(table, mine)
                outputs.update({id(each.part): each for each in vectors})
            if learn:
                self._prefetch_next()
        ordered = tuple(outputs[id(part)] for part in batch.parts)
        return GpuLookup(len(batch), ordered, plain.plans, plain.versions, used, pulled)

    def _others(self, batch: Batch) -> Batch:
        """The parts of tables in host memory."""
        return replace(batch, parts=tuple(part for part in batch.parts if part.table not in self.working))

    def _look_up_here(self, table: str, ids: GpuIds) -> tuple[GpuUse, list[FeatureVectors]]:
        working, in_use = self.working[table], self._in_use[table]
        plan = working.look_up(ids.batch(working), samples=self.samples, pinned=[use.plan for use in in_use])
        use = GpuUse(plan, ids.pooling)
        in_use.add(use)
        vectors = ids.pooling.vectors(
            lambda positions, offsets, mode: working.upper.pool(plan, offsets, mode, positions=positions), learn=True
        )
        return use, vectors

    def _prefetch_next(self) -> None:
        """Begin to pull the rows of the batch that was read after this one."""
        following = self._ids.next_batch(self.working)
        for table, ids in {} if following is None else following.tables.items():
            self.working[table].prefetch_batch(ids.batch(self.working[table]))

    def _predicted(self, table: str, ids: GpuIds) -> list[FeatureVectors]:
        """Vectors of rows where they are; none is created, moved or seen."""
        working = self.working[table]
        batch = ids.batch(working)
        plan = working.upper.find(batch)
        missing = plan.absent_keys()
        if not len(missing):
            return ids.pooling.vectors(
                lambda positions, offsets, mode: working.upper.pool(plan, offsets, mode, positions=positions),
                learn=False,
            )
        working.wait_written()
        below = np.empty((len(missing), self.specs[table].dim), np.float32)
        self.absent_ids += find_or_first(self.tiers[table], missing.cpu().numpy().view(np.uint64), below).absent
        assert batch.folded is not None
        known = batch.folded.keys[: int(batch.folded.size)]
        rows = torch.empty(len(known), self.specs[table].dim, device=self.device)
        working.upper.find(known, rows)
        rows[plan.slots[: len(known)] < 0] = torch.from_numpy(below).to(self.device)
        return ids.pooling.vectors(pooled_rows(rows, batch.folded.inverse), learn=False)

    def gradients(self, handle: LocalLookup) -> dict[str, TableGradients]:
        """The gradients that backward left in the outputs, by table."""
        found = super().gradients(handle)
        for table, use in (handle.used if isinstance(handle, GpuLookup) else {}).items():
            assert isinstance(handle, GpuLookup)
            outputs = [output for output in handle.outputs if output.part.table == table]
            with self._lock:
                for parked in self._parked[table]:  # since the last push: it waits for this one
                    parked.cut()
                self._parked[table].clear()
                sums = use.pooling.sums(use.unique, outputs)
                if sums is not None:
                    found[table] = given = GpuGradients(use, sums, handle.pulled.get(table))
                    self._parked[table].add(given)
        return found

    def apply(
        self,
        parts: Sequence[RowPart],
        *,
        step: int,
        samples: int,
        lr_scale: float = 1.0,
        average: Average = "batch",
        late: Staleness | None = None,
        staleness: Histogram | None = None,
    ) -> dict[str, Applied]:
        """Apply the parts of one aggregate, one update per table; returns the result by table."""
        plain = [
            replace(part, rows={table: each for table, each in part.rows.items() if table not in self.working})
            for part in parts
        ]
        times = {"step": step, "samples": samples}
        applied = super().apply(plain, **times, lr_scale=lr_scale, average=average, late=late, staleness=staleness)
        whole = sum(part.samples for part in parts)
        with self._lock:
            for table in dict.fromkeys(table for part in parts for table in part.rows if table in self.working):
                working = self.working[table]
                there = [part for part in parts if table in part.rows]
                update = combined(working.upper, table, there, whole, step, average, late, staleness)
                applied[table] = working.apply_sums(
                    update.plan, update.sums, only=update.only, step=step, samples=samples, lr_scale=lr_scale
                )
        return applied

    def settle(self) -> None:
        """Bring all changes down, so that they are counted with what changed them."""
        super().settle()
        self.flush()

    def flush(self) -> None:
        """Bring all changes down to the tiers."""
        with self._lock:
            for working in self.working.values():
                working.flush()

    def release_rows(self) -> None:
        """Hold no row in GPU memory: the tiers are about to get others."""
        with self._lock:
            for working in self.working.values():
                working.empty()

    def take_counts(self) -> dict[str, int]:
        """What was counted since the last call, by name and table ("gpu_up.user")."""
        with self._lock:
            now: dict[str, int] = {}
            for table, working in self.working.items():
                moved = working.moved
                counts = {
                    "rows": len(working.upper),
                    "capacity": working.upper.spec.slots,
                    "hits": working.looked_up - moved.up,
                    "up": moved.up,
                    "up_ahead": moved.up_ahead,
                    "down": moved.down,
                    "reread": moved.reread,
                }
                now |= {f"gpu_{name}.{table}": count for name, count in counts.items()}
        taken, self._taken = self._taken, now
        return {name: count - taken.get(name, 0) for name, count in now.items()}

    def close(self, *, leave: bool = False) -> None:
        """Release all rows, those in GPU memory too."""
        with ExitStack() as stack:  # an error of one close does not keep the others open
            stack.callback(super().close, leave=leave)
            for working in self.working.values():
                stack.callback(working.end)
            self.working = {}
