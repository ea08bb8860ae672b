"""The ids of a batch on the wire, feature by feature: each key once, with the samples it occurs in.

A key that occurs once is smaller as it is, so each feature takes the smaller form. Ids of a sequence keep their order:
each key once, and for every position the index of its key.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.store.kernels import BAGS_OF_UINT16, compress_ids, expand_ids, unique
from hotrow.transport.messages import Coded, IdPart

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

GRANT_BITS = 56
WORKERS_MOST = 256  # one byte holds the number
FRAMES = 4  # per part


def sample_id(worker: int, grant: int) -> int:
    """The id of a batch at an embedding worker."""
    if not (0 <= worker < WORKERS_MOST and 0 <= grant < 2**GRANT_BITS):
        raise InputError(f"worker={worker}, grant={grant}: must be below {WORKERS_MOST} and below 2^{GRANT_BITS}")
    return (worker << GRANT_BITS) | grant


def worker_of(sample: int) -> int:
    """The embedding worker that has a batch."""
    return sample >> GRANT_BITS


def grant_of(sample: int) -> int:
    return sample & ((1 << GRANT_BITS) - 1)


def unsigned_for(largest: int, least: int = 1) -> int:
    """Bytes of an unsigned number that holds `largest`."""
    return next(each for each in (1, 2, 4) if each >= least and largest < 2 ** (8 * each))


class _Feature(NamedTuple):
    """One feature's ids, encoded. Columns that a form does not have are empty."""

    head: Coded
    keys: U64
    counts: NDArray[Any]
    samples: NDArray[Any]
    lengths: I64


def pack_ids(batch: Batch) -> tuple[tuple[IdPart, ...], list[NDArray[Any]]]:
    """Headers and frames."""
    heads: list[IdPart] = []
    frames: list[NDArray[Any]] = []
    for part in batch.parts:
        features = [_coded(part, *each) for each in _by_feature(part, len(batch))]
        counts, lengths = (np.concatenate([np.empty(0, np.int64), *each]) for each in
                           ([f.counts for f in features], [f.lengths for f in features]))  # fmt: skip
        wide = unsigned_for(int(counts.max(initial=0)), 2), unsigned_for(int(lengths.max(initial=0)))
        coded = tuple(each.head for each in features)
        heads.append(IdPart(part.table, part.kind, part.features, part.pooling, coded, *wide))  # type: ignore[arg-type]
        places = _places_type(part.kind, coded, len(batch))
        frames += [
            np.concatenate([np.empty(0, np.uint64), *(each.keys for each in features)]),
            counts.astype(f"<u{wide[0]}"),
            np.concatenate([np.empty(0, places), *(each.samples.astype(places) for each in features)]),
            lengths.astype(f"<u{wide[1]}"),
        ]
    return tuple(heads), frames


def unpack_ids(count: int, parts: Sequence[IdPart], frames: Sequence[memoryview]) -> Batch:
    """A batch of ids only. The caller has checked that the announced sizes are allowed."""
    if len(frames) != FRAMES * len(parts):
        raise InputError(f"{len(frames)} frames came for {len(parts)} parts, which have {FRAMES} each")
    columns = [_columns(part, count, frames[FRAMES * at :][:FRAMES]) for at, part in enumerate(parts)]
    unpacked = tuple(_part(part, count, *each) for part, each in zip(parts, columns, strict=True))
    return Batch(unpacked, np.empty((count, 0), np.float32))


def plain_bytes(parts: Sequence[IdPart]) -> int:
    """The size of the ids as they are."""
    return 8 * sum(each.ids for part in parts for each in part.coded)


def _by_feature(part: FeatureBlock, samples: int) -> list[tuple[U64, I64]]:
    """Each feature's keys, sample by sample, and how many each sample has."""
    wide, keys = len(part.features), part.keys.view(np.uint64)
    if part.bounds is None:
        return [(column, np.ones(samples, np.int64)) for column in np.ascontiguousarray(keys.reshape(-1, wide).T)]
    lengths = np.diff(part.bounds).reshape(samples, wide)
    if wide == 1:
        return [(np.ascontiguousarray(keys), lengths[:, 0])]
    features = np.repeat(np.tile(np.arange(wide), samples), lengths.reshape(-1))
    grouped = np.split(keys[np.argsort(features, kind="stable")], np.cumsum(lengths.sum(axis=0))[:-1])
    return list(zip(grouped, np.ascontiguousarray(lengths.T), strict=True))


def _coded(part: FeatureBlock, keys: U64, lengths: I64) -> _Feature:
    nothing: NDArray[Any] = np.empty(0, np.int64)
    bags = nothing if part.kind == "one" else lengths
    if part.kind == "sequence":
        once = unique(keys)
        if 8 * len(once.keys) + _index_bytes(len(once.keys)) * len(keys) < 8 * len(keys):
            head = Coded("placed", len(keys), len(once.keys))
            return _Feature(head, once.keys, nothing, once.inverse, bags)
        return _Feature(Coded("plain", len(keys), len(keys)), keys, nothing, nothing, bags)
    found = compress_ids(keys, np.concatenate([[0], np.cumsum(lengths)]))
    counted = 10 * len(found.keys) + found.samples.nbytes
    if counted < 8 * len(keys) + len(bags):
        return _Feature(Coded("counted", len(keys), len(found.keys)), found.keys, found.counts, found.samples, nothing)
    return _Feature(Coded("plain", len(keys), len(keys)), keys, nothing, nothing, bags)


