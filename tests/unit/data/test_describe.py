"""A description tells exactly what is there while that fits in memory, and how far off it may be where not."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.data import describe as module
from hotrow.data.describe import Description, describe
from hotrow.data.schema import Schema
from hotrow.data.sketch import CURVE_POINTS, HyperLogLog, IdFrequencies, Moments, Sample
from hotrow.data.source import ArrowSource
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from profiles import examples

SCHEMA = Schema(
    label=({"column": "rating", "at_least": 4}, {"column": "rating"}),
    numbers=({"column": "age", "transform": "log1p"}, {"column": "price", "transform": "bucket"}, "empty"),
    ids=("user", {"column": "genres", "separator": "|"}, {"column": "seen", "sequence": 2, "name": "history"}),
    time="at",
)
RATINGS = pa.table(
    {
        "rating": [5, 4, 3, 1],
        "age": [10.0, None, 30.0, -20.0],
        "price": [1.0, 2.0, 3.0, 4.0],
        "empty": pa.array([None] * 4, pa.float64()),
        "user": ["anna", "bob", "anna", None],
        "genres": ["drama|war", "", None, "war"],
        "seen": pa.array([[1, 2, 3], [], [3], [3, 3]], pa.list_(pa.int64())),
        "at": ["2017-11-06 10:00:00", "2017-11-08 09:00:00", "2017-11-06 08:00:00", "2017-11-06 08:00:00"],
    }
)


def ratings(block: int = 3) -> ArrowSource:
    return ArrowSource(RATINGS.to_batches(block), SCHEMA, rows=4)


@pytest.fixture(scope="module")
def small() -> Description:
    return describe(ratings())


def test_ids_are_counted_per_feature(small: Description) -> None:
    user, genres, history = small.ids
    assert (user.name, user.distinct, user.exact, user.missing) == ("user", 2, True, 1)
    assert (user.ids_per_sample, user.most_per_sample) == (0.75, 1)
    assert user.top_share == pytest.approx(2 / 3)
    assert user.skew == [(1, 2), (2, 1)]
    assert (genres.distinct, genres.missing, genres.ids_per_sample, genres.most_per_sample) == (2, 2, 0.75, 2)
    assert (history.name, history.distinct, history.missing) == ("history", 3, 1)
    assert (history.ids_per_sample, history.most_per_sample) == (1.5, 3)  # a sequence is not cut for being described
    assert history.skew == [(1, 4), (2, 1), (3, 1)]


def test_numbers_are_described_before_their_transform(small: Description) -> None:
    age, price, empty = small.numbers
    assert (age.name, age.missing, age.low, age.high, age.sampled) == ("age", 1, -20.0, 30.0, False)
    assert age.mean == pytest.approx(20 / 3)
    assert age.deviation == pytest.approx(np.std([10, 30, -20]))
    assert age.quantiles["0.5"] == 10.0
    assert price.quantiles["0.25"] == 1.75
    assert (empty.missing, empty.low, empty.mean, empty.quantiles) == (4, None, None, {})


def test_labels_and_times_are_told(small: Description) -> None:
    assert small.rows == 4
    assert small.complete
    assert small.labels == {"rating >= 4": 0.5, "rating": 3.25}
    assert small.times is not None
    assert (small.times.first, small.times.last) == ("2017-11-06 08:00:00 UTC", "2017-11-08 09:00:00 UTC")
    assert small.times.rows_per_day == {"2017-11-06": 3, "2017-11-08": 1}


def test_the_document_is_json(small: Description) -> None:
    document = json.loads(json.dumps(small.document(), allow_nan=False))
    assert document["ids"][0]["skew"] == [[1, 2], [2, 1]]
    assert document["labels"]["rating"] == 3.25


@pytest.mark.parametrize(("rows", "read", "complete"), [(None, 4, True), (2, 2, False), (4, 4, True), (9, 4, True)])
def test_some_rows_can_be_enough(rows: int | None, read: int, complete: bool) -> None:
    told: list[tuple[int, int | None]] = []
    found = describe(ratings(block=1), rows, watch=lambda done, total: told.append((done, total)))
    assert (found.rows, found.complete) == (read, complete)
    assert told == [(done, min(rows or 4, 4)) for done in range(1, read + 1)]


def test_nothing_is_described_as_nothing() -> None:
    found = describe(ArrowSource(RATINGS.slice(0, 0), SCHEMA))
    assert (found.rows, found.times, found.labels) == (0, None, {"rating >= 4": None, "rating": None})
    assert found.ids[0].top_share is None
    assert found.ids[0].skew == []
    json.dumps(found.document(), allow_nan=False)


def test_data_without_labels_can_be_described() -> None:
    unlabelled = ArrowSource(RATINGS.drop_columns(["rating"]), SCHEMA, labels=False)
    assert describe(unlabelled).labels == {"rating >= 4": None, "rating": None}


def test_malformed_rows_are_told() -> None:
    rows = pa.table({"rating": ["5", "x", "3"], "user": ["a", "b", "c"]})
    assert describe(ArrowSource(rows, Schema(label="rating", ids=("user",)), limit=1)).malformed == 1


def test_a_long_column_is_estimated_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_IDS", 500)
    monkeypatch.setattr(module, "SAMPLE_ROWS", 1000)
    source = SyntheticSource(SyntheticConfig(rows=30_000, features=3, numbers=1, ids=20_000, days=3))
    found = describe(source)
    ids = np.concatenate([batch["id_3"].to_numpy() for batch in source.read()])
    true = Counter(ids.tolist())
    few, _, many = found.ids
    assert few.exact
    assert few.count_error == 0
    assert not many.exact
    assert abs(many.distinct / len(true) - 1) < 0.04
    top = [count for _, count in true.most_common(5)]
    for (_, count), expected in zip(many.skew[:5], top, strict=True):
        assert expected - many.count_error <= count <= expected
    (number,) = found.numbers
    assert number.sampled
    assert abs(number.quantiles["0.5"]) < 0.2
    assert abs(number.quantiles["0.95"] - 1.645) < 0.3


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, 60_000, 300_000])
def test_distinct_ids_are_estimated_within_four_deviations(size: int) -> None:
    sketch = HyperLogLog()
    for start in range(0, size, 50_000):
        ids = np.arange(start, min(start + 50_000, size), dtype=np.uint64)
        sketch.add(ids)
        sketch.add(ids)  # again: nothing new
    assert abs(sketch.estimate() - size) <= 0.0325 * size + 0.5


@given(st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=8), st.integers(1, 40))
def test_counts_are_exact_up_to_the_bound_and_lower_bounds_above(blocks: list[list[int]], most: int) -> None:
    counts = IdFrequencies(most)
    for block in blocks:
        counts.add(np.array(block, np.uint64))
    true = Counter(each for block in blocks for each in block)
    curve = counts.curve()
    assert counts.total == sum(true.values())
    assert counts.exact == (counts.error == 0)
    if len(true) <= most:
        assert counts.exact
        assert counts.distinct() == len(true)
        assert [count for _, count in curve] == [count for _, count in true.most_common()]
    elif curve:
        highest = max(true.values())
        assert highest - counts.error <= curve[0][1] <= highest


def test_a_curve_is_short_falls_and_reaches_from_the_first_rank_to_the_last() -> None:
    counts = IdFrequencies(100_000)
    counts.add(np.repeat(np.arange(5000, dtype=np.uint64), np.arange(5000, 0, -1) // 100 + 1))
    curve = counts.curve()
    assert len(curve) <= CURVE_POINTS
    assert (curve[0], curve[-1]) == ((1, 51), (5000, 1))
    assert [rank for rank, _ in curve] == sorted({rank for rank, _ in curve})
    assert [count for _, count in curve] == sorted((count for _, count in curve), reverse=True)


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 100))
def test_a_sample_depends_on_the_rows_and_not_on_the_blocks(sizes: list[int], most: int) -> None:
    values = np.arange(sum(sizes), dtype=np.float64)[:, None]
    cut, whole = Sample(most, 1), Sample(most, 1)
    for block in np.split(values, np.cumsum(sizes)[:-1]) if sizes else []:
        cut.add(block)
    whole.add(values)
    assert sorted(cut.column(0)) == sorted(whole.column(0))
    assert len(cut.column(0)) == min(most, len(values))
    assert cut.whole == (len(values) <= most)


def test_a_sample_is_fair() -> None:
    sample = Sample(2000, 1)
    for start in range(0, 100_000, 10_000):
        sample.add(np.arange(start, start + 10_000, dtype=np.float64)[:, None])
    shares = np.histogram(sample.column(0), bins=10, range=(0, 100_000))[0]
    assert (np.abs(shares - 200) < 5 * np.sqrt(200)).all()


@given(st.lists(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), max_size=10), max_size=5))
def test_moments_are_those_of_all_values_at_once(blocks: list[list[float]]) -> None:
    moments = Moments()
    for block in blocks:
        moments.add(np.array(block, np.float64))
    every: NDArray[Any] = np.array([each for block in blocks for each in block], np.float64)
    there = every[~np.isnan(every)]
    assert (moments.there, moments.missing) == (len(there), len(every) - len(there))
    if len(there):
        assert (moments.low, moments.high) == (there.min(), there.max())
        assert moments.mean == pytest.approx(there.mean(), rel=1e-9, abs=1e-6)
        assert moments.deviation == pytest.approx(there.std(), rel=1e-6, abs=1e-6)
    else:
        assert moments.deviation == 0.0
