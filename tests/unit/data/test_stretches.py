"""Several readers, each with its own stretches, make together the batches that one makes alone, in the same order."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.position import Mark, Position
from hotrow.data.reading import BatchRead, BatchReader, advanced, in_order
from hotrow.data.row_ranges import RowSpan, group_rows_of, read_ranges
from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource, Source
from hotrow.data.splits import Fraction, RowRange
from hotrow.data.stretches import ROWS_MOST, Assignment, assign, stretch_of
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.data.text import TextSource
from hotrow.errors import InputError
from profiles import examples

SCHEMA = Schema(label="click", ids=("row", {"column": "some", "several": True}), time={"column": "at", "format": "s"})


def table(rows: int) -> pa.Table:
    """Row r has the id r, r % 3 further ids, and none at all where r is a multiple of five."""
    numbers = range(rows)
    some = pa.array([[row * 10 + place for place in range(row % 3)] for row in numbers], pa.list_(pa.int64()))
    ids = pa.array([None if row % 5 == 0 else row for row in numbers], pa.int64())
    at = pa.array(numbers, pa.int64())
    return pa.table({"click": pa.array([row % 2 for row in numbers], pa.int8()), "row": ids, "some": some, "at": at})


def source_of(rows: int, block: int = 7) -> ArrowSource:
    return ArrowSource(table(rows).to_batches(block), SCHEMA)


def read_by(
    source: Source, position: Position, epochs: int | None, loaders: int, group_rows: int = 0
) -> Iterator[BatchRead]:
    stretch = stretch_of(position.batch, position.shuffle, group_rows or group_rows_of(source))
    assigned = assign(loaders, stretch)
    readers = [BatchReader(source, epochs=epochs, assignment=each).read(position) for each in assigned]
    return in_order(position, epochs, assigned[0], lambda loader: next(readers[loader]))


def listed(items: Iterator[BatchRead]) -> tuple[list[tuple[int, int, object]], dict[int, dict[str, int]]]:
    """Batches and ends, and the counts of each epoch."""
    found: list[tuple[int, int, object]] = []
    counts: dict[int, dict[str, int]] = {}
    for item in items:
        total = counts.setdefault(item.epoch, {})
        for name, number in item.counts.items():
            total[name] = total.get(name, 0) + number
        found.append((item.epoch, item.index, None if item.batch is None else contents(item.batch)))
    return found, counts


def contents(batch: object) -> list[list[float]]:
    parts = batch.parts  # type: ignore[attr-defined]
    arrays = [batch.labels, batch.times, *(each for part in parts for each in (part.keys, part.bounds))]  # type: ignore[attr-defined]
    return [np.asarray(each).tolist() for each in arrays if each is not None]


@settings(max_examples=examples(120), deadline=None)
@given(
    rows=st.integers(0, 60),
    batch=st.integers(1, 9),
    shuffle=st.integers(0, 14),
    epochs=st.integers(1, 2),
    drop_last=st.booleans(),
    loaders=st.integers(1, 4),
    group_rows=st.integers(1, 20),
    data=st.data(),
)
def test_loaders_make_together_what_one_makes_alone(
    rows: int,
    batch: int,
    shuffle: int,
    epochs: int,
    drop_last: bool,
    loaders: int,
    group_rows: int,
    data: st.DataObject,
) -> None:
    there = rows // batch if drop_last else -(-rows // batch)
    below = data.draw(st.integers(0, there))
    above = tuple(sorted(data.draw(st.sets(st.integers(below + 1, max(below + 1, there - 1)), max_size=3))))
    marks = (Mark(below=below, above=above if there - 1 > below else ()),)
    position = Position(batch=batch, shuffle=shuffle, seed=3, drop_last=drop_last, marks=marks)
    source = source_of(rows)
    assert listed(read_by(source, position, epochs, loaders, group_rows)) == listed(
        BatchReader(source, epochs=epochs).read(position)
    )


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.integers(1, 60),
    batch=st.integers(1, 9),
    shuffle=st.integers(0, 14),
    loaders=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    taken=st.integers(1, 40),
    above=st.sets(st.integers(1, 6), max_size=3),
)
def test_other_loaders_read_on_after_any_item(
    rows: int, batch: int, shuffle: int, loaders: tuple[int, int], taken: int, above: set[int]
) -> None:
    done = tuple(sorted(each for each in above if each < -(-rows // batch)))
    position = Position(batch=batch, shuffle=shuffle, marks=(Mark(below=0, above=done),))
    source = source_of(rows)
    alone, _ = listed(BatchReader(source, epochs=3).read(position))
    before = list(islice(read_by(source, position, 3, loaders[0]), taken))
    for item in before:
        position = advanced(position, item)
    after = read_by(source, position, 3, loaders[1])
    assert listed(chain(before, after))[0] == alone


@pytest.mark.parametrize("shuffle", [0, 64, 50])
def test_a_loader_reads_the_row_groups_of_its_own_stretches_only(tmp_path: Path, shuffle: int) -> None:
    """Whole shuffle windows, unless they are no whole batches: then those at both ends are read twice."""
    pq.write_table(table(1600), tmp_path / "x.parquet", row_group_size=64)
    decoded: list[int] = []

    class Counting(ParquetSource):
        def _group(self, file, opened, group, first, tally, names):  # type: ignore[no-untyped-def]
            for each in super()._group(file, opened, group, first, tally, names):
                decoded.append(each.num_rows)
                yield each

    source = Counting(tmp_path / "x.parquet", SCHEMA)
    position = Position(batch=16, shuffle=shuffle)
    alone = listed(BatchReader(source).read(position))
    assert sum(decoded) == 1600
    decoded.clear()
    assert listed(read_by(source, position, 1, 4)) == alone
    if shuffle == 50:
        assert 1600 < sum(decoded) <= 1600 * 2
    else:
        assert sum(decoded) == 1600


@pytest.mark.parametrize("loaders", [2, 3])
def test_sources_around_others_and_computed_ones_are_assigned_too(tmp_path: Path, loaders: int) -> None:
    pq.write_table(table(500), tmp_path / "x.parquet", row_group_size=40)
    inner = ParquetSource(tmp_path / "x.parquet", SCHEMA)
    config = SyntheticConfig(rows=40_000, features=2, days=2)
    days = list(SyntheticSource(config).days())
    sources: list[Source] = [
        RowRange(inner, 33, 401, exact=True),
        RowRange(inner, 100),
        Fraction(inner, 0.2, 0.9),
        SyntheticSource(config),
        days[0].train,
    ]
    for source in sources:
        position = Position(batch=24 if source.rows() != 40_000 else 3_000, shuffle=0)
        assert listed(read_by(source, position, 1, loaders)) == listed(BatchReader(source).read(position))


@pytest.mark.parametrize("wanted", [1601, 1680, 2000, 6000])
@pytest.mark.parametrize("loaders", [1, 3])
def test_rows_that_a_split_wants_and_the_source_lacks_are_the_same_sentence(
    tmp_path: Path, wanted: int, loaders: int
) -> None:
    pq.write_table(table(1600), tmp_path / "x.parquet", row_group_size=64)
    source = RowRange(ParquetSource(tmp_path / "x.parquet", SCHEMA), 0, wanted, exact=True)
    items = read_by(source, Position(batch=16), 1, loaders)
    assert [item.index for item in islice(items, 100)] == list(range(100))
    with pytest.raises(InputError, match=rf"wanted are {wanted:,} rows from row 0 on, but there are only 1,600 good"):
        next(items)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_loader_counts_all_malformed_rows_and_refuses_at_the_same_batch(tmp_path: Path, kind: str) -> None:
    clicks = [None if row % 100 == 7 else row % 2 for row in range(2000)]
    rows = pa.table({"click": clicks, "row": list(range(2000))})
    schema = Schema(label="click", ids=["row"])
    path = tmp_path / f"x.{kind}"
    if kind == "parquet":
        pq.write_table(rows, path, row_group_size=50)
    else:
        path.write_text("click,row\n" + "".join(f"{'' if c is None else c},{r}\n" for r, c in enumerate(clicks)))

    def opened(limit: float) -> Source:
        return (ParquetSource if kind == "parquet" else TextSource)(path, schema, limit=limit)

    for loaders in (1, 3):
        source = opened(0.5)
        listed(read_by(source, Position(batch=10), 1, loaders))
        assert source.trouble.malformed == 20, "each line counts once, however many loaders see it"
    found = {loaders: refused_at(opened(15), loaders) for loaders in (1, 3)}
    assert found[1] == found[3]


def refused_at(source: Source, loaders: int) -> tuple[int, str]:
    """How many batches came first, and the sentence up to the example: each loader shows what it has of a row."""
    given: list[BatchRead] = []
    with pytest.raises(InputError, match="malformed") as refused:
        given.extend(read_by(source, Position(batch=10), 1, loaders))
    return len(given), str(refused.value).partition(":")[0]


def test_data_that_shrank_since_a_position_is_refused_by_any_number_of_loaders() -> None:
    position = Position(batch=4, marks=(Mark(below=1, above=(7, 9)),))
    for loaders in (1, 2, 3):
        source = source_of(24)
        loader = Loader(source, 4, position=position)
        loader.remote = AssignedReading(source, loaders)
        with pytest.raises(InputError, match="batch 9 of epoch 0 is done, but there are only 6"):
            list(loader)


class AssignedReading:
    """Loaders in this process: a `RemoteReading` without a network."""

    def __init__(self, source: Source, loaders: int) -> None:
        self._source, self._loaders = source, loaders

    def read(self, position: Position):  # type: ignore[no-untyped-def]
        return read_by(self._source, position, 1, self._loaders)

    def release(self, batch: object) -> None: ...


def test_hosts_with_different_files_are_told_apart() -> None:
    given = zip((source_of(20), source_of(40)), assigned := assign(2, 1), strict=True)
    readers = [BatchReader(source, assignment=each).read(Position(batch=4)) for source, each in given]
    with pytest.raises(InputError, match="read different data: one has batch 7 of epoch 0, another only 6 batches"):
        list(in_order(Position(batch=4), 1, assigned[0], lambda loader: next(readers[loader])))


def test_ranges_are_cut_from_whatever_comes() -> None:
    ranges: list[RowSpan] = [(2, 5), (5, 6), (13, 30), (50, 60)]
    found = [
        row for first, batch in read_ranges(source_of(40), ranges) for row in batch["at"].cast("int64").to_pylist()
    ]
    assert found == [2, 3, 4, 5, *range(13, 30)]
    assert [first for first, _ in islice(read_ranges(source_of(40), ranges), 2)] == [2, 5]
    assert list(read_ranges(source_of(40), [])) == []


def test_a_stretch_is_whole_windows_where_they_are_whole_batches_and_bounded() -> None:
    assert stretch_of(16, 0) == 1
    assert stretch_of(16, 0, 100) == 7
    assert stretch_of(16, 64) == 4
    assert stretch_of(16, 64, 100) == 8
    assert stretch_of(16, 50) == 13
    assert stretch_of(16, 0, 2**20) == 2**20 // 16, "a row group as pyarrow writes it by default has one reader"
    assert stretch_of(16, 0, 2**30) == ROWS_MOST // 16
    assert [list(each) for each in islice(Assignment(1, 2, 3).stretches(4), 2)] == [[4, 5], [9, 10, 11]]
    assert [Assignment(0, 2, 3).owner(index) for index in range(8)] == [0, 0, 0, 1, 1, 1, 0, 0]
