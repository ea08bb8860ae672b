"""Virtual time: actions in the order of their times, those of one instant in the order of planning."""

from math import inf

import pytest

from hotrow.sim.clock import Clock


def never() -> bool:
    return False


def test_actions_run_by_time_and_those_of_one_instant_in_the_order_of_planning() -> None:
    clock, seen = Clock(), list[tuple[float, str]]()

    def note(name: str) -> None:
        seen.append((clock.now_s, name))

    for time_s, name in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        clock.at(time_s, note, name)
    clock.run(inf, never)
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]


def test_an_action_may_plan_another_one_for_now() -> None:
    clock, seen = Clock(), list[str]()

    def first(name: str) -> None:
        clock.at(clock.now_s, seen.append, name)

    clock.at(1.0, first, "planned by the first")
    clock.at(1.0, seen.append, "planned before")
    clock.run(inf, never)
    assert seen == ["planned before", "planned by the first"]


def test_a_run_ends_at_its_time_which_is_included_and_goes_on_from_there() -> None:
    clock, seen = Clock(), list[float]()
    for time_s in (1.0, 2.0, 3.0):
        clock.at(time_s, seen.append, time_s)
    clock.run(2.0, never)
    assert (seen, clock.now_s, clock.planned) == ([1.0, 2.0], 2.0, 1)
    clock.run(2.5, never)
    assert clock.now_s == 2.5
    clock.run(inf, never)
    assert (seen, clock.now_s) == ([1.0, 2.0, 3.0], 3.0)


def test_a_run_ends_when_it_is_done_before_the_next_action() -> None:
    clock, seen = Clock(), list[float]()
    for time_s in (1.0, 2.0, 3.0):
        clock.at(time_s, seen.append, time_s)
    clock.run(inf, lambda: len(seen) == 2)
    assert (seen, clock.now_s) == ([1.0, 2.0], 2.0)


def test_nothing_is_planned_for_the_past() -> None:
    clock = Clock()
    clock.at(1.0, lambda _: None, None)
    clock.run(inf, never)
    clock.at(1.0, lambda _: None, None)
    with pytest.raises(AssertionError, match=r"planned for 0\.5, and it is 1\.0 already"):
        clock.at(0.5, lambda _: None, None)
