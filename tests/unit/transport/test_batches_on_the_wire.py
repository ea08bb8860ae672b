"""A batch comes out of its frames as it went in; frames that do not fit their header are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.transport.batches import pack_batch, unpack_batch


def views(frames: list[NDArray[np.generic]]) -> list[memoryview]:
    return [memoryview(frame.tobytes()) for frame in frames]


def ids(chance: np.random.Generator, count: int) -> NDArray[np.int64]:
    return chance.integers(-(2**63), 2**63 - 1, count)


def batch_of(samples: int, seed: int, *, labels: int = 1, numbers: int = 3, weights: bool = False) -> Batch:
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, 4, samples)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    parts = (
        FeatureBlock("a", "one", ("x", "y"), ids(chance, 2 * samples)),
        FeatureBlock("a", "bags", ("z",), ids(chance, int(bounds[-1])), bounds, "sum"),
        FeatureBlock("b", "sequence", ("w",), ids(chance, int(bounds[-1])), bounds),
    )
    given_labels = chance.random((samples, labels)).astype(np.float32) if labels else None
    given_weights = chance.random(samples).astype(np.float32) if weights else None
    return Batch(parts, chance.random((samples, numbers)).astype(np.float32), given_labels, weights=given_weights)


@given(st.integers(0, 50), st.integers(0, 2), st.integers(0, 4), st.integers(0, 1000), st.booleans())
def test_a_batch_comes_out_as_it_went_in(samples: int, labels: int, numbers: int, seed: int, weights: bool) -> None:
    batch = batch_of(samples, seed, labels=labels, numbers=numbers, weights=weights)
    header, frames = pack_batch(batch)
    back = unpack_batch(header, views(frames))
    np.testing.assert_array_equal(back.numbers, batch.numbers)
    assert (back.labels is None) == (batch.labels is None)
    if batch.labels is not None and back.labels is not None:
        np.testing.assert_array_equal(back.labels, batch.labels)
    assert (back.weights is None) == (batch.weights is None)
    if batch.weights is not None and back.weights is not None:
        np.testing.assert_array_equal(back.weights, batch.weights)
    for ours, theirs in zip(back.parts, batch.parts, strict=True):
        assert (ours.table, ours.kind, ours.features, ours.pooling) == (
            theirs.table,
            theirs.kind,
            theirs.features,
            theirs.pooling,
        )
        np.testing.assert_array_equal(ours.keys, theirs.keys)
        assert (ours.bounds is None) == (theirs.bounds is None)
        if ours.bounds is not None and theirs.bounds is not None:
            np.testing.assert_array_equal(ours.bounds, theirs.bounds)


def test_frames_that_do_not_fit_the_header_are_refused() -> None:
    header, frames = pack_batch(batch_of(5, 1))
    good = views(frames)
    assert len(unpack_batch(header, good)) == 5
    with pytest.raises(InputError, match="the frame is missing"):
        unpack_batch(header, good[:-1])
    with pytest.raises(InputError, match="1 frames follow that the header does not name"):
        unpack_batch(header, [*good, good[0]])
    with pytest.raises(InputError, match="numbers: the frame has 59 bytes, the header says 60"):
        unpack_batch(header, [good[0][:-1], *good[1:]])


@pytest.mark.parametrize(("weight", "good"), [(0.0, True), (-0.5, False), (np.nan, False), (np.inf, False)])
def test_weights_from_the_wire_are_finite_and_not_negative(weight: float, good: bool) -> None:
    header, frames = pack_batch(batch_of(5, 1, weights=True))
    frames[2] = np.array([1, 2, weight, 1, 1], np.float32)
    if good:
        assert unpack_batch(header, views(frames)).weights is not None
        return
    with pytest.raises(InputError, match="weights: each must be a finite number of 0 or more"):
        unpack_batch(header, views(frames))


@pytest.mark.parametrize("bounds", [[1, 2, 3, 4, 5, 5], [0, 3, 2, 4, 5, 5], [0, 1, 2, 3, 4, 4], [0, -1, 2, 3, 4, 5]])
def test_bounds_that_lead_out_of_the_ids_are_refused(bounds: list[int]) -> None:
    samples, true_bounds = 5, np.array([0, 1, 2, 3, 4, 5])
    batch = Batch((FeatureBlock("a", "bags", ("z",), np.arange(5), true_bounds),), np.zeros((samples, 0), np.float32))
    header, frames = pack_batch(batch)
    good = views(frames)
    assert len(unpack_batch(header, good)) == samples
    with pytest.raises(InputError, match="bounds must rise from 0 to the 5 ids"):
        unpack_batch(header, [*good[:-1], memoryview(np.array(bounds, np.int64).tobytes())])