def _index_bytes(unique_keys: int) -> int:
    return 2 if unique_keys <= 2**16 else 4


def _places_type(kind: str, coded: Sequence[Coded], samples: int) -> DTypeLike:
    if kind == "sequence":
        return f"<u{_index_bytes(max((each.unique for each in coded), default=0))}"
    return "<u2" if samples <= BAGS_OF_UINT16 else "<u4"


class _FrameReader:
    """A frame, read piece by piece."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self._at = array, 0

    def take(self, count: int) -> NDArray[Any]:
        self._at += count
        return self._array[self._at - count : self._at]


def _columns(part: IdPart, samples: int, frames: Sequence[memoryview]) -> list[_FrameReader]:
    """The four frames, after their sizes were checked against the header."""
    name = part.names[0] if part.names else part.table
    _check_forms(name, part, samples)
    coded = [each for each in part.coded if each.form != "plain"]
    bags = 0 if part.kind == "one" else samples * (1 if part.kind == "sequence" else len(part.coded) - len(coded))
    wanted: list[tuple[str, DTypeLike, int]] = [
        ("keys", "<u8", sum(each.unique for each in part.coded)),
        ("counts", f"<u{part.counts}", sum(each.unique for each in coded if each.form == "counted")),
        ("samples", _places_type(part.kind, part.coded, samples), sum(each.ids for each in coded)),
        ("lengths", f"<u{part.lengths}", bags),
    ]
    found = []
    for (what, kind, count), frame in zip(wanted, frames, strict=True):
        size = count * np.dtype(kind).itemsize
        if frame.nbytes != size:
            raise InputError(f"{what} of {name!r}: the frame has {frame.nbytes} bytes, the header says {size}")
        array = np.frombuffer(frame, kind)
        found.append(_FrameReader(array if array.flags.aligned else array.copy()))
    return found


def _check_forms(name: str, part: IdPart, samples: int) -> None:
    if len(part.coded) != len(part.names) or (part.kind == "sequence" and len(part.names) != 1):
        raise InputError(f"feature {name!r}: {len(part.coded)} columns of ids came for {len(part.names)} features")
    allowed = ("plain", "placed") if part.kind == "sequence" else ("plain", "counted")
    for each in part.coded:
        fits = each.unique == each.ids if each.form == "plain" else each.unique <= each.ids
        if each.form not in allowed or not fits or (part.kind == "one" and each.ids != samples):
            message = f"{each.ids} ids as {each.unique} keys, {each.form}"
            raise InputError(f"feature {name!r}: {message}, are no {part.kind!r} of {samples} samples")


def _part(
    part: IdPart, samples: int, keys: _FrameReader, counts: _FrameReader, places: _FrameReader, bags: _FrameReader
) -> FeatureBlock:
    columns: list[tuple[U64, I64]] = []
    for each in part.coded:
        mine, lengths = keys.take(each.unique), np.ones(samples, np.int64)
        if part.kind != "one" and each.form != "counted":
            lengths = bags.take(samples).astype(np.int64)
        if each.form == "counted":
            times = counts.take(each.unique).astype(np.uint32)
            mine, offsets = expand_ids(mine, times, places.take(each.ids), samples)
            lengths = np.diff(offsets)
        elif each.form == "placed":
            mine = _at_places(mine, places.take(each.ids))
        if lengths.sum() != len(mine) or (part.kind == "one" and (lengths != 1).any()):
            raise InputError(f"feature {part.names[0]!r}: {len(mine)} ids do not fill the bags")
        columns.append((mine, lengths))
    joined, bounds = _interleaved(columns, samples)
    return FeatureBlock(part.table, part.kind, part.names, joined, None if part.kind == "one" else bounds, part.pooling)


def _at_places(keys: U64, where: NDArray[Any]) -> U64:
    if where.size and int(where.max()) >= len(keys):
        raise InputError(f"place {int(where.max())} of a sequence: there are {len(keys)} keys")
    return np.take(keys, where)


def _interleaved(columns: Sequence[tuple[U64, I64]], samples: int) -> tuple[I64, I64]:
    """Keys sample by sample, feature by feature, and the bounds of the bags."""
    wide = len(columns)
    lengths = np.empty((samples, wide), np.int64)
    for feature, (_, mine) in enumerate(columns):
        lengths[:, feature] = mine
    bounds = np.concatenate([[0], np.cumsum(lengths.reshape(-1))])
    if wide == 1:
        return columns[0][0].view(np.int64), bounds
    keys = np.empty(int(bounds[-1]), np.int64)
    for feature, (found, counts) in enumerate(columns):
        starts = bounds[:-1].reshape(samples, wide)[:, feature]
        keys[np.arange(len(found)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)] = found.view(np.int64)
    return keys, bounds
