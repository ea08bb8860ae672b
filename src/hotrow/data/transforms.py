"""What numbers become before a model sees them."""

import numpy as np
from numpy.typing import NDArray

from hotrow.data.numbers import Floats
from hotrow.data.schema import Bucket, Log1p, Number, Plain, Standard
from hotrow.errors import InputError

LOWEST_BUCKET = -(2**62)  # numbers below share it: no smaller one could be counted


def transformed(values: Floats, number: Number) -> Floats:
    """The values after the column's transform; NaN, a missing one, stays NaN."""
    match number.transform:
        case Plain():
            return values
        case Log1p():
            return np.copysign(np.log1p(np.abs(values)), values)
        case Standard(mean=float() as mean, deviation=float() as deviation):
            return (values.astype(np.float64, copy=False) - mean) / deviation  # a large mean needs the digits
        case Standard():
            raise InputError(f"number {number.column!r}: its mean and deviation are not known yet: resolve the schema")
        case Bucket():
            raise InputError(f"number {number.column!r}: buckets are ids and no numbers")


def bucket_ids(values: Floats, bounds: tuple[float, ...] | None) -> NDArray[np.int64]:
    """The bucket of each number; any for NaN."""
    if bounds is not None:
        return np.searchsorted(np.array(bounds), values, side="right").astype(np.int64)
    there = np.nan_to_num(values.astype(np.float64, copy=False), nan=0.0)
    small = np.maximum(np.floor(there), LOWEST_BUCKET)
    large = np.floor(np.log(np.maximum(there, 2.0)) ** 2) + 3
    return np.where(there > 2, large, small).astype(np.int64)
