"""Any record batches as a source, and the account of malformed rows."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource, Malformed, Source, Trouble
from hotrow.errors import InputError

SCHEMA = Schema(label="y", numbers=["n"], ids=["a"])


def batch(*values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"y": [1] * len(values), "n": list(values), "a": [str(each) for each in values]})


def names(source: Source, skip: int = 0) -> list[str]:
    return [row["a"] for each in source.read(skip) for row in each.to_pylist()]


def test_a_function_is_called_for_each_reading() -> None:
    calls = []

    def batches() -> Iterator[pa.RecordBatch]:
        calls.append(1)
        yield batch(1, 2)
        yield batch()
        yield batch(3)

    source = ArrowSource(batches, SCHEMA, rows=3)
    assert names(source) == names(source) == ["1", "2", "3"]
    assert len(calls) == 2
    assert source.rows() == 3
    assert [names(source, skip) for skip in range(1, 5)] == [["2", "3"], ["3"], [], []]


def test_lists_tables_and_single_batches_may_be_read_again() -> None:
    table = pa.Table.from_batches([batch(1, 2), batch(3)])
    for given in ([batch(1, 2), batch(3)], table, [table], pa.RecordBatchReader.from_batches):
        made = (
            given
            if not callable(given)
            else lambda: pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
        )
        source = ArrowSource(made, SCHEMA)
        assert names(source) == names(source) == ["1", "2", "3"]
    assert names(ArrowSource(batch(5), SCHEMA)) == ["5"]


def test_an_iterator_is_read_once_and_then_refused() -> None:
    once = ArrowSource(iter([batch(1), batch(2)]), SCHEMA)
    assert names(once) == ["1", "2"]
    sentence = "batches: this iterator was read before and cannot be read again: give a function that makes a new one"
    with pytest.raises(InputError, match=sentence):
        names(once)
    kept = iter([batch(1)])
    same = ArrowSource(lambda: kept, SCHEMA, name="topic")
    assert names(same) == ["1"]
    with pytest.raises(InputError, match="topic: this iterator was read before"):
        names(same)


def test_rows_that_cannot_be_used_are_counted_by_their_number() -> None:
    source = ArrowSource([batch("1", "x"), batch("2", None, "y")], SCHEMA, limit=2, name="topic")
    assert names(source) == names(source) == ["1", "2", "None"]
    assert source.trouble.malformed == 2
    assert source.trouble.first == [
        Malformed("topic", 2, "n 'x' is no number", "y=1, n='x', a='x'"),
        Malformed("topic", 5, "n 'y' is no number", "y=1, n='y', a='y'"),
    ]
    assert str(source.trouble.first[0]) == "topic line 2: n 'x' is no number (\"y=1, n='x', a='x'\")"
    with pytest.raises(InputError, match="2 of the first 5 lines are malformed, the limit is 1 lines: topic line 2"):
        names(ArrowSource([batch("1", "x"), batch("2", None, "y")], SCHEMA, limit=1, name="topic"))


def test_other_columns_are_left_out_and_missing_ones_told() -> None:
    wide = pa.RecordBatch.from_pydict({"z": [1], "a": ["q"], "y": [0], "n": [2]})
    (found,) = ArrowSource([wide], SCHEMA).read()
    assert found.schema.names == ["y", "n", "a"]
    with pytest.raises(InputError, match="batches: there is no column 'n'; its columns are 'y', 'a'"):
        names(ArrowSource([wide.select(["y", "a"])], SCHEMA))
    assert names(ArrowSource([wide.select(["n", "a"])], SCHEMA, labels=False)) == ["q"]


def test_trouble_knows_what_it_has_seen_of_each_file() -> None:
    trouble = Trouble()
    fault = Malformed("a", 3, "no", "x")
    trouble.note("a", 5, [fault], blank=[4])
    trouble.note("a", 5, [fault], blank=[4])
    trouble.note("b", 5, [Malformed("b", 3, "no", "x")])
    trouble.note("a", 9, [fault, Malformed("a", 7, "no", "x")], blank=[4, 8])
    assert (trouble.malformed, trouble.blank, len(trouble.first)) == (3, 2, 3)
