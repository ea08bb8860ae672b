"""Columns of any type as numbers, and which rows hold none.

Whole columns are converted at once. Only where that fails is the fault searched, by halving, so that what counts as a
number is the same on both ways.
"""

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotrow.errors import InputError

F64: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]

LARGEST = float(np.finfo(np.float32).max)


def numbers(column: pa.Array, name: str) -> tuple[F64, Mask | None]:
    """float64 with NaN where nothing is there, and which rows hold no number that float32 can hold, if any."""
    values, bad = floats(column, name)
    return values.astype(np.float64, copy=False), bad


def floats(column: pa.Array, name: str) -> tuple[Floats, Mask | None]:
    """The same, but float32 stays what it is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    bad: Mask | None = None
    if is_text(kind):
        column, bad = _numbers_of_text(column)
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float64(), safe=False)
    elif not pa.types.is_floating(kind):
        raise InputError(f"column {name!r} is of {kind}: a number or label must be a number, a boolean or a text")
    values: Floats = column.to_numpy(zero_copy_only=False)
    if not pa.types.is_integer(kind):
        beyond = np.abs(values) > LARGEST
        bad = (beyond if bad is None else beyond | bad) if beyond.any() else bad
    return values, bad


def is_text(kind: pa.DataType) -> bool:
    return any(each(kind) for each in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def cast_or_null(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """The column as another type, null where a value cannot be it; which ones those are, if any."""
    try:
        return column.cast(kind), None
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, kind), np.ones(1, bool)
    half = len(column) // 2
    (left, left_bad), (right, right_bad) = cast_or_null(column[:half], kind), cast_or_null(column[half:], kind)
    bad = [np.zeros(len(part), bool) if mask is None else mask for part, mask in ((left, left_bad), (right, right_bad))]
    return pa.concat_arrays([left, right]), np.concatenate(bad)


def _numbers_of_text(column: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Texts as Arrow reads them, blanks around them aside; true and false are 1 and 0, an empty text is missing."""
    try:
        return column.cast(pa.float64()), None
    except pa.ArrowInvalid:
        texts = pc.ascii_lower(pc.ascii_trim_whitespace(column.cast(pa.string(), safe=False)))  # it may be no UTF-8
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    for word, digit in (("true", "1"), ("false", "0")):
        texts = pc.if_else(pc.equal(texts, word), digit, texts)
    return cast_or_null(texts, pa.float64())
