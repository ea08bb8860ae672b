"""Parquet files: types, streaming, jumps over row groups, faults."""

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.data.columns import Columns
from hotrow.data.decode import Decoder
from hotrow.data.files import File
from hotrow.data.keys import Keyspace
from hotrow.data.parquet import ParquetSource, is_faultless
from hotrow.data.schema import Ids, Schema, Time
from hotrow.data.times import LAST_SECOND
from hotrow.errors import InputError
from profiles import examples

SCHEMA = Schema(label="y", numbers=["n"], ids=["a"])


def write(path: Path, columns: dict[str, Any], group: int = 10) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def rows(source: ParquetSource, skip: int = 0) -> list[dict[str, Any]]:
    return [row for batch in source.read(skip) for row in batch.to_pylist()]


def test_columns_of_every_type_are_read_as_they_are(tmp_path: Path) -> None:
    schema = Schema(
        label="y",
        numbers=["f"],
        ids=["i", "s", "d", "b", Ids(column="l"), Ids(column="l", name="last", sequence=1)],
        time="t",
    )
    path = write(
        tmp_path / "a.parquet",
        {
            "y": pa.array([True, False, True]),
            "f": pa.array([1.5, None, float("nan")], pa.float32()),
            "i": pa.array([2**40, None, -1]),
            "s": pa.array(["x", "", "7"]),
            "d": pa.array(["p", None, "q"]).dictionary_encode(),
            "b": pa.array([True, None, False]),
            "l": pa.array([[1, 2], None, [3]], pa.list_(pa.int32())),
            "t": pa.array([datetime(2020, 1, 1)] * 3, pa.timestamp("us")),
            "unread": pa.array([1, 2, 3]),
        },
    )
    source = ParquetSource(path, schema)
    assert source.schema.ids[4].several
    assert source.schema.ids[5].several
    (record,) = source.read()
    assert record.schema.names == ["y", "f", "i", "s", "d", "b", "l", "t"]
    batch = Decoder(source.schema).batch(record)
    assert batch.labels is not None
    assert batch.labels[:, 0].tolist() == [1, 0, 1]
    assert batch.numbers[:, 0].tolist() == [1.5, 0, 0]
    assert batch.times is not None
    assert batch.times.tolist() == [1577836800] * 3
    assert batch.counts == {"missing_ids": 4, "missing_numbers": 2, "cut_sequences": 1}
    one, bags, sequence = batch.parts
    space = Keyspace(source.schema)
    assert one.keys.reshape(3, 4)[:, 0].tolist() == space.keys("i", [2**40, None, -1]).tolist()
    assert one.keys.reshape(3, 4)[:, 1].tolist() == space.keys("s", ["x", None, "7"]).tolist()
    assert bags.keys.tolist() == space.keys("l", [1, 2, 3]).tolist()
    assert sequence.keys.tolist() == space.keys("last", [2, 3]).tolist()


def columns(values: list[int | None], numbers: list[float | None]) -> dict[str, Any]:
    count = len(values)
    return {
        "y": pa.array(values, pa.int64()),
        "n": pa.array(numbers, pa.float64()),
        "a": pa.array([f"r{row}" for row in range(count)]),
    }


def test_several_files_are_read_one_after_the_other_and_again(tmp_path: Path) -> None:
    for name, count in (("a", 25), ("b", 7)):
        write(tmp_path / f"{name}.parquet", columns([1] * count, [0.5] * count))
    source = ParquetSource(str(tmp_path / "?.parquet"), SCHEMA)
    assert source.rows() == 32
    whole = rows(source)
    assert [row["a"] for row in whole] == [f"r{row}" for row in (*range(25), *range(7))]
    for skip in (0, 1, 9, 10, 11, 24, 25, 26, 31, 32, 40):
        assert rows(source, skip) == whole[skip:]


