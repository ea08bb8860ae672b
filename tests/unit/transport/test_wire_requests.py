"""Patience: probes come with doubling pauses, and a peer is lost after silence, not after slowness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import ConfigError
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.pending import NEVER, PendingRequest, PendingRequests

PATIENCE = RetryPolicy(first_s=2.0, most_s=10.0, give_up_s=60.0)


def middle() -> float:
    return 0.5


def request(number: int, now: float = 0.0, *, deadline: bool = True) -> PendingRequest:
    return PendingRequest(number, b"", (), deadline, now)


def open_requests(*requests: PendingRequest) -> PendingRequests:
    opened = PendingRequests(PATIENCE, middle)
    for each in requests:
        opened.add(each)
        opened.sent(each, each.created_s)
    return opened


def test_pauses_double_up_to_the_most() -> None:
    assert [PATIENCE.pause_s(attempt, 0.5) for attempt in (0, 1, 2, 3, 1000)] == [2, 4, 8, 10, 10]


@given(attempt=st.integers(0, 10_000), chance=st.floats(0, 1))
def test_chance_spreads_a_pause_by_a_quarter(attempt: int, chance: float) -> None:
    middle_s = PATIENCE.pause_s(attempt, 0.5)
    assert 0.75 * middle_s <= PATIENCE.pause_s(attempt, chance) <= 1.25 * middle_s


def test_a_busy_peer_has_pauses_of_its_own() -> None:
    assert [PATIENCE.busy_s(attempt, 0.5) for attempt in (0, 1, 2, 6, 7, 1000)] == [0.01, 0.02, 0.04, 0.64, 1, 1]


def test_an_ask_that_was_put_off_is_due_after_its_pause_and_keeps_its_place() -> None:
    requests = open_requests(request(1), request(2))
    busy = requests.take(1)
    assert busy is not None
    requests.put_off(busy, 0.5)
    assert [each.number for each in requests.all()] == [1, 2]
    assert requests.due(0.509, 0.5) == ([], [])
    assert [(each.number, each.put_off) for each in requests.due(0.51, 0.5)[0]] == [(1, True)]
    requests.sent(busy, 0.51)
    assert not busy.put_off
    assert requests.due(1.9, 0.5) == ([], [])


@pytest.mark.parametrize(
    "settings",
    [
        {"first_s": 0},
        {"first_s": 11},
        {"give_up_s": 9},
        {"give_up_s": 86_401},
        {"most_s": float("nan")},
        {"busy_first_s": 2},
    ],
)
def test_patience_that_cannot_be_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**settings)
    assert RetryPolicy(first_s=1, most_s=1, give_up_s=1).pause_s(5, 0.5) == 1


@pytest.mark.parametrize("field", list(Limits.model_fields))
def test_limits_have_bounds(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Limits(**{field: -4096 if field == "ring_bytes" else 0})  # 0 is no ring


def test_an_ask_is_due_a_pause_after_it_was_sent_not_before() -> None:
    requests = open_requests(request(1))
    assert requests.next_s == 2.0
    assert requests.due(1.999, 0.0) == ([], [])
    (due,), lost = requests.due(2.0, 0.0)
    assert (due.number, lost) == (1, [])
    requests.sent(due, 2.0)
    assert requests.next_s == 6.0  # the second pause is four seconds
    assert requests.due(5.999, 0.0) == ([], [])


def test_an_answered_ask_is_due_no_more_and_is_answered_once() -> None:
    one = request(1)
    requests = open_requests(one, request(2))
    assert requests.take(1) is one
    assert requests.take(1) is None
    assert [each.number for each in requests.due(3.0, 0.0)[0]] == [2]
    assert len(requests) == 1


def test_a_silent_peer_is_lost_after_the_deadline_and_not_before() -> None:
    requests = open_requests(request(1, now=5.0))
    assert requests.due(64.999, float("-inf"))[1] == []
    assert [each.number for each in requests.due(65.0, float("-inf"))[1]] == [1]
    assert requests.take(1) is None
    assert requests.next_s == NEVER


def test_a_peer_that_is_heard_is_not_lost_however_slow() -> None:
    requests = open_requests(request(1))
    for received_s in range(0, 1000, 50):
        assert requests.due(received_s + 59.0, float(received_s))[1] == []
    assert [each.number for each in requests.due(950.0 + 60.0, 950.0)[1]] == [1]


def test_without_a_deadline_nothing_is_given_up() -> None:
    requests = open_requests(request(1, deadline=False))
    due, lost = requests.due(1e9, 0.0)
    assert ([each.number for each in due], lost) == ([1], [])


def test_an_ask_that_could_not_be_sent_yet_is_never_due_but_may_be_lost() -> None:
    requests = PendingRequests(PATIENCE, middle)
    requests.add(request(1))
    assert requests.next_s == 60.0
    assert requests.due(59.0, 0.0) == ([], [])
    assert len(requests.due(60.0, 0.0)[1]) == 1


@given(
    pauses=st.lists(st.floats(0.01, 30), min_size=1, max_size=30),
    probes=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_next_s_is_never_later_than_what_is_due(pauses: list[float], probes: list[bool]) -> None:
    """Whatever the loop does or leaves undone, waking at next_s misses nothing."""
    requests, now, received_s = open_requests(request(1), request(2), request(3, deadline=False)), 0.0, 0.0
    for pause_s, probe in zip(pauses, probes, strict=False):
        now += pause_s
        wanted = [each for each in requests.all() if each.due_s <= now or (each.deadline and received_s + 60 <= now)]
        assert not wanted or requests.next_s <= now
        due, lost = requests.due(now, received_s)
        assert {each.number for each in due + lost} == {each.number for each in wanted}
        for each in due:
            requests.sent(each, now)
        received_s = now if probe else received_s
