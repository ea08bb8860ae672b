"""Sketches against the exact figures, within the error that they state; many chunks by small bounds, then real ones."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow import metrics
from hotrow.errors import InputError
from hotrow.metrics import quantiles, sketch
from hotrow.metrics.sketch import ScoreSketch, merged

Column = NDArray[np.float32]
PROMISED = 1e-4  # error of AUC on a million samples
SCORES = st.one_of(
    st.sampled_from([-1e30, -0.0, 0.0, 1e-45, 1.0, 3e38, math.inf]), st.floats(width=32, allow_nan=False)
)
SAMPLES = st.lists(st.tuples(st.integers(0, 1), SCORES, st.sampled_from([0.0, 0.5, 1.0, 7.0])), max_size=60)


@contextmanager
def bounds(*, pairs: int, points: int, fan_in: int = 3) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "PAIRS_MOST", pairs)
        patch.setattr(quantiles, "POINTS_MOST", points)
        patch.setattr(quantiles, "FAN_IN", fan_in)
        yield


def sketch_of(labels: Column, scores: Column, weights: Column | None = None, batch: int = 7) -> ScoreSketch:
    found = ScoreSketch()
    for start in range(0, len(labels), batch):
        here = slice(start, start + batch)
        found.add(labels[here], scores[here], None if weights is None else weights[here])
    return found


def columns(
    rows: list[tuple[int, float, float]],
) -> tuple[Column, Column, Column]:
    values = np.array(rows, np.float32).reshape(-1, 3)
    return values[:, 0], values[:, 1], values[:, 2]


def check_close(found: dict[str, float | None], expected: dict[str, float | None], rel: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (None if value is None else pytest.approx(value, rel=rel, nan_ok=True)), name


@given(SAMPLES, st.integers(1, 9), st.booleans())
def test_the_stated_error_holds_for_any_scores(
    rows: list[tuple[int, float, float]], points: int, weighted: bool
) -> None:
    labels, scores, weights = columns(rows)
    given_weights = weights if weighted else None
    exact = metrics.auc(labels, scores, given_weights)
    with bounds(pairs=10, points=points):
        found = sketch_of(labels, scores, given_weights)
        found.compact()
        auc, error = found.auc(), found.auc_error
    if exact is None:
        assert auc is None
        return
    assert auc is not None
    levels = max(part.level for part in found.positives + found.negatives) if not found.exact else 0
    assert abs(auc - exact) <= error + 1e-12
    assert error <= levels / points + 1e-12


@given(SAMPLES, st.booleans())
def test_logloss_and_calibration_are_those_of_all_samples(rows: list[tuple[int, float, float]], weighted: bool) -> None:
    labels, scores, weights = columns(rows)
    whole = metrics.Scores()
    whole.add(labels, scores, weights=weights if weighted else None)
    with bounds(pairs=10, points=2):
        found = sketch_of(labels, scores, weights if weighted else None).metrics()
    check_close(found, whole.metrics() | {"auc": found["auc"]}, rel=1e-9)


@given(st.lists(st.tuples(SCORES, st.sampled_from([0.5, 1.0, 7.0])), min_size=1, max_size=60), st.integers(1, 9))
def test_a_reduction_moves_no_cumulative_mass_by_more_than_half_a_point(
    rows: list[tuple[float, float]], points: int
) -> None:
    scores, weights = np.array(rows, np.float32).T
    whole = quantiles.WeightedPoints.of(scores, weights.astype(np.float64))
    with bounds(pairs=1, points=points):
        reduced = quantiles.reduce_points(whole)
    assert len(reduced.scores) <= max(points, 1)
    assert reduced.mass == pytest.approx(whole.mass)
    moved = [
        abs(whole.masses[: at + 1].sum() - reduced.masses[reduced.scores <= score].sum())
        for at, score in enumerate(whole.scores)
    ]
    assert max(moved) <= reduced.error + 1e-9
    assert reduced.error <= whole.mass / (2 * points) + 1e-9


@given(SAMPLES)
def test_few_samples_have_the_exact_figures(rows: list[tuple[int, float, float]]) -> None:
    labels, scores, _ = columns(rows)
    whole = metrics.Scores()
    whole.add(labels, scores)
    parts = [sketch_of(labels[start::3], scores[start::3]) for start in range(3)]
    for order in permutations(parts):
        together = merged(order)
        assert together.exact
        assert together.auc() == whole.metrics()["auc"]
        check_close(together.metrics(), whole.metrics(), rel=1e-12)


@given(st.tuples(SAMPLES, SAMPLES, SAMPLES))
def test_any_order_of_merges_agrees_within_the_error(parts: tuple[list[tuple[int, float, float]], ...]) -> None:
    exact = metrics.auc(*columns([row for rows in parts for row in rows]))
    with bounds(pairs=10, points=4):
        a, b, c = (sketch_of(*columns(rows)) for rows in parts)
        orders = [merged(order) for order in permutations([a, b, c])]
        orders.append(merged([a, merged([b, c])]))
        for found in orders:
            assert len(found) == len(a) + len(b) + len(c)
            auc = found.auc()
            assert (auc is None) == (exact is None)
            assert auc is None or exact is None or abs(auc - exact) <= found.auc_error + 1e-12


@given(SAMPLES)
def test_an_empty_sketch_changes_nothing(rows: list[tuple[int, float, float]]) -> None:
    with bounds(pairs=10, points=4):
        alone = sketch_of(*columns(rows))
        empty = ScoreSketch()
        empty.compact()
        for found in (merged([alone, empty]), merged([empty, alone])):
            assert (found.auc(), found.auc_error, len(found)) == (alone.auc(), alone.auc_error, len(alone))
    assert empty.metrics() == {"auc": None, "logloss": None, "normalised_entropy": None, "calibration": None}


def test_the_bound_of_exact_pairs_is_inclusive() -> None:
    labels = np.tile(np.array([0, 1], np.float32), 5)
    with bounds(pairs=10, points=4):
        assert sketch_of(labels, np.arange(10, dtype=np.float32)).exact
        more = sketch_of(labels, np.arange(10, dtype=np.float32))
        more.add([1], [3.0])
    assert not more.exact


def test_nan_and_infinite_scores_are_counted() -> None:
    labels, scores, weights = columns([(0, math.nan, 0), (1, math.inf, 1), (1, -math.inf, 1), (0, 0.5, 1)])
    for pairs in (2, 10):
        with bounds(pairs=pairs, points=4):
            found = sketch_of(labels, scores, batch=2)
            assert (found.not_finite, found.nan) == (3, True)
            assert math.isnan(found.auc() or 0)
            assert math.isnan(found.metrics()["logloss"] or 0)
            without = sketch_of(labels, scores, weights, batch=2)  # what weighs nothing does not count
            assert without.not_finite == 3
            assert without.auc() == 0.5
            assert without.metrics()["logloss"] == math.inf


def test_labels_that_are_not_0_or_1_are_refused() -> None:
    with pytest.raises(InputError, match=r"labels hold 0\.5"):
        ScoreSketch().add([0.5], [1.0])


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, Column], NDArray[np.floating]]] = {
    "normal": lambda rng, truth: rng.normal(truth, 1.0),
    "concentrated": lambda rng, truth: -3 + rng.normal(truth, 1.0) * 1e-2,
    "a few floats": lambda rng, truth: -3 + rng.normal(truth, 1.0) * 1e-5,
    "far apart": lambda rng, truth: np.where(rng.random(len(truth)) < 0.5, 1e30, -1e-30) * (1 + rng.random(len(truth))),
    "saturated": lambda rng, truth: np.clip(rng.normal(40 * truth, 40.0), -50, 50),
    "all equal": lambda rng, truth: np.full(len(truth), 0.1),
    "interleaved": lambda rng, truth: (
        np.arange(len(truth)) * 1.0
    ),  # with labels in turn: every reduction cuts between them
    "classes apart": lambda rng, truth: truth * 10 + rng.random(len(truth)),
}
FEW_DISTINCT = ("a few floats", "all equal")  # all of them fit into the points


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_auc_of_a_million_samples_is_within_the_promise(name: str) -> None:
    rng = np.random.default_rng(7)
    count = 1_000_000
    clicks = np.arange(count) % 2 if name == "interleaved" else rng.random(count) < 0.2
    truth = clicks.astype(np.float32)
    scores = DISTRIBUTIONS[name](rng, truth).astype(np.float32)
    exact = metrics.auc(truth, scores)
    assert exact is not None
    trainers = [sketch_of(truth[start::3], scores[start::3], batch=50_000) for start in range(2)]
    trainers.append(sketch_of(truth[2::3], scores[2::3], batch=400_000))
    for trainer in trainers:
        trainer.compact()
    found = merged(trainers)
    auc = found.auc()
    assert auc is not None
    assert abs(auc - exact) <= found.auc_error + 1e-12
    assert found.auc_error < PROMISED
    assert not found.exact
    assert (found.auc_error == 0) == (name in FEW_DISTINCT)
