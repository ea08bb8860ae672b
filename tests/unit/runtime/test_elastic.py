"""A number of trainers that changes with the cluster: the rules, on both sides of each bound."""

import pytest

from hotrow.runtime.elastic import ScaleDecision, TrainerSupply, decide_scale
from hotrow.types import RoleId

ZERO, ONE = RoleId("trainer", 0), RoleId("trainer", 1)
WAIT, REQUEST, WITHDRAW = ScaleDecision(), ScaleDecision(request=True), ScaleDecision(withdraw=True)


@pytest.mark.parametrize(
    ("supply", "decision"),
    [
        (TrainerSupply(most=4, present=3), REQUEST),
        (TrainerSupply(most=4, present=4), WAIT),
        (TrainerSupply(most=4, present=5), WAIT),  # a user let one more join
        (TrainerSupply(most=4, present=0), REQUEST),
        (TrainerSupply(most=4, present=3, requested=True), WAIT),  # one at a time
        (TrainerSupply(most=4, present=4, requested=True), WITHDRAW),
        (TrainerSupply(most=4, present=3, joinable=False), WAIT),
        (TrainerSupply(most=4, present=3, joinable=False, requested=True), WITHDRAW),
        (TrainerSupply(most=4, present=3, losses=2, losses_most=2), REQUEST),
        (TrainerSupply(most=4, present=3, losses=3, losses_most=2), WAIT),
        (TrainerSupply(most=4, present=0, losses=1, losses_most=0), WAIT),
    ],
)
def test_one_place_at_a_time_is_requested_until_there_are_enough(
    supply: TrainerSupply, decision: ScaleDecision
) -> None:
    assert decide_scale(supply) == decision


@pytest.mark.parametrize(
    ("present", "draining", "leave"),
    [(3, (ONE,), (ONE,)), (2, (ZERO, ONE), (ZERO,)), (1, (ZERO,), ()), (0, (), ())],
)
def test_trainers_of_a_drained_node_leave_but_for_the_last_one(
    present: int, draining: tuple[RoleId, ...], leave: tuple[RoleId, ...]
) -> None:
    decision = decide_scale(TrainerSupply(most=3, present=present, draining=draining))
    assert decision == ScaleDecision(leave, request=True)


def test_a_trainer_that_will_leave_makes_room_for_another_at_once() -> None:
    assert decide_scale(TrainerSupply(most=1, present=1, draining=(ZERO,))).request
    assert not decide_scale(TrainerSupply(most=1, present=1)).request
