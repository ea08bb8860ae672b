"""Whole rows as frames and back: keys uint64, values and state float32, then a column uint32 for each field."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotrow.errors import InputError
from hotrow.store import Rows
from hotrow.transport.envelope import Buffer

STATE_FRAME = 2


def pack_rows(rows: Rows) -> list[Buffer]:
    """The frames, which are the rows' own memory; fields in the order of the dict."""
    columns: list[NDArray[Any]] = [rows.keys, rows.values, rows.state, *rows.fields.values()]
    return [np.ascontiguousarray(column).reshape(-1).view(np.uint8) for column in columns]


def unpack_rows(rows: int, fields: Sequence[str], frames: Sequence[Buffer], *, dim: int, state_dim: int) -> Rows:
    """Rows of a table of this width. Every length is checked before anything is allocated."""
    names = ["keys", "values", "state", *fields]
    if len(set(names)) != len(names) or len(frames) != len(names):
        raise InputError(f"{len(frames)} frames came for columns {', '.join(names)}: send each column once")
    widths = [8, 4 * dim, 4 * state_dim, *[4] * len(fields)]
    for name, width, frame in zip(names, widths, frames, strict=True):
        if (size := memoryview(frame).nbytes) != rows * width:
            raise InputError(f"{name} of {rows:,} rows are {rows * width:,} bytes, {size:,} came")
    keys, values, state, *columns = frames
    return Rows(
        _array(keys, np.uint64),
        _array(values, np.float32).reshape(rows, dim),
        _array(state, np.float32).reshape(rows, state_dim),
        {name: _array(column, np.uint32) for name, column in zip(fields, columns, strict=True)},
    )


def _array(frame: Buffer, kind: DTypeLike) -> NDArray[Any]:
    """The frame as an array, in place; small frames may be unaligned in their buffer, and are copied."""
    array: NDArray[Any] = np.frombuffer(frame, kind)
    return array if array.flags.aligned else array.copy()
