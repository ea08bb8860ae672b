"""Splits share no row and lose none, days follow each other, and what cannot be is told."""

import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from hotrow.data.files import find_files
from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource, Source
from hotrow.data.splits import (
    DaysSplit,
    Fraction,
    FractionSplit,
    NextDay,
    RowRange,
    RowsSplit,
    SplitConfig,
    TimeRange,
    TimeSplit,
    day_by_day,
    days,
    days_of,
    file_days,
    split,
)
from hotrow.data.text import TextSource
from hotrow.errors import ConfigError, InputError
from hotrow.spec import Spec
from profiles import examples

SCHEMA = Schema(label="click", ids=("row",), time={"column": "at", "format": "s"})
HOUR, DAY = 3600, 86_400
START = int(datetime(2017, 11, 6, tzinfo=UTC).timestamp())


def source(times: list[int], block: int = 7, *, known: int | None = None, schema: Schema = SCHEMA) -> ArrowSource:
    """Row r happened at times[r]."""
    numbers = pa.array(range(len(times)), pa.int64())
    table = pa.table({"click": pa.array([0] * len(times)), "row": numbers, "at": pa.array(times, pa.int64())})
    return ArrowSource(table.to_batches(block), schema, rows=known)


def hourly(rows: int, step: int = HOUR, **about: Any) -> ArrowSource:
    return source([START + row * step for row in range(rows)], **about)


def rows_of(part: Source | None, skip: int = 0) -> list[Any]:
    assert part is not None
    return [row for batch in part.read(skip) for row in batch["row"].to_pylist()]


# Ranges of rows


@settings(max_examples=examples(60))
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40), st.integers(0, 30), st.integers(1, 9))
def test_a_row_range_is_a_slice(rows: int, start: int, length: int, skip: int, block: int) -> None:
    part = RowRange(hourly(rows, block=block, known=rows), start, start + length)
    assert rows_of(part, skip) == list(range(rows))[start : start + length][skip:]
    assert part.rows() == len(rows_of(part))
    open_end = RowRange(hourly(rows, block=block), start)
    assert rows_of(open_end, skip) == list(range(rows))[start:][skip:]
    assert open_end.rows() is None


def test_an_exact_range_tells_when_rows_are_missing() -> None:
    assert len(rows_of(RowRange(hourly(20), 5, 20, exact=True))) == 15
    with pytest.raises(InputError, match="wanted are 16 rows from row 5 on, but there are only 15 good ones"):
        rows_of(RowRange(hourly(20), 5, 21, exact=True))
    with pytest.raises(InputError, match="wanted are rows from row 20 on, but there are only 0 good ones"):
        rows_of(RowRange(hourly(20), 20, exact=True))
    assert rows_of(RowRange(hourly(20), 19, exact=True)) == [19]
    with pytest.raises(ConfigError, match="stop=3"):
        RowRange(hourly(20), 4, 3)


# Fractions


@settings(max_examples=examples(50))
@given(
    st.integers(0, 300), st.integers(1, 60), st.lists(st.floats(0.05, 0.95), max_size=3, unique=True), st.integers(0, 9)
)
def test_fractions_are_disjoint_and_exhaustive(rows: int, block: int, cuts: list[float], seed: int) -> None:
    bounds = [0.0, *sorted(cuts), 1.0]
    whole = hourly(rows, block=block, known=rows)
    parts = [Fraction(whole, low, high, seed) for low, high in pairwise(bounds)]
    found = [rows_of(part) for part in parts]
    assert sorted(chain(*found)) == list(range(rows))
    assert [part.rows() for part in parts] == [len(each) for each in found]


@settings(max_examples=examples(30))
@given(st.integers(0, 200), st.integers(1, 60), st.integers(0, 120))
def test_a_fraction_skips_its_own_rows(rows: int, block: int, skip: int) -> None:
    part = Fraction(hourly(rows, block=block), 0.2, 0.7, seed=5)
    assert rows_of(part, skip) == rows_of(part)[skip:]


