"""The registry: kinds are kept, strangers are refused, and threads lose nothing."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import InputError
from hotrow.obs.registry import Registry, ValueSummary


def test_counters_add_up_gauges_keep_the_latest_and_labels_keep_apart() -> None:
    registry = Registry()
    registry.add("train/samples", 4096)
    registry.add("train/samples", 100)
    registry.add("run/warnings")
    registry.set("table/rows", 10, table="user")
    registry.set("table/rows", 20, table="item")
    registry.set("table/rows", 11, table="user")
    assert registry.snapshot() == {
        "run/warnings": 1,
        "table/rows{table=item}": 20,
        "table/rows{table=user}": 11,
        "train/samples": 4196,
    }


def test_a_snapshot_is_a_copy_that_json_can_hold() -> None:
    registry = Registry()
    registry.observe("train/step_ms", 3.0)
    registry.set("train/lr", 0.1)
    before = registry.snapshot()
    registry.observe("train/step_ms", 5.0)
    assert before["train/step_ms"]["count"] == 1
    assert json.loads(json.dumps(before)) == before


REFUSED = {
    "an unknown name": (lambda r: r.add("train/nothing"), "no such metric"),
    "a gauge that is added to": (lambda r: r.add("train/loss"), "train/loss is a gauge, not a counter: use set"),
    "a counter that is set": (lambda r: r.set("train/samples", 1), "use add"),
    "a histogram that is set": (lambda r: r.set("train/step_ms", 1), "use observe"),
    "a gauge that is observed": (lambda r: r.observe("train/loss", 1), "use set"),
    "a label that is missing": (lambda r: r.set("table/rows", 1), "give table=..."),
    "a label too many": (lambda r: r.set("train/loss", 1, table="a"), "give none"),
    "a label of another name": (lambda r: r.set("table/rows", 1, split="a"), "give table=..."),
    "a step back": (lambda r: r.add("train/samples", -1), "cannot add -1"),
    "an infinite step": (lambda r: r.add("train/samples", math.inf), "cannot add inf"),
    "no number": (lambda r: r.add("train/samples", math.nan), "cannot add nan"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_listed_so_is_refused_and_leaves_nothing(call: object, sentence: str) -> None:
    registry = Registry()
    assert callable(call)
    with pytest.raises(InputError, match=sentence):
        call(registry)
    assert registry.snapshot() == {}


def test_adding_nothing_is_allowed() -> None:
    registry = Registry()
    registry.add("data/malformed_lines", 0)
    assert registry.snapshot() == {"data/malformed_lines": 0}


def test_threads_lose_no_count() -> None:
    registry = Registry()

    def work(_: int) -> None:
        for _ in range(2000):
            registry.add("train/steps")
            registry.observe("train/step_ms", 1.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    told = registry.snapshot()
    assert told["train/steps"] == 8000
    assert told["train/step_ms"]["count"] == 8000


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_a_histogram_counts_every_value_in_the_bucket_that_ends_at_or_above_it(values: list[float]) -> None:
    histogram = ValueSummary()
    for value in values:
        histogram.add(value)
    told = histogram.summary()
    assert told["count"] == sum(rows for _, rows in told["buckets"]) == len(values)
    assert told["sum"] == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-3)
    assert (told["least"], told["most"]) == (min(values), max(values))
    for end, rows in told["buckets"]:
        inside = [value for value in values if (value <= 0 if end == 0 else end / 2 < value <= end)]
        assert len(inside) == rows


@pytest.mark.parametrize(("value", "end"), [(1.0, 1.0), (1.0001, 2.0), (2.0, 2.0), (0.5, 0.5), (0.0, 0.0), (-3.0, 0.0)])
def test_powers_of_two_end_their_bucket(value: float, end: float) -> None:
    histogram = ValueSummary()
    histogram.add(value)
    assert histogram.summary()["buckets"] == [[end, 1]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_counted_apart(value: float) -> None:
    histogram = ValueSummary()
    histogram.add(value)
    told = histogram.summary()
    assert (told["nonfinite"], told["count"], told["least"], told["buckets"]) == (1, 0, None, [])
