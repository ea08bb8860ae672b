"""Costs of messages: queues that are served in order, pauses in which nothing moves, and a ring beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import ConfigError
from hotrow.sim.network import Link, Network


def test_the_ring_costs_two_rounds_of_all_but_one_nth_of_the_bytes() -> None:
    network = Network(reduce_latency_s=0.01, reduce_bandwidth="1KB")
    for workers in (2, 3, 64):
        hops = 2 * (workers - 1)
        right = 2 * (workers - 1) / workers * 5000 / 1000 + hops * 0.01
        assert network.all_reduce_s(workers, 5000) == pytest.approx(right)
    assert network.all_reduce_s(1, 5000) == 0.0
    assert Network().all_reduce_s(64, 10**9) == 0.0


def test_a_lonely_message_takes_latency_and_the_slower_of_both_links() -> None:
    assert Network(latency_s=0.5, bandwidth=1000).message_s(2000) == 2.5
    assert Network(latency_s=0.5, bandwidth=1000, worker_bandwidth=500).message_s(2000) == 4.5
    assert Network().message_s(10**12) == 0.0


def test_messages_wait_for_those_before_them_and_only_for_them() -> None:
    link = Link(Network(bandwidth=100))
    assert [link.take(0.0, 100), link.take(0.5, 100), link.take(0.6, 50)] == [1.0, 2.0, 2.5]
    assert link.take(7.0, 100) == 8.0


def test_a_workers_own_link_holds_up_nobody_else() -> None:
    link = Link(Network(bandwidth=100, worker_bandwidth=50))
    assert [link.take(0.0, 100), link.take(0.0, 100)] == [2.0, 2.0]
    assert link.take(0.0, 100) == 3.0


def test_nothing_moves_in_a_pause() -> None:
    link = Link(Network(bandwidth=100), [(1.0, 3.0)])
    assert link.take(0.5, 100) == 3.5
    assert link.open_s(0.999) == 0.999
    assert [link.open_s(time_s) for time_s in (1.0, 2.0, 2.999, 3.0)] == [3.0, 3.0, 3.0, 3.0]


def test_without_bandwidth_only_a_pause_takes_time() -> None:
    link = Link(Network(), [(1.0, 3.0)])
    assert [link.take(0.0, 10**9), link.take(1.0, 1), link.take(3.0, 1)] == [0.0, 3.0, 3.0]
    assert not Link(Network()).takes_time


def walked(time_s: int, size: int, free_s: int, pauses: list[tuple[int, int]]) -> int:
    """The twin: second after second, a byte in each that is not paused."""
    now = max(time_s, free_s)
    while any(start <= now < end for start, end in pauses):
        now += 1
    while size:
        size -= not any(start <= now < end for start, end in pauses)
        now += 1
    return now


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=8),
    st.sets(st.integers(0, 12), max_size=4).map(lambda starts: [(5 * start, 5 * start + 3) for start in starts]),
)
def test_a_queue_with_pauses_is_what_a_walk_through_the_seconds_gives(
    messages: list[tuple[int, int]], pauses: list[tuple[int, int]]
) -> None:
    link = Link(Network(bandwidth=1), [(float(start), float(end)) for start, end in pauses])
    now, free = 0, 0
    for gap, size in messages:
        now += gap
        free = walked(now, size, free, pauses)
        assert link.take(float(now), size) == pytest.approx(free)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"latency_s": -1}, "Network.latency_s=-1: Input should be greater than or equal to 0"),
        ({"bandwidth": "fast"}, "Network.bandwidth='fast': is not a size"),
        ({"bandwidth": 0}, "Network.bandwidth=0: must be from 1 to"),
    ],
)
def test_settings_that_cannot_be_are_told_in_a_sentence(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        Network(**settings)
    assert told in str(error.value)
