"""From ids to the keys of table rows.

`key = id XOR salt(space)` where a table serves several spaces, so that equal ids of different columns are different
rows; where it serves one space only, ids are keys as they are. Everything here is part of every checkpoint.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotrow.data.numbers import Floats
from hotrow.data.schema import Bucket, Schema
from hotrow.data.transforms import bucket_ids
from hotrow.errors import InputError
from hotrow.store import kernels

U64: TypeAlias = NDArray[np.uint64]

MISSING = 0xEF46DB3751D8E999  # the id of nothing: the hash of the empty text, so both kinds of nothing come out alike
EXACT = 2**53  # whole numbers up to here are whole numbers in float64


class Keyspace:
    """Which table serves which spaces, and the keys of a feature's ids."""

    def __init__(self, schema: Schema) -> None:
        self._ids = {feature.name: feature for feature in schema.ids}
        self._buckets = schema.bucketed
        self._places = {name: (bucket.table, name) for name, bucket in self._buckets.items()}  # to table, space
        self._places |= {feature.name: (feature.table, feature.space) for feature in schema.ids}

    def spaces(self, table: str) -> tuple[str, ...]:
        """The spaces that a table serves, in the order of the schema."""
        return tuple(dict.fromkeys(space for served, space in self._places.values() if served == table))

    def table(self, feature: str) -> str:
        """The table that holds the rows of a feature."""
        return self._place(feature)[0]

    def salt(self, feature: str) -> int:
        """What the ids of a feature are XORed with."""
        table, space = self._place(feature)
        if len(self.spaces(table)) == 1:
            return 0
        return int(kernels.hash_strings(pa.array([space])).hashes[0])

    def keys(self, feature: str, values: Sequence[Any] | NDArray[Any] | pa.Array) -> NDArray[np.int64]:
        """The keys of ids given as whole numbers or texts, None for a missing one (of buckets: of their numbers)."""
        salt = np.uint64(self.salt(feature))
        if feature in self._buckets:
            given = np.array([np.nan if each is None else each for each in values], np.float64)
            ids = bucketed(given, self._buckets[feature])
        else:
            column = values if isinstance(values, pa.Array) else pa.array(values)
            ids = column_ids(column, feature, text=self._ids[feature].text)
        return (ids ^ salt).view(np.int64)

    def _place(self, feature: str) -> tuple[str, str]:
        if feature not in self._places:
            raise InputError(f"feature {feature!r}: there is none; features are {', '.join(map(repr, self._places))}")
        return self._places[feature]


def bucketed(values: Floats, bucket: Bucket) -> U64:
    """The ids of numbers that become ids; MISSING where there is none."""
    ids = bucket_ids(values, bucket.bounds).view(np.uint64)
    gone = np.isnan(values)
    return np.where(gone, np.uint64(MISSING), ids) if gone.any() else ids


def column_ids(column: pa.Array, name: str, *, text: bool = False) -> U64:
    """The ids of a column of texts, whole numbers, booleans or times; MISSING where nothing is there."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _by_dictionary(column, name, text)
    if pa.types.is_null(kind):
        return np.full(len(column), MISSING, np.uint64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        column, kind = column.cast(pa.binary()), pa.binary()
    if kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        return kernels.string_ids(column, MISSING, text=text).ids
    whole = _whole_numbers(column, name)
    if text:
        return kernels.string_ids(whole.cast(pa.string()), MISSING, text=True).ids
    if whole.null_count == 0:
        ids: U64 = whole.to_numpy(zero_copy_only=False).view(np.uint64)
        return ids
    there: U64 = whole.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    return np.where(whole.is_null().to_numpy(zero_copy_only=False), np.uint64(MISSING), there)


def missing_in(column: pa.Array, ids: U64) -> int:
    """How many of a column's ids are missing; of whole numbers those are the nulls."""
    return int(column.null_count if pa.types.is_integer(column.type) else np.count_nonzero(ids == MISSING))


def has_its_values(column: pa.DictionaryArray) -> bool:
    """Whether every row of a column names a value that its dictionary has; a damaged file may hold others."""
    span = pc.min_max(column.indices)
    low, high = span["min"].as_py(), span["max"].as_py()
    return low is None or (low >= 0 and high < len(column.dictionary))


def check_dictionary(column: pa.DictionaryArray, name: str) -> None:
    """InputError where a row names a value beyond the dictionary."""
    if not has_its_values(column):
        raise InputError(f"column {name!r}: a row names a value that its dictionary does not have: is it damaged?")


def _by_dictionary(column: pa.DictionaryArray, name: str, text: bool) -> U64:
    check_dictionary(column, name)
    ids = np.append(column_ids(column.dictionary, name, text=text), np.uint64(MISSING))
    places: NDArray[np.int64] = column.indices.cast(pa.int64()).fill_null(len(ids) - 1).to_numpy(zero_copy_only=False)
    return ids[places]


def _whole_numbers(column: pa.Array, name: str) -> pa.Array:
    """The column as int64 or uint64."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column if kind in (pa.int64(), pa.uint64()) else column.cast(pa.int64())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):  # what pandas makes of whole numbers with holes
        return _whole_floats(column.cast(pa.float64()), name)
    remedy = "set several = true" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else "convert it first"
    raise InputError(f"column {name!r} is of {kind}: ids must be whole numbers, texts, booleans or times: {remedy}")


def _whole_floats(column: pa.Array, name: str) -> pa.Array:
    there = pc.if_else(pc.is_nan(column), None, column)
    odd = pc.or_(pc.not_equal(pc.floor(there), there), pc.greater(pc.abs(there), EXACT))
    if pc.any(odd).as_py():
        value = there.filter(odd.fill_null(False))[0].as_py()
        raise InputError(f"column {name!r} holds {value!r}: an id must be a whole number; is this a number column?")
    return there.cast(pa.int64())
