"""Decoding again, one sample and one value at a time, in plain Python."""

import math
from typing import Any

from hotrow.data.schema import Bucket, Ids, Log1p, Number, Plain, Schema, Standard
from oracles.kernels import MASK, hash_bytes, string_id

MISSING = hash_bytes(b"")


def salt(schema: Schema, table: str, space: str) -> int:
    spaces = {name for name, bucket in schema.bucketed.items() if bucket.table == table}
    spaces |= {feature.space for feature in schema.ids if feature.table == table}
    return hash_bytes(space.encode()) if len(spaces) > 1 else 0


def id_of(value: Any, text: bool = False) -> int:
    if value is None or value == "":
        return MISSING
    if text or isinstance(value, str):
        return (hash_bytes if text else string_id)(str(value).encode())
    return int(value) & MASK


def bucket_of(value: float | None, bucket: Bucket) -> int:
    if value is None:
        return MISSING
    if bucket.bounds is not None:
        return sum(bound <= value for bound in bucket.bounds)
    return (math.floor(math.log(value) ** 2) + 3 if value > 2 else math.floor(value)) & MASK


def key_of_one(schema: Schema, name: str, row: dict[str, Any]) -> int:
    if name in schema.bucketed:
        bucket = schema.bucketed[name]
        return signed(bucket_of(row[name], bucket) ^ salt(schema, bucket.table, name))
    feature = _feature(schema, name)
    return signed(id_of(row[feature.column], feature.text) ^ salt(schema, feature.table, feature.space))


def keys_of_many(schema: Schema, name: str, row: dict[str, Any]) -> list[int]:
    feature = _feature(schema, name)
    given = row[feature.column]
    if feature.separator is not None and not isinstance(given, list):
        given = (given or "").split(feature.separator)
    there = [each for each in given or [] if each is not None and each != ""]
    there = there if feature.sequence is None else there[-feature.sequence :]
    by = salt(schema, feature.table, feature.space)
    return [signed(id_of(each, feature.text) ^ by) for each in there]


def numbers_of(schema: Schema, row: dict[str, Any]) -> list[float]:
    found: list[float] = []
    for number in schema.dense:
        value = row[number.column]
        found.append(number.missing if value is None else _transformed(value, number))
        found += [float(value is None)] if number.flag_missing else []
    return found


def _transformed(value: float, number: Number) -> float:
    match number.transform:
        case Plain():
            return value
        case Log1p():
            return math.copysign(math.log1p(abs(value)), value)
        case Standard(mean=float() as mean, deviation=float() as deviation):
            return (value - mean) / deviation
    raise AssertionError(number)


def _feature(schema: Schema, name: str) -> Ids:
    return next(feature for feature in schema.ids if feature.name == name)


def signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits
