"""Figures of quality against slow definitions in float64: pair counts, loops, exact logarithms."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow import metrics
from hotrow.errors import InputError

FEW = st.sampled_from([-1e30, -2.0, -0.0, 0.0, 1e-45, 1.0, 1.5, 3e38, math.inf, -math.inf])  # many ties
ANY = st.floats(width=32, allow_nan=False)
ROWS = st.lists(st.tuples(st.integers(0, 1), st.one_of(FEW, ANY), st.integers(0, 3)), max_size=40)


def pair_count(labels: Sequence[float], scores: Sequence[float]) -> Fraction | None:
    """AUC by its definition, over all pairs of a positive and a negative."""
    positives = [score for label, score in zip(labels, scores, strict=True) if label]
    negatives = [score for label, score in zip(labels, scores, strict=True) if not label]
    if not positives or not negatives:
        return None
    halves = sum(2 * (p > n) + (p == n) for p in positives for n in negatives)
    return Fraction(halves, 2 * len(positives) * len(negatives))


def columns(rows: list[tuple[int, float, int]]) -> tuple[list[float], list[float], list[int]]:
    return [float(row[0]) for row in rows], [row[1] for row in rows], [row[2] for row in rows]


@given(ROWS, st.sampled_from([np.float32, np.float64]))
def test_auc_counts_every_pair_once_and_ties_half(rows: list[tuple[int, float, int]], kind: type) -> None:
    labels, scores, _ = columns(rows)
    expected = pair_count(labels, scores)
    got = metrics.auc(np.array(labels, np.float32), np.array(scores, kind))
    assert got == (None if expected is None else float(expected))


@pytest.mark.parametrize(("labels", "scores"), [([], []), ([1.0], [0.3]), ([0.0, 0.0], [1.0, 2.0])])
def test_auc_of_one_class_is_none(labels: list[float], scores: list[float]) -> None:
    assert metrics.auc(np.array(labels), np.array(scores)) is None
    assert metrics.roc_points(np.array(labels), np.array(scores)) == []


def test_auc_of_double_precision_sees_differences_that_floats_do_not() -> None:
    assert metrics.auc([0, 1], np.array([0.5, 0.5 + 1e-12])) == 1.0
    assert metrics.auc([0, 1], np.array([0.5, 0.5 + 1e-12], np.float32)) == 0.5


def test_a_nan_score_makes_the_figure_nan() -> None:
    labels, scores = [0, 1, 1], [0.1, math.nan, 0.3]
    assert math.isnan(metrics.auc(labels, scores) or 0)
    assert math.isnan(metrics.logloss(labels, scores) or 0)
    assert math.isnan(metrics.logloss_of_logits(labels, scores) or 0)
    assert math.isnan(metrics.calibration(labels, scores) or 0)
    assert math.isnan(metrics.grouped_auc(labels, scores, [1, 1, 1]).value or 0)
    assert metrics.roc_points(labels, scores) == []
    assert metrics.calibration_points(labels, scores) == []


def test_auc_agrees_with_mean_ranks_on_many_samples() -> None:
    chance = np.random.default_rng(5)
    scores = np.round(chance.normal(size=200_000), 3).astype(np.float32)  # a few thousand distinct ones
    labels = chance.random(200_000) < metrics.sigmoid(scores)
    values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    assert len(values) < 20_000
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    positives = int(labels.sum())
    wins = mean_rank[places][labels].sum() - positives * (positives + 1) / 2
    assert metrics.auc(labels, scores) == pytest.approx(wins / (positives * (len(labels) - positives)), rel=1e-12)


FAR_APART = [0, 1, 2**40, -(2**62)]
SMALL = [-128, 127, 0, 5]


@given(ROWS, st.sampled_from([(FAR_APART, np.int64), (SMALL, np.int8), (SMALL, np.int64)]))
def test_grouped_auc_is_the_mean_over_groups_by_samples(
    rows: list[tuple[int, float, int]], names: tuple[list[int], type]
) -> None:
    labels, scores, members = columns(rows)
    total, samples, left_out = Fraction(0), 0, 0
    for group in set(members):
        mine = [place for place, member in enumerate(members) if member == group]
        value = pair_count([labels[place] for place in mine], [scores[place] for place in mine])
        if value is None:
            left_out += 1
        else:
            total, samples = total + value * len(mine), samples + len(mine)
    groups: npt.NDArray[Any] = np.array([names[0][member] for member in members], names[1])
    got = metrics.grouped_auc(np.array(labels), np.array(scores, np.float32), groups)
    assert got.groups_left_out == left_out
    assert got.groups_used == len(set(members)) - left_out
    assert got.value == (None if samples == 0 else pytest.approx(float(total / samples), rel=1e-12))


def test_grouped_auc_keeps_ids_of_all_64_bits_apart() -> None:
    groups = np.array([2**64 - 1, 2**64 - 1, 0, 0, 2**63, 2**63], np.uint64)
    got = metrics.grouped_auc([0, 1, 1, 0, 1, 1], [1.0, 2.0, 1.0, 2.0, 0.0, 1.0], groups)
    assert got == metrics.GroupedAuc(value=0.5, groups_used=2, groups_left_out=1)


LOGITS = st.floats(-1e4, 1e4, width=32)


@given(st.lists(st.tuples(st.integers(0, 1), LOGITS), min_size=1, max_size=30))
def test_logloss_of_logits_is_the_logarithm_of_one_plus_exp(rows: list[tuple[int, float]]) -> None:
    def loss(label: int, logit: float) -> float:
        wrong = -logit if label else logit
        return wrong if wrong > 700 else math.log1p(math.exp(wrong))

    labels, logits = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], np.float32)
    expected = math.fsum(loss(*row) for row in rows) / len(rows)
    assert metrics.logloss_of_logits(labels, logits) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(st.lists(st.tuples(st.integers(0, 1), st.floats(-15, 15, width=32)), min_size=1, max_size=30))
def test_both_loglosses_agree_where_probabilities_can_say_it(rows: list[tuple[int, float]]) -> None:
    labels, logits = [row[0] for row in rows], [row[1] for row in rows]
    of_probabilities = metrics.logloss(labels, metrics.sigmoid(logits))
    assert metrics.logloss_of_logits(labels, logits) == pytest.approx(of_probabilities, rel=1e-8)


@pytest.mark.parametrize(
    ("label", "logit", "expected"),
    [(1, math.inf, 0.0), (0, -math.inf, 0.0), (0, math.inf, math.inf), (1, -3e38, 3e38), (0, 1e30, 1e30)],
)
def test_extreme_logits_neither_overflow_nor_hide(label: int, logit: float, expected: float) -> None:
    assert metrics.logloss_of_logits([label], np.array([logit])) == pytest.approx(expected)


def test_a_sure_and_wrong_probability_costs_infinitely_much() -> None:
    assert metrics.logloss([1, 0], [0.0, 0.5]) == math.inf
    assert metrics.logloss([0, 1], [1.0, 0.5]) == math.inf
    assert metrics.logloss([0, 1], [0.0, 1.0]) == 0.0


@pytest.mark.parametrize("logit", [-1e38, -800.0, -40.0, -1.0, 0.0, 1.0, 40.0, 800.0, 1e38])
def test_sigmoid_keeps_small_probabilities(logit: float) -> None:
    expected = 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0
    assert metrics.sigmoid([logit])[0] == pytest.approx(expected, rel=1e-14, abs=1e-300)


def test_normalised_entropy_of_the_base_rate_is_one() -> None:
    labels = [1, 0, 0, 0, 0]
    assert metrics.normalised_entropy(labels, metrics.logloss(labels, [0.2] * 5)) == pytest.approx(1.0, rel=1e-15)
    better = metrics.logloss(labels, [0.9, 0.1, 0.1, 0.1, 0.1])
    base_rate = -(0.2 * math.log(0.2) + 0.8 * math.log(0.8))
    assert better is not None
    assert metrics.normalised_entropy(labels, better) == pytest.approx(better / base_rate, rel=1e-15)


@pytest.mark.parametrize("labels", [[], [0, 0], [1]])
def test_normalised_entropy_needs_both_classes(labels: list[int]) -> None:
    assert metrics.normalised_entropy(labels, 0.3) is None


def test_calibration_is_predicted_over_observed() -> None:
    assert metrics.calibration([1, 0, 0, 1], [0.5, 0.5, 0.2, 1.0]) == pytest.approx(1.1)
    assert metrics.calibration([0, 0], [0.5, 0.5]) is None
    assert metrics.calibration([], []) is None


def test_no_samples_have_no_logloss() -> None:
    assert metrics.logloss([], []) is None
    assert metrics.logloss_of_logits([], []) is None


@given(ROWS, st.integers(2, 12))
def test_roc_points_lie_on_the_curve_and_rise_from_end_to_end(rows: list[tuple[int, float, int]], most: int) -> None:
    labels, scores, _ = columns(rows)
    points = metrics.roc_points(np.array(labels), np.array(scores, np.float32), most)
    positives, negatives = sum(labels), len(labels) - sum(labels)
    if positives == 0 or negatives == 0:
        assert points == []
        return
    on_curve = {(0.0, 0.0)}
    for bar in set(scores):
        caught = [label for label, score in zip(labels, scores, strict=True) if score >= bar]
        on_curve.add(((len(caught) - sum(caught)) / negatives, sum(caught) / positives))
    assert set(points) <= on_curve
    assert points[0] == (0.0, 0.0)
    assert points[-1] == (1.0, 1.0)
    assert points == sorted(set(points))
    assert len(points) <= most


def test_the_area_under_all_roc_points_is_the_auc() -> None:
    chance = np.random.default_rng(2)
    scores = np.round(chance.normal(size=300), 1)
    labels = chance.random(300) < metrics.sigmoid(scores)
    x, y = np.array(metrics.roc_points(labels, scores, most=10_000)).T
    assert np.trapezoid(y, x) == pytest.approx(metrics.auc(labels, scores), rel=1e-12)


@given(ROWS.filter(bool), st.integers(1, 7))
def test_calibration_bins_hold_every_sample_once_and_keep_equal_predictions_together(
    rows: list[tuple[int, float, int]], bins: int
) -> None:
    labels, logits, _ = columns(rows)
    chances = metrics.sigmoid(logits)
    points = metrics.calibration_points(labels, chances, bins)
    assert sum(point["count"] for point in points) == len(rows)
    assert len(points) <= bins
    order = np.argsort(chances, kind="stable")
    start = 0
    for point in points:
        mine = order[start : start + int(point["count"])]
        start += int(point["count"])
        assert point["predicted"] == pytest.approx(chances[mine].mean(), rel=1e-12, abs=1e-300)
        assert point["observed"] == pytest.approx(np.array(labels)[mine].mean(), rel=1e-12)
        assert start == len(rows) or chances[order[start]] > chances[mine[-1]]


def test_calibration_bins_of_different_predictions_have_equal_counts() -> None:
    points = metrics.calibration_points(np.zeros(103), np.linspace(0.1, 0.9, 103), bins=10)
    assert sorted({point["count"] for point in points}) == [10, 11]
    assert len(points) == 10


def test_scores_collected_in_batches_equal_those_of_one_array() -> None:
    chance = np.random.default_rng(11)
    logits = chance.normal(size=1000).astype(np.float32)
    labels = (chance.random(1000) < metrics.sigmoid(logits)).astype(np.float32)
    groups = chance.integers(0, 30, 1000)
    scores = metrics.Scores()
    for start in range(0, 1000, 130):
        piece = slice(start, start + 130)
        scores.add(labels[piece], logits[piece], groups[piece])
    loss, grouped = metrics.logloss_of_logits(labels, logits), metrics.grouped_auc(labels, logits, groups)
    assert len(scores) == 1000
    assert scores.metrics() == {
        "auc": metrics.auc(labels, logits),
        "logloss": loss,
        "normalised_entropy": metrics.normalised_entropy(labels, loss),
        "calibration": metrics.calibration(labels, metrics.sigmoid(logits)),
        "grouped_auc": grouped.value,
        "groups_used": grouped.groups_used,
        "groups_left_out": grouped.groups_left_out,
    }
    assert scores.pictures()["roc"] == [list(point) for point in metrics.roc_points(labels, logits)]
    assert scores.pictures()["calibration"] == metrics.calibration_points(labels, metrics.sigmoid(logits))


def test_scores_keep_a_copy_of_a_buffer_that_is_used_again() -> None:
    scores, labels, logits = metrics.Scores(), np.array([0.0, 1.0], np.float32), np.array([-1.0, 1.0], np.float32)
    scores.add(labels, logits)
    labels[:], logits[:] = 0.0, 0.0
    assert scores.metrics()["auc"] == 1.0


def test_scores_of_nothing_are_none() -> None:
    scores = metrics.Scores()
    assert len(scores) == 0
    assert set(scores.metrics().values()) == {None}
    assert scores.pictures() == {"roc": [], "calibration": []}


@pytest.mark.parametrize(("first", "second"), [(None, [1, 1]), ([1, 1], None)])
def test_groups_come_with_every_batch_or_with_none(first: list[int] | None, second: list[int] | None) -> None:
    scores = metrics.Scores()
    scores.add([0, 1], [0.0, 1.0], first)
    with pytest.raises(InputError, match="with all or with none"):
        scores.add([0, 1], [0.0, 1.0], second)
    assert len(scores) == 2


REFUSED = {
    "a soft label": (lambda: metrics.auc([0.0, 0.5], [1.0, 2.0]), "labels hold 0.5"),
    "a label of minus one": (lambda: metrics.auc([-1, 1], [1.0, 2.0]), "labels hold -1"),
    "a NaN label": (lambda: metrics.logloss_of_logits([math.nan], [1.0]), "labels hold nan"),
    "labels as texts": (lambda: metrics.auc(["0", "1"], [1.0, 2.0]), "labels are of type"),
    "labels as a column": (lambda: metrics.auc([[0], [1]], [1.0, 2.0]), r"labels have shape \(2, 1\)"),
    "fewer scores": (lambda: metrics.auc([0, 1], [1.0]), r"scores have shape \(1,\)"),
    "scores as texts": (lambda: metrics.auc([0, 1], ["a", "b"]), "scores are of type"),
    "groups as floats": (lambda: metrics.grouped_auc([0, 1], [1.0, 2.0], [0.5, 1.0]), "must be whole numbers"),
    "a logit as probability": (lambda: metrics.logloss([0, 1], [0.5, 1.5]), "probabilities hold 1.5"),
    "a probability below 0": (lambda: metrics.calibration([0, 1], [-0.1, 1.0]), "probabilities hold -0.1"),
    "one point": (lambda: metrics.roc_points([0, 1], [1.0, 2.0], most=1), "most=1"),
    "no bins": (lambda: metrics.calibration_points([0, 1], [0.1, 0.2], bins=0), "bins=0"),
}


@pytest.mark.parametrize(("call", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_told(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=sentence):
        call()
