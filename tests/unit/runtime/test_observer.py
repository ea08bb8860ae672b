"""What an observer of a mode is told of a batch."""

import pytest

from hotrow.modes.base import Grant
from hotrow.runtime.clock import Elapsed
from hotrow.runtime.executors import BatchResult
from hotrow.runtime.observer import observation


def result(pulled_step: int) -> BatchResult:
    return BatchResult(Grant(0, 7, 5), 5, pulled_step, 8, 0.5, None, Elapsed(0.25, 0.125))


@pytest.mark.parametrize(("pulled_step", "late"), [(3, 2), (5, 0), (6, 0)])
def test_a_batch_of_a_rank_that_is_a_step_ahead_of_the_driver_is_not_late(pulled_step: int, late: int) -> None:
    seen = observation(result(pulled_step), 9.0, step=5)
    assert (seen.staleness, seen.busy_s, seen.passed_s) == (late, 0.25, 0.125)
