"""Tiers together: the rows of a large batch are pulled into GPU memory once, mini-batches train there.

Algorithm 1 of the hierarchical parameter server (docs/gpu.md): `begin` pulls the rows that the batch needs and GPU
memory lacks from the tier below, with all their fields; `find` and `apply` serve its mini-batches; displaced rows
that have changed go down, and `flush` brings everything down that has changed. `prefetch` reads the rows of the next
batch while this one trains.

One thread makes all calls to the tier below, in their order, and the copies on a side stream. So a displaced row is
written before it is read again; where the write fails, the row is kept and nothing is read until it is written. A row
that GPU memory lacks cannot change, so what `prefetch` reads is still right at `begin`, as long as no row has come or
gone meanwhile, which the generation of the table tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from hotrow.errors import ConfigError, InputError
from hotrow.store.applied import Applied
from hotrow.store.hbm.copies import DeviceTierCalls, HostTierCalls
from hotrow.store.hbm.lower import LowerTier, TransferCounts, WriteQueue
from hotrow.store.hbm.rows import HbmRows, KeyBatch
from hotrow.store.hbm.spec import HbmSpec


class UpperPlan(Protocol):
    """What a lookup found: `HbmPlan` or `PartitionedPlan`."""

    @property
    def present(self) -> Tensor: ...
    @property
    def absent(self) -> int: ...
    @property
    def turned_away(self) -> int: ...
    @property
    def evicted(self) -> HbmRows | None: ...
    def absent_keys(self) -> Tensor: ...


Plan = TypeVar("Plan", bound=UpperPlan)
MiniBatchKeys = Tensor | KeyBatch  # keys of a mini-batch: an `HbmTier` takes them folded too


class UpperTier(Protocol[Plan]):
    """`HbmTier` or `HbmPartitions`: each takes plans of its own kind."""

    spec: HbmSpec
    device: torch.device

    @property
    def generation(self) -> int: ...
    def find(self, keys: Any, out: Tensor | None = None) -> Plan: ...
    def touch(self, keys: Any) -> Plan: ...
    def apply(
        self, keys: Plan, gradients: Tensor, *, step: int = 0, samples: int = 0, lr_scale: float = 1.0
    ) -> Applied | None: ...
    def put_and_evict(
        self,
        keys: Tensor,
        values: Tensor,
        state: Tensor | None = None,
        fields: Mapping[str, Tensor] | None = None,
        *,
        saved: bool = False,
        distinct: bool = False,
        pinned: Sequence[Plan] = (),
    ) -> Plan: ...
    def take_evicted(self) -> HbmRows | None: ...
    def keep_evicted(self, rows: HbmRows) -> None: ...
    def export(self, rows: int = 65_536, *, changed_only: bool = False) -> Iterator[HbmRows]: ...
    def mark_saved(self, keys: Tensor) -> None: ...


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Rows of the next batch, on their way."""

    parts: list[MiniBatchKeys]  # of the batch
    generation: int  # of the table when it was asked what it lacks
    rows: "Future[HbmRows]"


