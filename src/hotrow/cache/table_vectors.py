"""From the cached rows of distinct ids to the vectors of a batch, and from the gradients of these to distinct ids.

Both are computed where the rows are: in host memory, or on the device of the cache.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from hotrow.cache.cache import RowCache
from hotrow.cache.device_copies import DeviceCopies
from hotrow.cache.rows import RowValues
from hotrow.client.base import FeatureVectors
from hotrow.client.pooling import folded, shares_of, spread
from hotrow.data.batch import FeatureBlock
from hotrow.store.arrays import Flags, Floats
from hotrow.store.shards import Sharded


class TableVectors(Protocol):
    """The vectors of one cached table of a batch."""

    outputs: list[FeatureVectors]  # one for each part

    def sums(self) -> tuple[RowValues, Flags | None] | None:
        """The gradient of each distinct id, and which of them the model used (None: all); None: it used no part."""


def vectors_of(
    cache: RowCache, parts: Sequence[FeatureBlock], ids: Sharded, rows: RowValues, samples: int, threads: int
) -> TableVectors:
    """Of the rows that a cache gave for the distinct ids of the parts."""
    if cache.copies is None:
        return HostVectors(parts, ids, rows, samples, threads)
    return DeviceVectors(parts, ids, rows, samples, cache.copies)


class HostVectors:
    """In host memory."""

    def __init__(self, parts: Sequence[FeatureBlock], ids: Sharded, rows: Floats, samples: int, threads: int) -> None:
        self._ids, self._threads = ids, threads
        shares = shares_of(ids.inverse, parts)
        self.outputs = [spread(part, rows, mine, samples, threads) for part, mine in zip(parts, shares, strict=True)]
        for output in self.outputs:
            output.rows.requires_grad_(True)

    def sums(self) -> tuple[Floats, Flags | None] | None:
        if all(output.rows.grad is None for output in self.outputs):
            return None
        count = len(self._ids.keys)
        sums, used = folded(self.outputs, self._ids.inverse, count, self._threads)
        if used is None:
            return sums, None
        flags = np.zeros(count, np.bool_)
        flags[used] = True
        return sums, flags


class DeviceVectors:
    """On a device. Places of ids and bounds of bags go there; neither rows nor gradients do."""

    def __init__(
        self, parts: Sequence[FeatureBlock], ids: Sharded, rows: Tensor, samples: int, copies: DeviceCopies
    ) -> None:
        from hotrow.client.device_pooling import DevicePooling, pooled_rows  # needs Triton, which others do without

        bounds = [part.bounds for part in parts if part.bounds is not None]
        self._inverse, *moved = copies.up([ids.inverse, *bounds])
        there = iter(moved)
        bounds_there = [None if part.bounds is None else next(there) for part in parts]
        self._count, self._copies = len(ids.keys), copies
        self._pooling = DevicePooling(parts, samples, bounds_there, copies.device)
        self.outputs = self._pooling.vectors(pooled_rows(rows, self._inverse), learn=True)

    def sums(self) -> tuple[Tensor, Flags | None] | None:
        from hotrow.kernels.unique import unique

        places = unique(self._inverse.long(), deterministic=True)  # sorted: distinct ids keep their numbers
        found = self._pooling.sums(places, self.outputs)
        if found is None:
            return None
        used = None if found.used is None else self._copies.down([found.used[: self._count]])[0]
        return found.gradients[: self._count], used
