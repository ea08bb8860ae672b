"""Sketches of a regression against the exact figures, merged in any order, on the wire and in the order of batches."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import InputError
from hotrow.metrics import Errors, Scores, binned, error_sketch, quantiles, sketch
from hotrow.metrics.batch_order import merged_in_order
from hotrow.metrics.error_sketch import ErrorSketch
from hotrow.metrics.sketch import ScoreSketch
from hotrow.transport.batches import FrameReader
from hotrow.transport.envelope import decode, encode
from hotrow.transport.error_sketches import pack_errors, read_errors
from hotrow.transport.messages import EvaluationScores

ROWS = st.lists(
    st.tuples(st.floats(-50, 50, width=32), st.floats(-50, 50, width=32), st.sampled_from([0.0, 0.5, 3.0])),
    max_size=40,
)


def added(rows: list[tuple[float, float, float]], *, weighted: bool) -> tuple[Errors, ErrorSketch]:
    exact, found = Errors(), ErrorSketch()
    for start in range(0, len(rows), 3):
        labels, predictions, weights = (
            np.array(each, np.float32) for each in zip(*rows[start : start + 3], strict=True)
        )
        for taker in (exact, found):
            taker.add(labels, predictions, weights if weighted else None)
    return exact, found


def near(found: dict[str, float | None], exact: dict[str, float | None]) -> bool:
    """R2 of labels that are almost equal is a quotient of rounding errors."""

    def close(name: str, one: float | None, other: float | None) -> bool:
        if one is None or other is None or name == "r2":
            return (one is None) == (other is None)
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)

    return all(close(name, found[name], exact[name]) for name in exact)


@given(ROWS, st.booleans(), st.sampled_from([4, 1_000]))
def test_figures_are_the_exact_ones_whatever_was_folded_and_in_whatever_order(
    rows: list[tuple[float, float, float]], weighted: bool, kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(error_sketch, "PAIRS_MOST", kept)
        exact, whole = added(rows, weighted=weighted)
        assert whole.exact == (len(rows) <= kept)
        assert near(whole.metrics(), exact.metrics())
        if whole.exact:
            assert whole.metrics() == exact.metrics()
        third = len(rows) // 3
        for order in permutations([rows[:third], rows[third : 2 * third], rows[2 * third :]]):
            merged = ErrorSketch()
            for part in order:
                merged.merge(added(part, weighted=weighted)[1])
            assert len(merged) == len(rows)
            assert near(merged.metrics(), exact.metrics())


@given(ROWS, st.booleans())
def test_a_sketch_of_a_regression_comes_out_of_its_frames_as_it_went_in(
    rows: list[tuple[float, float, float]], weighted: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(error_sketch, "PAIRS_MOST", 12)
        _, sent = added(rows, weighted=weighted)
        header, frames = pack_errors(sent)
        received = decode(encode(EvaluationScores("numbers", len(sent), numbers=(header,))))
        assert isinstance(received, EvaluationScores)
        views = [memoryview(frame.tobytes()) for frame in frames]
        back = read_errors(received.numbers[0], FrameReader(views))
        assert (len(back), back.metrics(), back.pictures()) == (len(sent), sent.metrics(), sent.pictures())
        with pytest.raises(InputError, match="frame"):
            read_errors(header, FrameReader(views[:-1]))


def test_labels_that_are_not_finite_are_refused_and_predictions_are_not() -> None:
    found = ErrorSketch()
    with pytest.raises(InputError, match="labels hold inf: each must be a finite number"):
        found.add([math.inf], [1.0])
    assert len(found) == 0
    found.add([1.0, 2.0], [math.nan, 2.0])
    assert math.isnan(found.metrics()["rmse"] or 0)


def test_batches_that_were_dealt_come_back_in_their_order_bit_for_bit() -> None:
    chance = np.random.default_rng(1)
    batches = [(chance.integers(0, 2, count), chance.normal(size=count).astype(np.float32)) for count in (7, 9, 5, 8)]
    exact, places = Scores(), [ScoreSketch(), ScoreSketch(), ScoreSketch()]
    dealt: list[list[tuple[int, int]]] = [[], [], []]
    for number, (labels, scores) in enumerate(batches):
        exact.add(labels, scores)
        place = (2 * number + 1) % 3
        places[place].add(labels, scores)
        dealt[place].append((number, len(labels)))
    found = merged_in_order(places, dealt, ScoreSketch())
    assert found.metrics() == exact.metrics()
    assert found._scores().joined()[1].tolist() == exact.joined()[1].tolist()


@pytest.mark.parametrize("weighted", [False, True])
def test_pictures_of_folded_sketches_are_near_the_exact_ones(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "PAIRS_MOST", 5_000)
    monkeypatch.setattr(error_sketch, "PAIRS_MOST", 5_000)
    monkeypatch.setattr(quantiles, "POINTS_MOST", 2_000)
    monkeypatch.setattr(binned, "BINS_MOST", 400)
    chance = np.random.default_rng(3)
    logits = chance.normal(size=40_000).astype(np.float32)
    labels = (chance.random(40_000) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    weights = chance.random(40_000).astype(np.float32) if weighted else None
    scores, scored, errors, numbers = Scores(), ScoreSketch(), Errors(), ErrorSketch()
    for start in range(0, 40_000, 1_000):
        mine = slice(start, start + 1_000)
        given_weights = None if weights is None else weights[mine]
        scores.add(labels[mine], logits[mine], weights=given_weights)
        scored.add(labels[mine], logits[mine], given_weights)
        errors.add(labels[mine], logits[mine], given_weights)
        numbers.add(labels[mine], logits[mine], given_weights)
    assert not scored.exact
    assert not numbers.exact
    curve, exact_curve = np.array(scored.pictures()["roc"]), np.array(scores.pictures()["roc"])
    steps = np.linspace(0, 1, 50)
    assert np.abs(np.interp(steps, *curve.T) - np.interp(steps, *exact_curve.T)).max() < 0.01
    for found, exact in ((scored.pictures(), scores.pictures()), (numbers.pictures(), errors.pictures())):
        assert len(found["calibration"]) == len(exact["calibration"]) == 20
        assert sum(point["count"] for point in found["calibration"]) == pytest.approx(40_000, abs=20)
        for near_one, point in zip(found["calibration"], exact["calibration"], strict=True):
            assert near_one["predicted"] == pytest.approx(point["predicted"], abs=0.05)
            assert near_one["observed"] == pytest.approx(point["observed"], abs=0.02)
