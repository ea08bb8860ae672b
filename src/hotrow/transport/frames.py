"""Rows as frames and back. Names, counts and lengths are checked before anything is allocated.

A block's frames, as far as it has them: a bit for each row of the whole block, where only some of them come; keys
uint64 [n]; values float32 [n, dim], or fp16-scaled as halves uint16 [n, dim] and scales float32 [n]; versions uint32
[n]. Little-endian. float32, keys and versions are read in place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotrow.errors import InputError
from hotrow.store.arrays import ArrayLike, Flags, Floats, Integers, Keys, as_array, as_keys, as_output
from hotrow.store.kernels import decode_rows, encode_rows
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import RowBlockHeader
from hotrow.types import Values


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Rows of one table: all columns that it has have one entry per row."""

    table: str
    keys: ArrayLike | None = None  # uint64 [n]
    values: ArrayLike | None = None  # float32 [n, dim]
    versions: ArrayLike | None = None  # uint32 [n]
    dim: int | None = None  # needed where there are no values
    mask: Flags | None = None  # bool, of the whole block whose rows these are; None: they are all


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes of rows on the wire, and their size as plain ids and float32."""

    sent: int = 0
    sent_plain: int = 0
    received: int = 0
    received_plain: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(
            self.sent + other.sent,
            self.sent_plain + other.sent_plain,
            self.received + other.received,
            self.received_plain + other.received_plain,
        )

    @classmethod
    def of_sent(cls, blocks: Sequence[RowBlockHeader], *, ids: int = 0) -> "Volume":
        """`ids` is how often ids occur: plain, each occurrence is 8 bytes."""
        return cls(sent=_bytes(blocks), sent_plain=_plain_bytes(blocks) + 8 * ids)

    @classmethod
    def of_received(cls, blocks: Sequence[RowBlockHeader], *, ids: int = 0) -> "Volume":
        return cls(received=_bytes(blocks), received_plain=_plain_bytes(blocks) + 8 * ids)


@dataclass(frozen=True, slots=True)
class _FrameShape:
    """A frame of a block."""

    name: str
    type: DTypeLike
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return np.dtype(self.type).itemsize * self.shape[0] * (self.shape[1] if len(self.shape) > 1 else 1)


def pack(blocks: Sequence[RowBlock], values: Values) -> tuple[tuple[RowBlockHeader, ...], list[Buffer]]:
    """Blocks for a header and their frames. Frames of float32, keys and versions are the arrays' own memory."""
    heads: list[RowBlockHeader] = []
    frames: list[Buffer] = []
    for block in blocks:
        head, arrays = _packed(block, values)
        heads.append(head)
        frames += [array.reshape(-1).view(np.uint8) for array in arrays]
    return tuple(heads), frames


def unpack(
    blocks: Sequence[RowBlockHeader],
    frames: Sequence[Buffer],
    dims: Mapping[str, int],
    *,
    out: Sequence[ArrayLike | None] | None = None,
    threads: int = 1,
) -> list[RowBlock]:
    """Rows of blocks. `dims` is the width of each known table; `out` has a float32 [n, dim] buffer per block or None,
    of the whole block where only some of its rows come.

    Arrays share the frames' memory where they can, and must then not be written.
    """
    views = [memoryview(frame).cast("B") for frame in frames]
    _check(blocks, views, dims)
    targets = [None] * len(blocks) if out is None else list(out)
    if len(targets) != len(blocks):
        raise InputError(f"unpack: out has {len(targets)} buffers for {len(blocks)} blocks")
    ahead = iter(views)
    return [_unpacked(block, ahead, target, threads) for block, target in zip(blocks, targets, strict=True)]


def frames_of(blocks: Sequence[RowBlockHeader]) -> int:
    """The number of frames of blocks."""
    return sum(1 for block in blocks for _ in _columns(block))