def test_a_fraction_is_of_about_its_size_and_depends_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Fraction(hourly(20_000, block=5000, known=20_000), 0.1, 0.3, seed=1)
    assert abs(len(rows_of(part)) - 4000) < 5 * np.sqrt(20_000 * 0.2 * 0.8)
    assert rows_of(part) != rows_of(Fraction(part.source, 0.1, 0.3, seed=2))
    assert rows_of(part, 3000) == rows_of(part)[3000:]
    monkeypatch.setattr("hotrow.data.splits.ranges.COUNTED_AT_ONCE", 97)  # many blocks of row numbers
    assert rows_of(part, 3000) == rows_of(part)[3000:]
    assert part.rows() == len(rows_of(part))
    monkeypatch.setattr("hotrow.data.splits.ranges.COUNTED_MOST", 19_999)
    assert part.rows() is None


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.5), (0.5, 0.5), (0.5, 1.1), (0.7, 0.2)])
def test_a_fraction_that_cannot_be_is_refused(low: float, high: float) -> None:
    with pytest.raises(ConfigError, match=f"low={low}, high={high}"):
        Fraction(hourly(10), low, high)


# Ranges of time


def test_a_time_range_begins_with_since_and_ends_before_until() -> None:
    part = TimeRange(hourly(96), date(2017, 11, 7), date(2017, 11, 8))
    assert rows_of(part) == list(range(24, 48))
    assert rows_of(part, 20) == list(range(44, 48))
    assert rows_of(part, 24) == []
    assert rows_of(TimeRange(hourly(96), None, date(2017, 11, 7))) == list(range(24))
    assert rows_of(TimeRange(hourly(96), datetime(2017, 11, 9, 20))) == list(range(92, 96))
    elsewhere = datetime.fromisoformat("2017-11-07T08:00:00+08:00")
    assert rows_of(TimeRange(hourly(96), elsewhere, date(2017, 11, 8))) == list(range(24, 48))
    assert part.rows() is None


def test_times_are_read_from_texts_too(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "click,row,at\n0,0,2017-11-06 23:59:59\n1,1,2017-11-07 00:00:00\n0,2,2017-11-07 23:59:59\n1,x,soon\n"
    )
    text = TextSource(find_files(path), Schema(label="click", ids=("row",), time="at"))
    part = TimeRange(text, date(2017, 11, 7), date(2017, 11, 8))
    assert rows_of(part) == ["1", "2"]
    assert part.trouble.malformed == 1


def test_a_time_without_rows_is_told_with_the_times_there_are() -> None:
    span = "they are from 2017-11-06 00:00:00 UTC to 2017-11-06 09:00:00 UTC"
    with pytest.raises(InputError, match=f"no row from 2017-11-07 00:00:00 UTC on and before .*: {span}"):
        rows_of(TimeRange(hourly(10), date(2017, 11, 7), date(2017, 11, 8)))
    with pytest.raises(InputError, match=f"no row before 2017-11-06 00:00:00 UTC: {span}"):
        rows_of(TimeRange(hourly(10), None, date(2017, 11, 6)))
    with pytest.raises(InputError, match="there are no rows at all"):
        rows_of(TimeRange(hourly(0), date(2017, 11, 7)))


def test_a_time_range_needs_a_time_and_an_order() -> None:
    timeless = hourly(10, schema=Schema(label="click", ids=("row",)))
    with pytest.raises(ConfigError, match="no time column"):
        TimeRange(timeless, date(2017, 11, 7))
    with pytest.raises(ConfigError, match="until=2017-11-07: must be later"):
        TimeRange(hourly(10), date(2017, 11, 7), date(2017, 11, 7))


# Settings


def parsed(text: str) -> Any:
    class Section(Spec):
        split: SplitConfig

    return Section(**tomllib.loads(text)).split


def test_rows_are_cut_in_order() -> None:
    parts = split(hourly(20), parsed('split = { by = "rows", train = 10, valid = 4, test = 6 }'))
    assert [rows_of(part) for part in (parts.train, parts.valid, parts.test)] == [
        list(range(10)),
        list(range(10, 14)),
        list(range(14, 20)),
    ]
    rest = split(hourly(20), RowsSplit(train=15))
    assert rest.valid is None
    assert rows_of(rest.test) == list(range(15, 20))
    assert split(hourly(20), RowsSplit(train=15, test=0)).test is None


def test_fractions_cut_everything_and_the_test_rows_stay_when_validation_changes() -> None:
    parts = split(hourly(500), parsed('split = { by = "fraction", valid = 0.2, test = 0.1, seed = 7 }'))
    assert sorted(rows_of(parts.train) + rows_of(parts.valid) + rows_of(parts.test)) == list(range(500))
    without = split(hourly(500), FractionSplit(test=0.1, seed=7))
    assert without.valid is None
    assert rows_of(without.test) == rows_of(parts.test)
    assert split(hourly(500), FractionSplit(valid=0.1)).test is None