labels = st.sampled_from([0, 1, 1, 1, None])
values = st.sampled_from([0.5, 1.0, 2.0, None, float("inf"), 1e300, float("nan")])


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(labels, values), min_size=1, max_size=30), st.integers(1, 8), st.integers(0, 31))
def test_skipping_equals_reading_and_dropping(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Any], group: int, skip: int
) -> None:
    path = write(
        tmp_path_factory.mktemp("d") / "a.parquet", columns([y for y, _ in pairs], [n for _, n in pairs]), group
    )
    good = [f"r{row}" for row, (y, n) in enumerate(pairs) if y is not None and (n is None or n != n or abs(n) < 1e38)]
    source = ParquetSource(path, SCHEMA, limit=1000)
    if not good:
        with pytest.raises(InputError, match="nothing else was found"):
            rows(source)
        return
    assert [row["a"] for row in rows(source, skip)] == good[skip:]
    assert [row["a"] for row in rows(source)] == good
    assert source.trouble.malformed == len(pairs) - len(good)


def test_rows_that_cannot_be_used_are_named_by_their_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", columns([1, None, 0, 1], [1.0, 1.0, float("inf"), None]), group=2)
    source = ParquetSource(path, SCHEMA, limit=2)
    assert [row["a"] for row in rows(source)] == ["r0", "r3"]
    first, second = source.trouble.first
    assert (first.line, first.reason, first.text) == (2, "y is missing", "y=None, n=1.0, a='r1'")
    assert (second.line, second.reason) == (3, "n 'inf' is no number")
    with pytest.raises(InputError, match=r"a\.parquet line 2: y is missing"):
        rows(ParquetSource(path, SCHEMA, limit=1))


def read_columns(
    source: ParquetSource, skip: int, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, tuple[str, ...]]]:
    """The row groups that a reading touches, with the columns of each; a look at one row apart."""
    touched = []
    real = pq.ParquetFile.iter_batches

    def watched(self: Any, size: int, *, row_groups: list[int], columns: list[str], **more: Any) -> Any:
        if size > 1:
            touched.append((row_groups[0], tuple(columns)))
        return real(self, size, row_groups=row_groups, columns=columns, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    list(source.read(skip))
    return touched


def test_row_groups_before_the_first_row_are_jumped_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", columns([1] * 30, [1.0] * 30))
    for skip in (20, 25, 29):
        assert read_columns(ParquetSource(path, SCHEMA), skip, monkeypatch) == [(2, ("y", "n", "a"))]
        monkeypatch.undo()


def test_of_a_row_group_with_faults_only_what_decides_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", columns([1] * 10 + [None] + [1] * 19, [1.0] * 30))
    touched = read_columns(ParquetSource(path, SCHEMA, limit=9), 22, monkeypatch)
    assert touched == [(1, ("y", "n")), (2, ("y", "n", "a"))]


@pytest.mark.parametrize(
    ("column", "time", "expected"),
    [
        (pa.array([0, 1]), None, True),
        (pa.array([True, False]), None, True),
        (pa.array([0, None]), None, False),
        (pa.array([0.0, 1.0]), None, False),  # NaN would not show in the statistics
        (pa.array(["0", "1"]), None, False),
        (pa.array([0, LAST_SECOND]), "s", True),
        (pa.array([0, LAST_SECOND + 1]), "s", False),
        (pa.array([0, LAST_SECOND * 1000]), "ms", True),
        (pa.array([0, LAST_SECOND]), "%y", False),
        (pa.array([0, LAST_SECOND], pa.timestamp("s")), "auto", True),
        (pa.array([0, 2**62], pa.timestamp("us")), "auto", False),
        (pa.array(["2020-01-01", "2020-01-02"]), "auto", False),
    ],
)
def test_statistics_promise_only_what_they_can(column: Any, time: str | None, expected: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"c": column, "a": [1, 2]})
    schema = (
        Schema(label="c", ids=["a"])
        if time is None
        else Schema(label="y", ids=["a"], time=Time(column="c", format=time))
    )
    file = pq.ParquetFile(path)
    found = is_faultless(file, 0, Columns.of(schema, labels=time is None))
    assert found is expected


