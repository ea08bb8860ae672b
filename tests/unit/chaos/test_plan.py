"""A plan of faults: the same for a seed, with every role, inside its time."""

from itertools import pairwise

import pytest

from hotrow.chaos.plan import CUT_S, DELAY_S, GAP_S, KILLED, LINKED, plan_faults


def test_a_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert plan_faults(3, 60) == plan_faults(3, 60)
    assert plan_faults(3, 60) != plan_faults(4, 60)


def test_a_shorter_plan_is_the_beginning_of_a_longer_one() -> None:
    short, long = plan_faults(3, 30), plan_faults(3, 60)
    assert long[: len(short)] == short


@pytest.mark.parametrize("seed", range(20))
def test_every_role_is_killed_and_every_kind_of_fault_comes_within_half_a_minute(seed: int) -> None:
    plan = plan_faults(seed, 30)
    assert {each.role for each in plan if each.kind == "kill"} == set(KILLED)
    assert {each.kind for each in plan} == {"kill", "delay", "cut"}
    assert {each.role for each in plan if each.kind != "kill"} <= set(LINKED)


def test_faults_are_in_order_and_inside_their_bounds() -> None:
    plan = plan_faults(5, 600)
    gaps = [after.at_s - before.at_s for before, after in pairwise(plan)]
    assert GAP_S[0] - 1e-9 <= min(gaps) < max(gaps) <= GAP_S[1] + 1e-9
    assert 0 < plan[0].at_s < plan[-1].at_s < 600
    assert all(0 <= each.draw < 1 for each in plan)
    assert all(CUT_S[0] <= each.lasts_s <= CUT_S[1] for each in plan if each.kind == "cut")
    assert all(DELAY_S[0] <= each.delay_s <= DELAY_S[1] for each in plan if each.kind == "delay")


def test_roles_are_killed_as_they_are_listed() -> None:
    plan = plan_faults(0, 120, killed=("shard", "loader"))
    assert {each.role for each in plan if each.kind == "kill"} == {"shard", "loader"}
