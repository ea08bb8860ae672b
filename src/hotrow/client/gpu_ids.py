"""The ids of batches on a GPU: copied when their batch was read, or else when it is looked up."""

import threading
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from hotrow.client.device_pooling import DevicePooling, joined_on_device
from hotrow.data.batch import I64, Batch, FeatureBlock
from hotrow.store.hbm.batch_working_set import BatchWorkingSet
from hotrow.store.hbm.rows import KeyBatch

BATCHES_MOST = 16  # whose ids wait for their lookup; those of others are copied when they are looked up


@dataclass(slots=True, eq=False)
class GpuIds:
    """The ids of one table of a batch."""

    keys: Tensor  # int64, of all parts
    pooling: DevicePooling
    _folded: KeyBatch | None = None

    def batch(self, working: BatchWorkingSet) -> KeyBatch:
        """Without duplicates: lookups, prefetch and update share it."""
        if self._folded is None:
            self._folded = working.upper.batch(self.keys)
        return self._folded


@dataclass(frozen=True, slots=True, eq=False)
class BatchIds:
    """All ids of a batch."""

    batch: Batch
    tables: dict[str, GpuIds]
    copied: "torch.cuda.Event | None"  # on the stream of copies


class IdsAhead:
    """Copies ids to a device. Batches are read in the order in which they will be looked up."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        self._read: dict[int, Batch] = {}  # by identity, in the order of their lookups
        self._copies: dict[int, BatchIds] = {}  # of the first of them

    def copy_ahead(self, batch: Batch, tables: Collection[str]) -> None:
        """Copy the ids of a batch that will be looked up soon; nothing waits for the copy.

        Where many wait already only its turn is noted: those before it are needed first.
        """
        with self._lock:
            if id(batch) in self._read:
                return
            if len(self._copies) >= BATCHES_MOST:
                self._read[id(batch)] = batch
                return
        ids = self._copied(batch, tables)
        with self._lock:
            self._read[id(batch)], self._copies[id(batch)] = batch, ids

    def take(self, batch: Batch, tables: Collection[str], *, looked_up: bool) -> BatchIds:
        """The ids of a batch, for use in the current stream. Once it is looked up they wait no longer."""
        with self._lock:
            found = self._copies.get(id(batch))
            if looked_up:
                self._read.pop(id(batch), None)
                self._copies.pop(id(batch), None)
        return self._usable(found or self._copied(batch, tables))

    def next_batch(self, tables: Collection[str]) -> BatchIds | None:
        """Those of the batch that will be looked up next; None where none is known."""
        with self._lock:
            batch = next(iter(self._read.values()), None)
            if batch is None:
                return None
            found = self._copies.get(id(batch))
        if found is None:
            found = self._copied(batch, tables)
            with self._lock:
                if id(batch) in self._read:
                    self._copies[id(batch)] = found
        return self._usable(found)

    def clear(self) -> None:
        """Forget batches that were read: reading begins anew, and they will not be looked up."""
        with self._lock:
            self._read.clear()
            self._copies.clear()

    def _copied(self, batch: Batch, tables: Collection[str]) -> BatchIds:
        parts: dict[str, list[FeatureBlock]] = {}
        for part in batch.parts:
            if part.table in tables:
                parts.setdefault(part.table, []).append(part)
        if self._stream is None:
            return BatchIds(batch, self._tables(parts, len(batch)), None)
        with torch.cuda.stream(self._stream):
            ids = self._tables(parts, len(batch))
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return BatchIds(batch, ids, copied)

    def _tables(self, parts: dict[str, list[FeatureBlock]], samples: int) -> dict[str, GpuIds]:
        """Keys of all tables and bounds of all parts, in one copy."""
        groups: list[list[I64]] = []
        for mine in parts.values():
            groups += [[part.keys for part in mine], *([part.bounds] for part in mine if part.bounds is not None)]
        moved = iter(joined_on_device(groups, self._device))
        found = {}
        for table, mine in parts.items():
            keys = next(moved)
            bounds = [None if part.bounds is None else next(moved) for part in mine]
            found[table] = GpuIds(keys, DevicePooling(mine, samples, bounds, self._device))
        return found

    def _usable(self, ids: BatchIds) -> BatchIds:
        if ids.copied is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(ids.copied)
            for each in ids.tables.values():
                for tensor in (each.keys, *each.pooling.tensors()):
                    tensor.record_stream(stream)
        return ids