def test_files_without_statistics_promise_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": [1, 0], "n": [1.0, 2.0]}), tmp_path / "a.parquet", write_statistics=False)
    file = pq.ParquetFile(tmp_path / "a.parquet")
    for schema in (Schema(label="y", ids=["a"]), Schema(label="l", numbers=["n"])):
        of = Columns.of(schema, labels=schema.label[0].column == "y").instead(without=["a"])
        assert not is_faultless(file, 0, of)


def test_without_labels_their_column_may_be_absent(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"n": [1.0], "a": ["x"]})
    assert rows(ParquetSource(path, SCHEMA, labels=False)) == [{"n": 1.0, "a": "x"}]
    with pytest.raises(InputError, match=r"a\.parquet: there is no label column 'y'; its columns are 'n', 'a'"):
        ParquetSource(path, SCHEMA)


def test_names_with_dots_are_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"a.b": [1], "y.z": [0]})
    assert rows(ParquetSource(path, Schema(label="y.z", ids=["a.b"]))) == [{"y.z": 0.0, "a.b": 1}]


def test_what_is_no_parquet_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"nonsense, and long enough to have a footer")
    with pytest.raises(InputError, match=r"a\.parquet: is no Parquet file that can be read"):
        ParquetSource(tmp_path / "a.parquet", SCHEMA)


def test_a_damaged_row_group_is_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = write(
        tmp_path / "a.parquet", {"y": rng.integers(0, 2, 5000), "n": rng.random(5000), "a": rng.integers(0, 9, 5000)}
    )
    data = bytearray(path.read_bytes())
    data[100:4000] = bytes(3900)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.parquet row group 0: cannot be read"):
        rows(ParquetSource(path, SCHEMA))


def test_memory_does_not_grow_with_the_row_groups(tmp_path: Path) -> None:
    count = 1_000_000
    numbers = np.random.default_rng(0).integers(0, 2**60, count)
    table = pa.table({"y": np.ones(count, np.int8), "n": numbers.astype(np.float64), "a": numbers})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=count, use_dictionary=False)
    del table
    before, most = pa.total_allocated_bytes(), 0
    for _ in ParquetSource(tmp_path / "a.parquet", SCHEMA).read():
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 6 * 2**20  # the row group has 17 MB


def test_integers_in_parquet_and_in_text_name_the_same_rows(tmp_path: Path) -> None:
    from hotrow.data.text import TextSource

    (tmp_path / "a.csv").write_text("y,n,a\n1,2,42\n0,,-7\n1,3,\n")
    path = write(tmp_path / "a.parquet", {"y": [1, 0, 1], "n": [2, None, 3], "a": [42, -7, None]})
    decoder = Decoder(SCHEMA)
    (text,), (typed,) = TextSource(tmp_path / "a.csv", SCHEMA).read(), ParquetSource(path, SCHEMA).read()
    one, other = decoder.batch(text), decoder.batch(typed)
    assert one.parts[0].keys.tolist() == other.parts[0].keys.tolist()
    assert one.numbers.tolist() == other.numbers.tolist()


class CountingFileSystem:
    """Files of this machine as if they were far away; the bytes that are read of them are counted."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(CountingFile(path, self), mode="r")


class CountingFile(io.BytesIO):
    def __init__(self, path: str, counter: CountingFileSystem) -> None:
        super().__init__(Path(path).read_bytes())
        self._counter = counter

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self._counter.bytes_read += len(found)
        return found


def test_row_groups_that_are_jumped_over_cost_a_page_of_a_far_file_and_not_their_chunks(tmp_path: Path) -> None:
    count, group = 2_000_000, 1_000_000
    numbers = np.random.default_rng(0).random(count, np.float32)
    path = tmp_path / "a.parquet"
    table = pa.table({"y": np.ones(count, np.int8), "n": numbers, "a": np.zeros(count, np.int8)})
    pq.write_table(table, path, row_group_size=group, compression="none", use_dictionary=False)
    filesystem = CountingFileSystem()
    source = ParquetSource(File("far", str(path), filesystem), SCHEMA)
    filesystem.bytes_read = 0
    assert list(source.read(count)) == []
    assert 0 < filesystem.bytes_read < path.stat().st_size / 3
