"""Columns of any type as unix seconds, and which rows hold no time."""

from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotrow.data.numbers import F64, Mask, cast_or_null, is_text, numbers
from hotrow.data.schema import Time
from hotrow.data.shown import shown
from hotrow.errors import InputError

I64: TypeAlias = NDArray[np.int64]

FIRST_SECOND = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
LAST_SECOND = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # per second

_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?$"
_ZONE = r":[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


def times(column: pa.Array, time: Time) -> tuple[I64, Mask | None]:
    """Unix seconds, and which rows hold no time between the years 1 and 9999, if any."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        seconds, bad = _clock(column), nulls(column)
    elif time.format in ("auto", "s", "ms") and not is_text(kind):
        seconds, bad = _seconds(*numbers(column, time.column), time.format)
    elif not is_text(kind):
        raise InputError(f"time column {time.column!r} is of {kind}: format {time.format!r} reads texts only")
    else:
        seconds, bad = _times_of_text(column.cast(pa.string(), safe=False), time.format)
    bad = bad | (seconds < FIRST_SECOND) | (seconds > LAST_SECOND)
    return seconds, bad if bad.any() else None


def _times_of_text(column: pa.Array, form: str) -> tuple[I64, Mask]:
    if form in ("s", "ms"):
        return _seconds(*numbers(column, ""), form)
    if form != "auto":
        return _by_format(column, form)
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):  # nearly always one fits all rows
        try:
            return _of_kind(column.cast(kind), None)
        except pa.ArrowInvalid:
            continue
    return _mixed(column)


def _mixed(column: pa.Array) -> tuple[I64, Mask]:
    seconds, bad = np.zeros(len(column), np.int64), np.ones(len(column), bool)
    is_number = pc.match_substring_regex(column, _NUMBER).fill_null(False)
    has_zone = pc.and_not(pc.match_substring_regex(column, _ZONE).fill_null(False), is_number)
    is_plain = pc.invert(pc.or_(is_number, has_zone))
    kinds = ((is_number, pa.float64()), (has_zone, pa.timestamp("us", "UTC")), (is_plain, pa.timestamp("us")))
    for mask, kind in kinds:
        rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
        if len(rows):
            seconds[rows], bad[rows] = _of_kind(*cast_or_null(column.take(pa.array(rows)), kind))
    return seconds, bad


def _of_kind(column: pa.Array, bad: Mask | None) -> tuple[I64, Mask]:
    if pa.types.is_floating(column.type):
        return _seconds(column.to_numpy(zero_copy_only=False), bad, "s")
    return _clock(column), nulls(column)


def _seconds(values: F64, bad: Mask | None, form: str) -> tuple[I64, Mask]:
    whole = np.floor(values / TICKS["ms" if form == "ms" else "s"])
    lost = np.isnan(whole) | (np.abs(whole) > LAST_SECOND)  # the lower bound is nearer; it is looked at by the caller
    return np.where(lost, 0, whole).astype(np.int64), lost if bad is None else lost | bad


def _by_format(column: pa.Array, form: str) -> tuple[I64, Mask]:
    """Python's own strptime on each distinct text: exact about days that no month has."""
    encoded = column.dictionary_encode()
    read = [_read_time(text, form) for text in map(shown, encoded.dictionary)]
    found = pa.array(read, pa.int64()).take(encoded.indices)
    return found.fill_null(0).to_numpy(zero_copy_only=False), nulls(found)


def _read_time(text: str, form: str) -> int | None:
    try:
        moment = datetime.strptime(text, form)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 1)


def _clock(column: pa.Array) -> I64:
    """Seconds of timestamps or dates of any unit, rounded down; 0 where null."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    ticks: I64 = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return ticks // TICKS[column.type.unit]


def nulls(column: pa.Array) -> Mask:
    """Which rows hold nothing."""
    mask: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return mask