def test_a_day_is_tested_on_and_what_is_before_trains() -> None:
    parts = split(hourly(96), parsed('split = { by = "time", test = 2017-11-09 }'))
    assert rows_of(parts.train) == list(range(72))
    assert rows_of(parts.test) == list(range(72, 96))
    assert parts.valid is None
    text = 'split = { by = "time", test = { since = "2017-11-09T12:00:00" }, valid = "2017-11-08" }'
    parts = split(hourly(96), parsed(text))
    assert rows_of(parts.train) == list(range(48))
    assert rows_of(parts.valid) == list(range(48, 72))
    assert rows_of(parts.test) == list(range(84, 96))


REFUSED = {
    "unknown": ('split = { by = "moon" }', "there is none of this name"),
    "no train": ('split = { by = "rows" }', "train is missing"),
    "rows below zero": ('split = { by = "rows", train = 1, test = -2 }', "test=-2 must be a number of rows"),
    "all tested": ('split = { by = "fraction", valid = 0.5, test = 0.5 }', "leave nothing to train on"),
    "none tested": ('split = { by = "fraction" }', "leave nothing to split off"),
    "a bad day": ('split = { by = "time", test = "2017-02-30" }', "is no time .*: write a day as 2017-11-09"),
    "no day": ('split = { by = "time", test = 9 }', "is no time: write a day"),
    "a moment": ('split = { by = "time", test = 2017-11-09T10:00:00 }', "is a moment and no day"),
    "overlap": (
        'split = { by = "time", test = 2017-11-09, valid = { since = 2017-11-08, until = 2017-11-10 } }',
        "test and valid overlap",
    ),
    "backwards": ('split = { by = "time", test = { since = 2017-11-09, until = 2017-11-08 } }', "must be later than"),
    "both": ('split = { by = "days", first = 2017-11-09, last = 2 }', "leave one out"),
    "a bad first": ('split = { by = "days", first = "soon" }', "is no time"),
    "no last": ('split = { by = "days", last = 0 }', "greater than or equal to 1"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_split_that_cannot_be_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parsed(text)


def test_validation_may_end_where_the_test_begins() -> None:
    text = 'split = { by = "time", test = 2017-11-09, valid = { since = 2017-11-08, until = 2017-11-09 } }'
    assert isinstance(parsed(text), TimeSplit)


def test_days_are_no_single_split() -> None:
    with pytest.raises(ConfigError, match="by='days'"):
        split(hourly(96), parsed('split = { by = "days" }'))


def test_settings_come_back_from_json() -> None:
    for text in ('split = { by = "time", test = 2017-11-09 }', 'split = { by = "days", first = 2017-11-09 }'):
        config = parsed(text)
        assert TypeAdapter(SplitConfig).validate_python(config.model_dump(mode="json")) == config


# Day after day


@pytest.fixture(params=["held", "streamed"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "streamed":
        monkeypatch.setattr(days, "HELD_ROWS", 3)
    return str(request.param)


def plan(each: Iterator[days.Day]) -> list[tuple[str, list[int], list[int]]]:
    return [(day.name, sorted(rows_of(day.train)), sorted(rows_of(day.test))) for day in each]


@pytest.mark.usefixtures("kept")
def test_every_day_is_tested_on_before_it_is_trained_on() -> None:
    expected = [
        ("2017-11-07", list(range(24)), list(range(24, 48))),
        ("2017-11-08", list(range(24, 48)), list(range(48, 72))),
        ("2017-11-09", list(range(48, 72)), list(range(72, 90))),
    ]
    assert plan(day_by_day(hourly(90))) == expected
    assert plan(day_by_day(hourly(90, known=90))) == expected
    late = [("2017-11-08", list(range(48)), list(range(48, 72))), expected[2]]
    assert plan(day_by_day(hourly(90), DaysSplit(first=date(2017, 11, 8)))) == late
    assert plan(day_by_day(hourly(90), DaysSplit(last=2))) == late
    assert [day.date for day in day_by_day(hourly(90), DaysSplit(last=1))] == [date(2017, 11, 9)]


@pytest.mark.usefixtures("kept")
def test_days_without_rows_do_not_count() -> None:
    gap = source([START, START + 1, START + 3 * DAY, START + 5 * DAY + HOUR])
    assert days_of(gap) == [date(2017, 11, 6), date(2017, 11, 9), date(2017, 11, 11)]
    assert plan(day_by_day(gap)) == [("2017-11-09", [0, 1], [2]), ("2017-11-11", [2], [3])]
    with pytest.raises(
        ConfigError, match=r"split\.first=2017-11-08: no row is of this day; the data has 3 days with rows"
    ):
        list(day_by_day(gap, DaysSplit(first=date(2017, 11, 8))))


@pytest.mark.usefixtures("kept")
def test_there_must_be_a_day_before_the_first_test_day() -> None:
    with pytest.raises(ConfigError, match="a day to train on must come before"):
        list(day_by_day(hourly(90), DaysSplit(first=date(2017, 11, 6))))
    with pytest.raises(ConfigError, match=r"split\.last=4: a day to train on"):
        list(day_by_day(hourly(90), DaysSplit(last=4)))
    with pytest.raises(ConfigError, match="the data has 1 days with rows"):
        list(day_by_day(hourly(20)))


@settings(max_examples=examples(30))
@given(st.lists(st.integers(0, 6 * 24), min_size=1, max_size=60), st.integers(1, 9))
def test_an_unsorted_file_is_taken_day_by_day_held_or_streamed(hours: list[int], block: int) -> None:
    times = [START + hour * HOUR for hour in hours]
    by_day: dict[date, list[int]] = {}
    for row, hour in enumerate(hours):
        by_day.setdefault(date(2017, 11, 6) + timedelta(days=hour // 24), []).append(row)
    if len(by_day) < 2:
        return
    order = sorted(by_day)
    expected = [(str(day), by_day[before], by_day[day]) for before, day in pairwise(order)]
    assert plan(day_by_day(source(times, block))) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(days, "HELD_ROWS", 0)
        assert plan(day_by_day(source(times, block))) == expected


def test_held_days_are_sorted_by_time_and_the_source_is_read_once() -> None:
    times = [START + second for second in (DAY + 9, 5, DAY + 2, 5, DAY + 9, 1)]
    reads = 0
    inner = source(times)

    class Once:
        schema, trouble, rows = inner.schema, inner.trouble, staticmethod(inner.rows)

        def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
            nonlocal reads
            reads += 1
            yield from inner.read(skip)

    (day,) = day_by_day(Once())
    assert rows_of(day.train) == [5, 1, 3]
    assert rows_of(day.test) == [2, 0, 4]
    assert rows_of(day.test, 2) == [4]
    assert day.test.rows() == 3
    assert reads == 1


def test_held_rows_of_the_same_second_keep_their_order() -> None:
    seconds = np.random.default_rng(0).integers(0, 5, 2000)
    times = (START + np.where(np.arange(2000) < 1990, seconds, DAY)).tolist()
    (day,) = day_by_day(source(times, 300))
    assert rows_of(day.train) == sorted(range(1990), key=lambda row: (times[row], row))


def test_days_need_rows_and_a_time() -> None:
    with pytest.raises(InputError, match="there are no rows at all"):
        list(day_by_day(hourly(0)))
    with pytest.raises(ConfigError, match="no time column"):
        list(day_by_day(hourly(9, schema=Schema(label="click", ids=("row",)))))


def test_files_can_be_days_without_a_time_column() -> None:
    files: dict[str, Source] = {name: source([0] * rows) for name, rows in (("day_0", 2), ("day_1", 3), ("day_2", 4))}
    found = list(file_days(files))
    assert [(day.name, day.date) for day in found] == [("day_1", None), ("day_2", None)]
    assert [(day.train, day.test) for day in found] == [
        (files["day_0"], files["day_1"]),
        (files["day_1"], files["day_2"]),
    ]
    with pytest.raises(ConfigError, match="train: 1 file"):
        list(file_days({"day_0": files["day_0"]}))
    assert NextDay(**tomllib.loads('next = "day"')) == NextDay(next="day")


def test_real_clicks_are_cut_into_their_days(data_dir: Callable[[str], Path]) -> None:
    (path,) = find_files(str(data_dir("talkingdata_100k") / "*.gz"))
    clicks = TextSource([path], Schema(label="is_attributed", ids=("ip", "app"), time="click_time"))
    sizes = [(day.name, day.train.rows(), day.test.rows()) for day in day_by_day(clicks)]
    assert sizes == [("2017-11-07", 5011, 32_393), ("2017-11-08", 32_393, 34_035), ("2017-11-09", 34_035, 28_561)]
    test = split(clicks, TimeSplit(test="2017-11-07")).test
    assert test is not None
    assert sum(batch.num_rows for batch in test.read()) == 32_393