class WorkingSet(Generic[Plan]):
    """Rows of the current batch in GPU memory, above a tier that holds all rows. One thread at a time.

    The rows of one batch must find room: buckets fill unevenly, so give GPU memory twice the distinct keys of a batch.
    The end of a `with` block flushes. A write to the tier below that fails is raised by a later call, and its rows are
    written by the call after that.
    """

    def __init__(self, upper: UpperTier[Plan], lower: LowerTier) -> None:
        if not upper.spec.track_changes:
            raise ConfigError("HbmSpec.track_changes=False: rows that changed have to be known, set it to True")
        self.upper, self.lower = upper, lower
        self.moved = TransferCounts()
        on_device = getattr(lower, "on_device", False)
        self._copies = DeviceTierCalls(upper.device) if on_device else HostTierCalls(upper.device)
        self._queue = WriteQueue(lower, self._copies, self.moved)
        self._thread = self._copies.executor()
        self._writes: list[Future[None]] = []
        self._prefetch: Prefetch | None = None
        self._begun: list[MiniBatchKeys] = []  # parts of the batch whose rows are here

    def begin(self, keys: MiniBatchKeys | Sequence[MiniBatchKeys], *, samples: int = 0) -> None:
        """Have the rows of all these keys in GPU memory, where they stay until the next `begin`.

        A batch may be given as its mini-batches, folded by `HbmTier.batch`, which then serve `find` too. `samples`
        counts all samples trained so far. New rows start in the SWAP period of it.
        """
        self._settle()
        parts, self._begun = _parts(keys), []
        if not parts:
            return
        rows, held = self._rows_for(parts, samples)
        if not len(rows):
            self._begun = parts
            return
        rows = self._copies.record_use(rows)
        state = rows.state if rows.state.shape[1] else None
        put = self.upper.put_and_evict(
            rows.keys, rows.values, state, rows.fields, saved=True, distinct=True, pinned=held
        )  # fmt: skip
        self._write_evicted(put.evicted)
        self.moved.up += len(rows) - put.turned_away
        if put.turned_away:
            raise InputError(
                f"begin: {put.turned_away:,} of {_distinct(parts):,} rows found no room in GPU memory, which holds "
                f"{self.upper.spec.slots:,} in buckets of {self.upper.spec.bucket_slots}: raise capacity, or use "
                "smaller batches"
            )
        self._begun = parts

    def _rows_for(self, parts: list[MiniBatchKeys], samples: int) -> tuple[HbmRows, list[Plan]]:
        """Rows that GPU memory lacks, and the plans of those that it has."""
        ahead, self._prefetch = self._prefetch, None
        generation = self.upper.generation
        held = [self.upper.touch(part) for part in parts]
        if ahead is not None:
            with self.moved.timed("wait_s"):
                rows = ahead.rows.result()
            if generation == ahead.generation and _same(parts, ahead.parts):
                self.moved.up_ahead += len(rows)
                return rows, held
            self.moved.reread += 1
        with self.moved.timed("wait_s"):
            return self._submit_read(held, samples).result(), held

    def prefetch(self, keys: MiniBatchKeys | Sequence[MiniBatchKeys], *, samples: int = 0) -> None:
        """Begin to read the rows of the next batch that GPU memory lacks."""
        self._settle()
        parts = _parts(keys)
        if not parts:
            return
        found = [self.upper.find(part) for part in parts]
        self._prefetch = Prefetch(parts, self.upper.generation, self._submit_read(found, samples))

    def _submit_read(self, plans: list[Plan], samples: int) -> "Future[HbmRows]":
        """Read what the plans of a batch lack."""
        absent = torch.unique(torch.cat([plan.absent_keys() for plan in plans]))
        return self._thread.submit(self._read, *self._copies.keys(absent), samples)

    def find(self, keys: MiniBatchKeys, out: Tensor | None = None) -> Plan:
        """Look up rows of the batch, for `apply`."""
        plan = self.upper.find(keys, out)
        if isinstance(keys, KeyBatch) and any(keys is part for part in self._begun):  # `begin` has found all its rows
            return plan
        if plan.absent:
            raise InputError(
                f"find: {plan.absent:,} keys are not in the working set: call begin with the keys of the whole batch"
            )
        return plan

    def apply(
        self, plan: Plan, gradients: Tensor, *, step: int = 0, samples: int = 0, lr_scale: float = 1.0
    ) -> Applied | None:
        """As `HbmTier.apply`."""
        return self.upper.apply(plan, gradients, step=step, samples=samples, lr_scale=lr_scale)

    def flush(self) -> None:
        """Bring every change down, and wait until it is there. After a failure a second call brings down the rest."""
        self._write_evicted(self.upper.take_evicted())
        on_the_way: tuple[Tensor, Future[None]] | None = None  # one chunk is written while the next one is read
        for chunk in self.upper.export(changed_only=True):
            rows = chunk.to(self.upper.device)  # from another partition's
            written = self._thread.submit(self._queue.write_after_all, rows, self._copies.record_event())
            self._mark_saved(on_the_way)
            on_the_way = rows.keys, written
        self._mark_saved(on_the_way)
        if len(self._queue):
            self._thread.submit(self._queue.write_all).result()
        self._writes.clear()  # whichever of them failed, its rows are written now

    def _mark_saved(self, chunk: "tuple[Tensor, Future[None]] | None") -> None:
        """Once a chunk is written, the tier below has its rows as they are."""
        if chunk is not None:
            keys, written = chunk
            written.result()
            self.upper.mark_saved(keys)

    def close(self) -> None:
        """Flush, and end the thread. If that fails it can be called again."""
        self.flush()
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, keys: Tensor, since: "torch.cuda.Event | None", samples: int) -> HbmRows:
        self._queue.write_all()  # what failed before: rows below may be out of date
        with self.moved.timed("read_s"):
            return self._copies.read(self.lower, keys, since, samples)

    def _write_evicted(self, evicted: HbmRows | None) -> None:
        """Send down what has changed of displaced rows. Until the queue has them, a failure gives them back."""
        if evicted is None or evicted.changed is None:
            return
        try:
            changed = evicted.select(evicted.changed)
            if not len(changed):
                return
            self._queue.add(changed)
        except BaseException:
            self.upper.keep_evicted(evicted)
            raise
        self._writes.append(self._thread.submit(self._queue.write_all))

    def _settle(self) -> None:
        """Raise what failed since the last call, once, and send down what a call displaced before it failed."""
        self._write_evicted(self.upper.take_evicted())
        done = [write for write in self._writes if write.done()]
        self._writes = [write for write in self._writes if write not in done]
        failures = [failure for write in done if (failure := write.exception()) is not None]
        if failures:
            failures[0].add_note(f"{len(failures)} writes failed: their rows are kept and written by the next call")
            raise failures[0]


def _parts(keys: MiniBatchKeys | Sequence[MiniBatchKeys]) -> list[MiniBatchKeys]:
    return [keys] if isinstance(keys, MiniBatchKeys) else list(keys)


def _keys(part: MiniBatchKeys) -> Tensor:
    return part.keys if isinstance(part, KeyBatch) else part


def _same(parts: list[MiniBatchKeys], others: list[MiniBatchKeys]) -> bool:
    """Whether two batches have the same keys in the same order."""
    pairs = [(_keys(part), _keys(other)) for part, other in zip(parts, others, strict=False)]
    return len(parts) == len(others) and all(a is b or torch.equal(a, b) for a, b in pairs)


def _distinct(parts: list[MiniBatchKeys]) -> int:
    return len(torch.unique(torch.cat([_keys(part) for part in parts])))
