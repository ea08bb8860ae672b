"""From raw columns to batches of plain arrays: keys, numbers, labels. Whole columns at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hotrow.data.batch import F32, I64, Batch, FeatureBlock, Kind, Pooling
from hotrow.data.columns import Columns
from hotrow.data.keys import MISSING, U64, Keyspace, bucketed, column_ids, missing_in
from hotrow.data.labels import label_values
from hotrow.data.numbers import Floats, floats
from hotrow.data.schema import Ids, Schema
from hotrow.data.shown import shown
from hotrow.data.source import picked
from hotrow.data.times import times
from hotrow.data.transforms import transformed
from hotrow.errors import ConfigError, InputError

ROWS_AT_ONCE = 2048  # of a matrix that is filled column by column: they stay in the cache until all columns are in


@dataclass(frozen=True, slots=True)
class PartPlan:
    """A part of every batch, before there is one."""

    table: str
    kind: Kind
    features: tuple[str, ...]
    pooling: Pooling = "mean"


def plan_parts(schema: Schema) -> tuple[PartPlan, ...]:
    """Table by table in the order of first appearance: one-valued features, bags by pooling, then each sequence."""
    ones: dict[str, list[str]] = {}
    others: dict[str, list[Ids]] = {}
    for name, bucket in schema.bucketed.items():
        ones.setdefault(bucket.table, []).append(name)
    for feature in schema.ids:
        ones.setdefault(feature.table, []).extend([] if feature.many else [feature.name])
        others.setdefault(feature.table, []).extend([feature] if feature.many else [])
    plans: list[PartPlan] = []
    for table, names in ones.items():
        plans += [PartPlan(table, "one", tuple(names))] if names else []
        bags = [feature for feature in others.get(table, []) if feature.sequence is None]
        for pooling in dict.fromkeys(feature.pooling for feature in bags):
            pooled = tuple(feature.name for feature in bags if feature.pooling == pooling)
            plans.append(PartPlan(table, "bags", pooled, pooling))
        sequences = [feature for feature in others.get(table, []) if feature.sequence is not None]
        plans += [PartPlan(table, "sequence", (feature.name,)) for feature in sequences]
    return tuple(plans)


class Decoder:
    """Makes batches of what a source gives."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.parts = plan_parts(schema)
        self._ids = {feature.name: feature for feature in schema.ids}
        self._buckets = schema.bucketed
        space = Keyspace(schema)
        self._salts = {name: np.uint64(space.salt(name)) for plan in self.parts for name in plan.features}

    def shape(self, dims: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        """Names and dims of the fields, and of the sequences, in the order of the parts; `dims` are the tables'."""
        if lacking := [plan.table for plan in self.parts if plan.table not in dims]:
            raise ConfigError(f"tables: there is no table {lacking[0]!r}, which features use: add it, or rename theirs")
        fields = {name: dims[plan.table] for plan in self.parts if plan.kind != "sequence" for name in plan.features}
        sequences = {plan.features[0]: dims[plan.table] for plan in self.parts if plan.kind == "sequence"}
        return fields, sequences

    def batch(self, record: pa.RecordBatch, labels: bool = True) -> Batch:
        """One sample per row. Without labels their columns may be absent."""
        columns = picked(record, Columns.of(self.schema, labels), "data")
        counts = {"missing_ids": 0, "missing_numbers": 0, "cut_sequences": 0}
        parts = tuple(self._part(plan, columns, counts) for plan in self.parts)
        return Batch(
            parts,
            self._numbers(columns, counts),
            self._labels(columns) if labels else None,
            None
            if self.schema.group is None
            else column_ids(columns[self.schema.group], self.schema.group).view(np.int64),
            self._times(columns),
            counts,
            self._weights(columns) if labels else None,
        )

    def _part(self, plan: PartPlan, columns: pa.RecordBatch, counts: dict[str, int]) -> FeatureBlock:
        if plan.kind == "one":
            found = [self._one(name, columns, counts) for name in plan.features]
            keys = _side_by_side(found, [self._salts[name] for name in plan.features])
            return FeatureBlock(plan.table, "one", plan.features, keys.view(np.int64))
        bags = [self._many(name, columns, counts) for name in plan.features]
        keys, bounds = bags[0] if len(bags) == 1 else _interleaved(bags)
        return FeatureBlock(plan.table, plan.kind, plan.features, keys.view(np.int64), bounds, plan.pooling)

    def _one(self, name: str, columns: pa.RecordBatch, counts: dict[str, int]) -> U64:
        if name in self._buckets:
            values = _values(columns, name)
            counts["missing_numbers"] += int(np.count_nonzero(np.isnan(values)))
            return bucketed(values, self._buckets[name])
        feature = self._ids[name]
        column = columns[feature.column]
        ids = column_ids(column, feature.column, text=feature.text)
        counts["missing_ids"] += missing_in(column, ids)
        return ids

    def _many(self, name: str, columns: pa.RecordBatch, counts: dict[str, int]) -> tuple[U64, I64]:
        """Keys and bounds of one feature's bags; what is missing inside a bag is left out and counted."""
        feature = self._ids[name]
        values, bounds = _lists(columns[feature.column], feature)
        ids = column_ids(values, feature.column, text=feature.text)
        there = ids != MISSING
        if not there.all():
            counts["missing_ids"] += len(there) - int(np.count_nonzero(there))
            bounds = np.concatenate([[0], np.cumsum(there)])[bounds]
            ids = ids[there]
        if feature.sequence is not None:
            ids, bounds, cut = _last(ids, bounds, feature.sequence)
            counts["cut_sequences"] += cut
        return ids ^ self._salts[name], bounds

    def _numbers(self, columns: pa.RecordBatch, counts: dict[str, int]) -> F32:
        found: list[NDArray[Any]] = []
        for number in self.schema.dense:
            values = transformed(_values(columns, number.column), number)
            gone = np.isnan(values)
            missing = int(np.count_nonzero(gone))
            counts["missing_numbers"] += missing
            found.append(np.where(gone, number.missing, values) if missing else values)
            found += [gone] if number.flag_missing else []
        return _as_matrix(found, columns.num_rows)

    def _labels(self, columns: pa.RecordBatch) -> F32:
        found: list[NDArray[Any]] = []
        for label in self.schema.label:
            values, bad = label_values(columns[label.column], label)
            _check_good(columns[label.column], label.column, bad, "a number")
            if np.isnan(values).any():
                raise InputError(f"column {label.column!r} row {int(np.isnan(values).argmax())}: the label is missing")
            found.append(values)
        return _as_matrix(found, columns.num_rows)

    def _weights(self, columns: pa.RecordBatch) -> F32 | None:
        if (name := self.schema.weight) is None:
            return None
        values = _values(columns, name)
        if not (values >= 0).all():  # NaN is no weight either
            row = int((~(values >= 0)).argmax())
            raise InputError(
                f"column {name!r} row {row}: {shown(columns[name][row])!r} is no weight: must be 0 or more"
            )
        return values.astype(np.float32)

    def _times(self, columns: pa.RecordBatch) -> I64 | None:
        if self.schema.time is None:
            return None
        name = self.schema.time.column
        seconds, bad = times(columns[name], self.schema.time)
        _check_good(columns[name], name, bad, f"a time of format {self.schema.time.format!r}")
        return seconds


def _values(columns: pa.RecordBatch, name: str) -> Floats:
    values, bad = floats(columns[name], name)
    _check_good(columns[name], name, bad, "a number")
    return values


def _check_good(column: pa.Array, name: str, bad: NDArray[np.bool_] | None, what: str) -> None:
    """Sources leave such rows out; for other data the first one is an InputError."""
    if bad is not None:
        row = int(bad.argmax())
        raise InputError(f"column {name!r} row {row}: {shown(column[row])!r} is not {what}")


def _as_matrix(columns: list[NDArray[Any]], rows: int) -> F32:
    matrix = np.empty((rows, len(columns)), np.float32)
    for start in range(0, rows, ROWS_AT_ONCE):
        at_once = slice(start, start + ROWS_AT_ONCE)
        for place, column in enumerate(columns):
            matrix[at_once, place] = column[at_once]
    return matrix


def _side_by_side(columns: list[U64], salts: list[np.uint64]) -> U64:
    """[sample * columns + column]: the ids of each column, salted."""
    rows = len(columns[0])
    matrix = np.empty((rows, len(columns)), np.uint64)
    for start in range(0, rows, ROWS_AT_ONCE):
        at_once = slice(start, start + ROWS_AT_ONCE)
        for place, (column, salt) in enumerate(zip(columns, salts, strict=True)):
            np.bitwise_xor(column[at_once], salt, out=matrix[at_once, place])
    return matrix.reshape(-1)


def _lists(column: pa.Array, feature: Ids) -> tuple[pa.Array, I64]:
    """All values of a column of lists, or of texts that are lists, and where each row's begin."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if feature.separator is not None and not _is_list(kind):
        texts = column.cast(pa.string())
        column = pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), pattern=feature.separator)
    elif not _is_list(kind):  # one value per sample is a bag of one, or of none
        there = np.concatenate([[0], np.cumsum(column.is_valid().to_numpy(zero_copy_only=False))])
        return column.drop_null(), there.astype(np.int64)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return column.flatten(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType)


def _last(ids: U64, bounds: I64, most: int) -> tuple[U64, I64, int]:
    """The last `most` of each bag, and how many bags were cut."""
    lengths = np.diff(bounds)
    kept = np.minimum(lengths, most)
    cut = int(np.count_nonzero(lengths > most))
    if cut == 0:
        return ids, bounds, 0
    place = np.arange(len(ids)) - np.repeat(bounds[1:] - kept, lengths)
    return ids[place >= 0], np.concatenate([[0], np.cumsum(kept)]), cut


def _interleaved(bags: list[tuple[U64, I64]]) -> tuple[U64, I64]:
    """Bags of several features, sample by sample."""
    lengths = np.stack([np.diff(bounds) for _, bounds in bags], axis=1)
    bounds = np.concatenate([[0], np.cumsum(lengths.reshape(-1))])
    keys = np.empty(bounds[-1], np.uint64)
    for place, (own, own_bounds) in enumerate(bags):
        shift = bounds[:-1].reshape(lengths.shape)[:, place] - own_bounds[:-1]
        keys[np.arange(len(own)) + np.repeat(shift, lengths[:, place])] = own
    return keys, bounds