def _columns(block: RowBlockHeader) -> Iterator[_FrameShape]:
    rows, matrix = (block.rows,), (block.rows, block.dim)
    if block.whole is not None:
        yield _FrameShape("mask", "u1", (-(-block.whole // 8),))
    if block.keys:
        yield _FrameShape("keys", "<u8", rows)
    if block.values == "fp32":
        yield _FrameShape("values", "<f4", matrix)
    elif block.values == "fp16-scaled":
        yield _FrameShape("halves", "<u2", matrix)
        yield _FrameShape("scales", "<f4", rows)
    if block.versions:
        yield _FrameShape("versions", "<u4", rows)


def _bytes(blocks: Sequence[RowBlockHeader]) -> int:
    return sum(column.bytes for block in blocks for column in _columns(block))


def _plain_bytes(blocks: Sequence[RowBlockHeader]) -> int:
    """Without keys: those count by occurrence."""
    values = sum(4 * block.rows * block.dim for block in blocks if block.values is not None)
    return values + sum(4 * block.rows for block in blocks if block.versions)


def _packed(block: RowBlock, values: Values) -> tuple[RowBlockHeader, list[NDArray[Any]]]:
    who = f"table {block.table!r}"
    arrays: list[NDArray[Any]] = []
    lengths = set()
    dim = block.dim
    if block.mask is not None:
        arrays.append(np.packbits(as_array(f"{who}: mask", block.mask, np.bool_, 1)))
        lengths.add(int(block.mask.sum()))
    if block.keys is not None:
        arrays.append(as_keys(f"{who}: keys", block.keys))
        lengths.add(len(arrays[-1]))
    if block.values is not None:
        rows = as_array(f"{who}: values", block.values, np.float32, 2)
        if dim not in (None, rows.shape[1]):
            raise InputError(f"{who}: values are {rows.shape[1]} wide, dim says {dim}")
        dim = rows.shape[1]
        lengths.add(len(rows))
        arrays += [rows] if values == "fp32" else encode_rows(rows)
    if block.versions is not None:
        arrays.append(as_array(f"{who}: versions", block.versions, np.uint32, 1))
        lengths.add(len(arrays[-1]))
    if len(lengths) != 1 or dim is None:
        remedy = "all columns need one entry per row, and dim where there are no values"
        raise InputError(f"{who}: columns of {sorted(lengths)} rows, dim {dim}: {remedy}")
    has_values = None if block.values is None else values
    return RowBlockHeader(
        block.table,
        lengths.pop(),
        dim,
        block.keys is not None,
        has_values,
        block.versions is not None,
        None if block.mask is None else len(block.mask),
    ), arrays


def _check(blocks: Sequence[RowBlockHeader], views: Sequence[memoryview], dims: Mapping[str, int]) -> None:
    if frames_of(blocks) != len(views):
        raise InputError(f"{len(views)} frames came for blocks that have {frames_of(blocks)}")
    ahead = iter(views)
    for block in blocks:
        if block.table not in dims:
            raise InputError(f"table {block.table!r}: there is no such table; there are: {', '.join(sorted(dims))}")
        if block.dim != dims[block.table]:
            raise InputError(f"table {block.table!r}: rows came {block.dim} wide, they are {dims[block.table]} wide")
        for column, view in zip(_columns(block), ahead, strict=False):
            if view.nbytes != column.bytes:
                message = f"{column.name} of {block.rows:,} rows are {column.bytes:,} bytes, {view.nbytes:,} came"
                raise InputError(f"table {block.table!r}: {message}")


def _unpacked(block: RowBlockHeader, ahead: Iterator[memoryview], target: ArrayLike | None, threads: int) -> RowBlock:
    columns = {column.name: _array(column, next(ahead)) for column in _columns(block)}
    keys: Keys | None = columns.get("keys")
    versions: Integers | None = columns.get("versions")
    values: Floats | None = columns.get("values")
    if block.whole is not None:
        return _part(block, columns, target, threads)
    if target is not None:
        shape = as_output(f"table {block.table!r}: out", target, 2).shape
        if shape != (block.rows, block.dim):
            raise InputError(f"table {block.table!r}: out is {shape}, expected {(block.rows, block.dim)}")
    if block.values == "fp16-scaled":
        values = decode_rows(columns["halves"], columns["scales"], out=target, threads=threads)
    elif values is not None and target is not None:
        buffer = as_output(f"table {block.table!r}: out", target, 2, values)
        np.copyto(buffer, values)
        values = buffer
    return RowBlock(block.table, keys, values, versions, block.dim)


def _part(block: RowBlockHeader, columns: Mapping[str, Any], target: ArrayLike | None, threads: int) -> RowBlock:
    """Some rows of a whole block; the others of `target` stay as they are."""
    mask: Flags = np.unpackbits(columns["mask"], count=block.whole).view(np.bool_)
    if int(mask.sum()) != block.rows:
        raise InputError(f"table {block.table!r}: {block.rows:,} rows came, and their mask has {int(mask.sum()):,}")
    if block.values is None:
        raise InputError(f"table {block.table!r}: some rows of {block.whole:,} came without values")
    values: Floats = (
        decode_rows(columns["halves"], columns["scales"], threads=threads)
        if block.values == "fp16-scaled"
        else columns["values"]
    )
    if target is not None:
        into = as_output(f"table {block.table!r}: out", target, 2)
        if into.shape != (block.whole, block.dim):
            raise InputError(f"table {block.table!r}: out is {into.shape}, expected {(block.whole, block.dim)}")
        into[mask] = values
    return RowBlock(block.table, columns.get("keys"), values, columns.get("versions"), block.dim, mask)


def _array(column: _FrameShape, view: memoryview) -> NDArray[Any]:
    """The frame as an array, in place. Small frames may be unaligned in libzmq's buffer: those are copied."""
    array = np.frombuffer(view, dtype=column.type).reshape(column.shape)
    return array if array.flags.aligned else array.copy()
