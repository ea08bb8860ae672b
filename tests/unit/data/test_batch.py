"""take, slice and concatenated, compared with lists of samples."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.batch import Batch, FeatureBlock, concatenated
from hotrow.errors import InputError

KINDS = (("one", ("a", "b")), ("bags", ("c", "d")), ("sequence", ("e",)))


@dataclass(frozen=True)
class Sample:
    """One sample in plain Python: per part, the ids of each feature."""

    ids: tuple[tuple[tuple[int, ...], ...], ...]
    numbers: tuple[float, ...]
    label: float
    group: int
    time: int
    weight: float = 1.0


small = st.integers(-5, 5)
bag = st.lists(small, max_size=3).map(tuple)
samples = st.builds(
    Sample,
    st.tuples(st.tuples(st.tuples(small), st.tuples(small)), st.tuples(bag, bag), st.tuples(bag)),
    st.tuples(st.integers(-9, 9).map(float), st.integers(-9, 9).map(float)),
    st.sampled_from([0.0, 1.0]),
    small,
    small,
    st.sampled_from([0.0, 0.5, 2.0]),
)


def batch_of(rows: list[Sample], counts: dict[str, int] | None = None) -> Batch:
    parts = []
    for place, (kind, features) in enumerate(KINDS):
        bags = [ids for row in rows for ids in row.ids[place]]
        keys = np.array([key for ids in bags for key in ids], np.int64)
        bounds = None if kind == "one" else np.cumsum([0, *map(len, bags)]).astype(np.int64)
        parts.append(FeatureBlock("t", kind, features, keys, bounds, "sum"))  # type: ignore[arg-type]
    return Batch(
        tuple(parts),
        np.array([row.numbers for row in rows], np.float32).reshape(-1, 2),
        np.array([[row.label] for row in rows], np.float32).reshape(-1, 1),
        np.array([row.group for row in rows], np.int64),
        np.array([row.time for row in rows], np.int64),
        counts or {},
        np.array([row.weight for row in rows], np.float32),
    )


def assert_same(found: Batch, expected: Batch) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found.parts, expected.parts, strict=True):
        assert (one.table, one.kind, one.features, one.pooling) == (
            other.table,
            other.kind,
            other.features,
            other.pooling,
        )
        assert one.keys.tolist() == other.keys.tolist()
        assert (one.bounds is None) == (other.bounds is None)
        if one.bounds is not None and other.bounds is not None:
            assert one.bounds.dtype == np.int64
            assert one.bounds.tolist() == other.bounds.tolist()
    for name in ("numbers", "labels", "groups", "times", "weights"):
        array, twin = getattr(found, name), getattr(expected, name)
        assert array.dtype == twin.dtype
        assert np.array_equal(array, twin)


@given(st.lists(samples, max_size=8), st.data())
def test_take_gives_the_named_samples_in_that_order(rows: list[Sample], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10) if rows else st.just([]))
    assert_same(batch_of(rows).take(np.array(order, np.int64)), batch_of([rows[place] for place in order]))


@given(st.lists(samples, max_size=8), st.data())
def test_slice_gives_the_samples_between(rows: list[Sample], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert_same(batch_of(rows).slice(start, stop), batch_of(rows[start:stop]))


@given(st.lists(st.lists(samples, max_size=4), min_size=1, max_size=4))
def test_concatenated_gives_one_after_the_other(groups: list[list[Sample]]) -> None:
    found = concatenated([batch_of(rows, {"missing_ids": len(rows), "x": 1}) for rows in groups])
    assert_same(found, batch_of([row for rows in groups for row in rows]))
    assert found.counts == {"missing_ids": sum(map(len, groups)), "x": len(groups)}


@given(st.lists(samples, min_size=1, max_size=8), st.data())
def test_slices_put_together_are_the_whole(rows: list[Sample], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    whole = batch_of(rows)
    assert_same(concatenated([whole.slice(0, cut), whole.slice(cut, len(rows))]), whole)


def test_slice_copies_no_keys() -> None:
    whole = batch_of([Sample((((1,), (2,)), ((3, 4), ()), ((5,),)), (1.0, 2.0), 1.0, 7, 8)] * 4)
    part = whole.slice(1, 3)
    assert all(np.shares_memory(one.keys, other.keys) for one, other in zip(part.parts, whole.parts, strict=True))


@pytest.mark.parametrize("name", ["labels", "groups", "times", "weights"])
def test_batches_with_and_without_an_array_are_not_joined(name: str) -> None:
    rows = [Sample((((1,), (2,)), ((), ()), ((),)), (0.0, 0.0), 0.0, 1, 2)]
    without: Any = replace(cast(Any, batch_of(rows)), **{name: None})
    assert getattr(concatenated([without, without]), name) is None
    for pair in ([batch_of(rows), without], [without, batch_of(rows)]):
        with pytest.raises(InputError, match=f"{name}: 1 of 2 batches have them"):
            concatenated(pair)
