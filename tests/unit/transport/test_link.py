"""A link with a rate: bytes pass at it and no faster, in order, in virtual time."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.errors import ConfigError
from hotrow.transport.client import RpcClient
from hotrow.transport.link import GBPS, EmulatedLink, TokenBucket
from hotrow.transport.rings import PLACED_LEAST
from profiles import examples
from unit.transport.parts import READY, answer_of, running, wire_to

MESSAGES = st.lists(st.tuples(st.floats(0, 2), st.integers(0, 5_000)), min_size=1, max_size=30)


def test_a_message_takes_its_bytes_over_the_rate() -> None:
    bucket = TokenBucket(1_000)
    assert bucket.pass_s(500, now=10.0) == 10.5
    assert bucket.pass_s(500, now=10.0) == 11.0  # behind the one before
    assert bucket.pass_s(0, now=10.0) == 11.0
    assert bucket.pass_s(1_000, now=20.0) == 21.0  # a pause saves nothing up
    assert TokenBucket(1 * GBPS).pass_s(125_000_000, now=0.0) == 1.0


def test_a_burst_passes_at_once_after_a_pause_and_not_before() -> None:
    bucket = TokenBucket(1_000, burst_bytes=500)
    assert bucket.pass_s(500, now=10.0) == 10.0
    assert bucket.pass_s(1, now=10.0) == pytest.approx(10.001)
    assert bucket.pass_s(499, now=10.5) == 10.5
    assert bucket.pass_s(501, now=11.0) == pytest.approx(11.001)


@settings(deadline=None, max_examples=examples(100))
@given(messages=MESSAGES, burst=st.sampled_from([0.0, 700.0]))
def test_no_interval_holds_more_than_the_rate_and_the_burst_and_a_busy_link_is_never_idle(
    messages: list[tuple[float, int]], burst: float
) -> None:
    rate, bucket = 1_000.0, TokenBucket(1_000.0, burst)
    now, passed = 0.0, []
    for pause, nbytes in messages:
        now += pause
        passed.append((now, bucket.pass_s(nbytes, now), nbytes))
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            nbytes = sum(each[2] for each in passed[first : last + 1])
            assert nbytes <= burst + rate * (passed[last][1] - passed[first][0]) + 1e-6
    times = [each[1] for each in passed]
    assert times == sorted(times)
    for (_, before, _), (handed, after, nbytes) in pairwise(passed):
        assert after <= max(before, handed) + nbytes / rate + 1e-9


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 0.0), (-1.0, 0.0), (1.0, -1.0)])
def test_a_link_without_a_rate_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        TokenBucket(rate, burst)


def test_each_direction_has_its_own_rate_and_the_delay_comes_on_top() -> None:
    link, seen = EmulatedLink(delay_s=0.25, bytes_per_s=1_000), []
    link.hold("out", 1_000, 0.0, lambda: seen.append("first out"))
    link.hold("out", 1_000, 0.0, lambda: seen.append("second out"))
    link.hold("in", 500, 0.0, lambda: seen.append("in"))

    def arrived(now: float) -> list[str]:
        for action in link.due(now):
            action()
        return seen

    assert link.next_s == 0.75
    assert arrived(0.74) == []
    assert arrived(0.75) == ["in"]
    assert arrived(2.24) == ["in", "first out"]
    assert arrived(2.25) == ["in", "first out", "second out"]
    assert link.next_s == float("inf")


def test_a_link_without_delay_and_rate_holds_nothing_back() -> None:
    assert not EmulatedLink().is_slow
    assert EmulatedLink(delay_s=0.1).is_slow
    assert EmulatedLink(bytes_per_s=1.0).is_slow


def test_requests_of_a_client_take_the_time_of_their_bytes_and_use_no_shared_memory() -> None:
    frame = np.zeros(PLACED_LEAST, np.uint8)
    with running() as server, wire_to(server, link_gbps=0.02) as wire:
        answer_of(wire.request("shard", READY))
        start = time.monotonic()
        for each in [wire.request("shard", READY, [frame]) for _ in range(3)]:
            assert bytes(answer_of(each).frames[0]) == bytes(frame)
        assert time.monotonic() - start >= 3 * frame.nbytes / (0.02 * GBPS)
        assert (wire.counts.rings, wire.counts.ring_bytes_out) == (0, 0)
        assert min(wire.counts.bytes_out, wire.counts.bytes_in) > 3 * frame.nbytes
    with pytest.raises(ConfigError, match="link_gbps=-1"):
        RpcClient(security="off", link_gbps=-1)
