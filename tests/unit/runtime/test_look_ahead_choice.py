"""Which way of reading is faster: the decision, from times alone."""

from collections.abc import Callable

import numpy as np
import pytest

from hotrow.runtime.look_ahead import MARGIN, STRETCH_STEPS, LookAheadChoice

MOST_STEPS = 8 + 8 * (STRETCH_STEPS[1] + 1) + 1


def decided(step_s: Callable[[int, int], float]) -> tuple[LookAheadChoice, int]:
    """`step_s(number, look-ahead)` says how long a step takes."""
    choice, now, number = LookAheadChoice(), 5.0, 0
    while choice.sentence is None:
        number += 1
        now += step_s(number, choice.steps)
        before = choice.steps
        assert choice.stepped(now) == (choice.steps != before)
        assert number <= MOST_STEPS
    return choice, number


@pytest.mark.parametrize(
    ("ahead_s", "steps"), [(0.02, 1), (0.05, 0), (0.03 * (1 - 2 * MARGIN), 1), (0.03 * (1 - MARGIN / 2), 0), (0.03, 0)]
)
def test_the_faster_way_is_taken_where_it_gains_more_than_the_margin(ahead_s: float, steps: int) -> None:
    choice, _ = decided(lambda number, ahead: ahead_s if ahead else 0.03)
    assert choice.steps == steps


def test_the_sentence_gives_both_times() -> None:
    choice, _ = decided(lambda number, ahead: 0.0176 if ahead else 0.0204)
    assert choice.sentence is not None
    assert choice.sentence.startswith("look_ahead 'auto' takes 1: a step takes 17.6 ms with it and 20.4 ms without")


def test_a_slow_drift_weighs_on_both() -> None:
    choice, _ = decided(lambda number, ahead: 0.03 * 1.01**number)
    assert choice.steps == 0
    choice, _ = decided(lambda number, ahead: (0.027 if ahead else 0.03) * 1.01**number)
    assert choice.steps == 1


def test_single_slow_steps_decide_nothing() -> None:
    random = np.random.default_rng(0)
    choice, _ = decided(lambda number, ahead: (0.025 if ahead else 0.03) + (1.0 if random.random() < 0.2 else 0.0))
    assert choice.steps == 1


def test_long_steps_are_measured_in_few_and_short_ones_in_more() -> None:
    assert decided(lambda number, ahead: 2.0)[1] <= 8 + 8 * (STRETCH_STEPS[0] + 1) + 1
    assert decided(lambda number, ahead: 1e-4)[1] == MOST_STEPS


def test_after_a_decision_nothing_changes() -> None:
    choice, _ = decided(lambda number, ahead: 0.02 if ahead else 0.03)
    sentence = choice.sentence
    assert not any(choice.stepped(100.0 * number) for number in range(200))
    assert (choice.steps, choice.sentence) == (1, sentence)


def test_a_pause_between_two_fits_is_no_step() -> None:
    choice = LookAheadChoice()
    now = 0.0
    for number in range(300):
        if number % 7 == 0:
            now += 1000
            choice.restart()
        now += 0.02 if choice.steps else 0.03
        choice.stepped(now)
    assert choice.steps == 1
