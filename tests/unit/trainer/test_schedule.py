"""Learning rates over samples, and when to stop."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hotrow as hr
from hotrow.trainer.schedule import EarlyStopping, EarlyStoppingState, Schedule


def test_left_alone_it_changes_nothing() -> None:
    assert [Schedule().scale(samples) for samples in (0, 1, 10**12)] == [1, 1, 1]


def test_warmup_rises_to_one_and_no_further() -> None:
    schedule = Schedule(warmup=10)
    assert schedule.scale(0) == pytest.approx(0.1)
    assert schedule.scale(9) == 1
    assert schedule.scale(10) == 1


@pytest.mark.parametrize(("decay", "half"), [("linear", 0.6), ("cosine", 0.6)])
def test_decay_falls_to_its_end_and_stays_there(decay: str, half: float) -> None:
    schedule = Schedule(warmup=10, decay=decay, over=100, final=0.2)
    assert schedule.scale(10) == pytest.approx(1)
    assert schedule.scale(60) == pytest.approx(half)
    assert schedule.scale(110) == pytest.approx(0.2)
    assert schedule.scale(10**9) == pytest.approx(0.2)
    assert schedule.scale(35) == pytest.approx(
        0.8 if decay == "linear" else 0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2
    )


@given(st.integers(0, 10**6), st.integers(0, 1000), st.sampled_from(["constant", "linear", "cosine"]))
def test_the_factor_stays_within_its_bounds(samples: int, warmup: int, decay: str) -> None:
    scale = Schedule(warmup=warmup, decay=decay, over=1000, final=0.1).scale(samples)
    assert 0 < scale <= 1


def test_a_decay_without_a_length_is_refused() -> None:
    with pytest.raises(hr.ConfigError, match="needs `over`"):
        Schedule(decay="linear")


def test_patience_counts_validations_in_a_row() -> None:
    watch = EarlyStoppingState(EarlyStopping(patience=2))
    assert [watch.better(value, epoch) for epoch, value in enumerate([0.7, 0.69, 0.71, 0.71, 0.70])] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert watch.over
    assert (watch.best, watch.epoch) == (0.71, 2)


def test_one_short_of_patience_goes_on() -> None:
    watch = EarlyStoppingState(EarlyStopping(patience=2))
    for value in (0.7, 0.6):
        watch.better(value, 0)
    assert not watch.over


def test_a_loss_is_better_when_it_falls() -> None:
    watch = EarlyStoppingState(EarlyStopping(metric="logloss", least=0.01))
    assert [watch.better(value, 0) for value in (0.5, 0.495, 0.48)] == [True, False, True]


def test_a_gain_must_exceed_the_least() -> None:
    watch = EarlyStoppingState(EarlyStopping(least=0.125))
    assert [watch.better(value, 0) for value in (0.5, 0.625, 0.75)] == [True, False, True]
