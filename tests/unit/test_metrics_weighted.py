"""Weighted figures, and errors of numbers, against slow definitions in float64."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow import metrics
from hotrow.errors import InputError

LOGITS = st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0])  # many ties
WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 3.5])
ROWS = st.lists(st.tuples(st.integers(0, 1), LOGITS, st.integers(0, 2), WEIGHTS), max_size=25)
NUMBERS = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), WEIGHTS), max_size=25)


def weighted_pairs(rows: list[tuple[int, float, float]]) -> float | None:
    """AUC by its definition: each pair of a positive and a negative counts the product of their weights."""
    won = total = 0.0
    for label, score, weight in rows:
        for other, against, beside in rows:
            if label and not other:
                won += weight * beside * (1.0 if score > against else 0.5 if score == against else 0.0)
                total += weight * beside
    return won / total if total else None


@given(ROWS, st.sampled_from([np.float32, np.float64]))
def test_weighted_auc_counts_each_pair_by_the_product_of_its_weights(
    rows: list[tuple[int, float, int, float]], kind: type
) -> None:
    labels, scores, _, weights = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    expected = weighted_pairs([(label, score, weight) for label, score, _, weight in rows])
    found = metrics.auc(np.array(labels, np.float32), np.array(scores, kind), np.array(weights, np.float64))
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(ROWS)
def test_weighted_grouped_auc_is_the_mean_of_groups_by_their_weights(rows: list[tuple[int, float, int, float]]) -> None:
    found = metrics.grouped_auc(
        np.array([row[0] for row in rows], np.float32),
        np.array([row[1] for row in rows], np.float32),
        np.array([row[2] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.float64),
    )
    each = []
    for group in range(3):
        members = [(label, score, weight) for label, score, mine, weight in rows if mine == group]
        if (value := weighted_pairs(members)) is not None:
            each.append((value, sum(weight for _, _, weight in members)))
    total = sum(weight for _, weight in each)
    expected = sum(value * weight for value, weight in each) / total if each else None
    assert found.value == (None if expected is None else pytest.approx(expected, abs=1e-9))
    assert found.groups_used == len(each)


def figures(labels: Any, logits: Any, weights: Any = None, groups: Any = None) -> dict[str, float | None]:
    scores = metrics.Scores()
    scores.add(np.array(labels, np.float32), np.array(logits, np.float32), groups, weights)
    return scores.metrics()


@given(st.lists(st.tuples(st.integers(0, 1), LOGITS, st.integers(0, 2), st.integers(0, 4)), max_size=25))
def test_a_weight_of_k_is_the_row_k_times(rows: list[tuple[int, float, int, int]]) -> None:
    repeated = [row for row in rows for _ in range(row[3])]
    weights = np.array([row[3] for row in rows], np.float32)
    groups = np.array([row[2] for row in rows], np.int64)
    found = figures([row[0] for row in rows], [row[1] for row in rows], weights, groups)
    again = np.array([row[2] for row in repeated], np.int64)
    expected = figures([row[0] for row in repeated], [row[1] for row in repeated], groups=again)
    for name in ("auc", "logloss", "normalised_entropy", "calibration", "grouped_auc"):
        assert found[name] == (None if expected[name] is None else pytest.approx(expected[name], abs=1e-9)), name


def test_a_sample_that_weighs_nothing_changes_no_figure_not_even_an_endless_one() -> None:
    labels, logits, weights = [0, 1, 1, 0], [0.5, 1.0, -math.inf, math.nan], np.array([1, 2, 0, 0], np.float32)
    assert figures(labels, logits, weights) == figures(labels[:2], logits[:2], weights[:2])


def test_weighted_pictures_are_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(1)
    labels, logits = rng.integers(0, 2, 200), rng.normal(size=200).astype(np.float32)
    weights = rng.integers(1, 4, 200)
    weighted = metrics.roc_points(labels, logits, weights=weights)
    repeated = metrics.roc_points(np.repeat(labels, weights), np.repeat(logits, weights))
    np.testing.assert_allclose(weighted, repeated)
    (point,) = metrics.calibration_points(labels, metrics.sigmoid(logits), bins=1, weights=weights)
    assert point["observed"] == pytest.approx(np.average(labels, weights=weights))
    assert point["count"] == 200
    assert metrics.calibration_points(labels, metrics.sigmoid(logits), weights=np.zeros(200)) == []


@pytest.mark.parametrize("weight", [-1e-9, math.nan, math.inf])
def test_weights_are_finite_and_not_negative(weight: float) -> None:
    assert metrics.auc([0, 1], [0.0, 1.0], [0.0, 1.0]) is None
    with pytest.raises(InputError, match=r"weights hold .*: each must be a finite number of 0 or more"):
        metrics.auc([0, 1], [0.0, 1.0], [1.0, weight])


@pytest.mark.parametrize("kind", [metrics.Scores, metrics.Errors])
def test_weights_come_with_every_batch_or_with_none(kind: type) -> None:
    scores = kind()
    scores.add([0, 1], [0.0, 1.0], weights=[1.0, 2.0])
    with pytest.raises(InputError, match="weights: given with some batches"):
        scores.add([0, 1], [0.0, 1.0])


@given(NUMBERS)
def test_errors_of_numbers_are_those_of_plain_loops(rows: list[tuple[float, float, float]]) -> None:
    labels, guesses, weights = (np.array([row[place] for row in rows], np.float64) for place in range(3))
    total = math.fsum(weights)
    squares = math.fsum(w * (g - y) ** 2 for y, g, w in rows)
    assert _near(
        metrics.root_mean_squared_error(labels, guesses, weights), math.sqrt(squares / total) if total else None
    )
    distance = math.fsum(w * abs(g - y) for y, g, w in rows)
    assert _near(metrics.mean_absolute_error(labels, guesses, weights), distance / total if total else None)
    lean = math.fsum(w * (g - y) for y, g, w in rows)
    assert _near(metrics.bias(labels, guesses, weights), lean / total if total else None)
    if len({y for y, _, w in rows if w}) > 1:
        middle = math.fsum(w * y for y, _, w in rows) / total
        spread = math.fsum(w * (y - middle) ** 2 for y, _, w in rows)
        found = metrics.r_squared(labels, guesses, weights)
        if spread > 1e-6:
            assert found == pytest.approx(1 - squares / spread, rel=1e-6)
    else:
        assert metrics.r_squared(labels, guesses, weights) is None


def _near(found: float | None, expected: float | None) -> bool:
    return found is None if expected is None else found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_numbers_have_no_r2_where_all_labels_are_equal_and_no_figure_without_samples() -> None:
    errors = metrics.Errors()
    assert errors.metrics() == dict.fromkeys(("rmse", "mae", "r2", "bias"))
    errors.add(np.full(3, 0.1, np.float32), np.array([0.1, 0.2, 0.3], np.float32))
    found = errors.metrics()
    assert found["r2"] is None
    assert found["bias"] == pytest.approx(0.1)
    assert len(errors) == 3


def test_the_mean_predicted_for_all_has_an_r2_of_zero() -> None:
    assert metrics.r_squared([1.0, 2.0, 6.0], [3.0, 3.0, 3.0]) == pytest.approx(0)
    assert metrics.r_squared([1.0, 2.0, 6.0], [1.0, 2.0, 6.0]) == 1.0


def test_the_picture_of_numbers_has_mean_labels_by_mean_predictions() -> None:
    errors = metrics.Errors()
    errors.add([10.0, 20.0, -5.0, -7.0], [1.0, 1.0, -2.0, -2.0], [1.0, 3.0, 1.0, 1.0])
    assert errors.pictures()["calibration"] == [
        {"predicted": -2.0, "observed": -6.0, "count": 2},
        {"predicted": 1.0, "observed": 17.5, "count": 2},
    ]


def test_labels_of_numbers_must_be_finite() -> None:
    with pytest.raises(InputError, match="labels hold inf: each must be a finite number"):
        metrics.root_mean_squared_error([math.inf], [1.0])
