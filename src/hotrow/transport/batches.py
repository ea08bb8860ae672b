"""A batch on the wire: its layout as a header, its arrays as frames, read in place on the other side."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.transport.messages import Features, Samples

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


def pack_batch(batch: Batch, *, ids: bool = True) -> tuple[Samples, list[NDArray[np.generic]]]:
    """The layout and the arrays that a trainer needs; groups and times are left out. Without ids, only the layout."""
    labels = np.empty((len(batch), 0), np.float32) if batch.labels is None else batch.labels
    frames: list[NDArray[np.generic]] = [np.ascontiguousarray(batch.numbers), np.ascontiguousarray(labels)]
    frames += [] if batch.weights is None else [np.ascontiguousarray(batch.weights)]
    parts = []
    for part in batch.parts:
        parts.append(Features(part.table, part.kind, part.features, len(part.keys) if ids else 0, part.pooling))
        if not ids:
            continue
        frames.append(np.ascontiguousarray(part.keys))
        if part.bounds is not None:
            frames.append(np.ascontiguousarray(part.bounds))
    weights = batch.weights is not None
    return Samples(len(batch), batch.numbers.shape[1], labels.shape[1], tuple(parts), weights), frames


def unpack_batch(layout: Samples, frames: Sequence[memoryview], *, ids: bool = True) -> Batch:
    """The batch, its arrays still in the frames. Without ids its parts have none."""
    reader = FrameReader(frames)
    numbers = reader.floats("numbers", layout.count, layout.numbers)
    labels = reader.floats("labels", layout.count, layout.labels)
    weights = reader.floats("weights", layout.count, 1)[:, 0] if layout.weights else None
    if weights is not None and not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError("weights: each must be a finite number of 0 or more")
    parts = tuple(_part(part, layout.count, reader) if ids else _without_ids(part) for part in layout.parts)
    reader.check_end()
    return Batch(parts, numbers, labels if layout.labels else None, weights=weights)


def _part(part: Features, samples: int, reader: "FrameReader") -> FeatureBlock:
    name = part.names[0] if part.names else part.table
    bags = samples * len(part.names)
    if part.kind == "one" and part.keys != bags:
        raise InputError(f"feature {name!r}: {part.keys} ids for {bags} places")
    keys = reader.integers(f"ids of {name!r}", part.keys)
    bounds = None
    if part.kind != "one":
        bounds = reader.integers(f"bounds of {name!r}", bags + 1)
        if bounds[0] != 0 or bounds[-1] != part.keys or (np.diff(bounds) < 0).any():
            raise InputError(f"feature {name!r}: bounds must rise from 0 to the {part.keys} ids")
    return FeatureBlock(part.table, part.kind, part.names, keys, bounds, part.pooling)


def _without_ids(part: Features) -> FeatureBlock:
    if part.keys:
        raise InputError(f"feature {part.names[0] if part.names else part.table!r}: {part.keys} ids were not expected")
    return FeatureBlock(part.table, part.kind, part.names, np.empty(0, np.int64), None, part.pooling)


class FrameReader:
    """Frames in turn; each has exactly the bytes that the header promised."""

    def __init__(self, frames: Sequence[memoryview]) -> None:
        self._frames = list(frames)
        self._next = 0

    def floats(self, what: str, rows: int, columns: int) -> F32:
        return np.frombuffer(self._take(what, 4 * rows * columns), np.float32).reshape(rows, columns)

    def doubles(self, what: str, count: int) -> NDArray[np.float64]:
        return np.frombuffer(self._take(what, 8 * count), np.float64)

    def flags(self, what: str, count: int) -> NDArray[np.bool_]:
        return np.frombuffer(self._take(what, count), np.uint8).astype(np.bool_)

    def integers(self, what: str, count: int) -> I64:
        return np.frombuffer(self._take(what, 8 * count), np.int64)

    def check_end(self) -> None:
        if self._next < len(self._frames):
            raise InputError(f"{len(self._frames) - self._next} frames follow that the header does not name")

    def _take(self, what: str, size: int) -> memoryview:
        if self._next == len(self._frames):
            raise InputError(f"{what}: the frame is missing")
        frame = self._frames[self._next]
        if frame.nbytes != size:
            raise InputError(f"{what}: the frame has {frame.nbytes} bytes, the header says {size}")
        self._next += 1
        return frame
