"""Frames through shared memory, without sockets: both ends of two rings in one process."""

import gc
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from struct import pack

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import InputError
from hotrow.transport.counts import ServerCounts, WireCounts
from hotrow.transport.envelope import lent
from hotrow.transport.ring_ends import RingWatch
from hotrow.transport.ring_memory import PAGE, SLOTS, OfferedMemory, open_memory
from hotrow.transport.rings import PLACED_LEAST, UNLOCKED_LEAST, Placement, Rings, StaleRings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd and /proc are of Linux")

RING = 4 * UNLOCKED_LEAST


@dataclass
class Ends:
    """The rings of a client and of its server."""

    ring_bytes: int = RING
    sent: WireCounts = field(default_factory=WireCounts)
    received: ServerCounts = field(default_factory=ServerCounts)

    def __post_init__(self) -> None:
        offered = OfferedMemory(self.ring_bytes)
        self.server = Rings(open_memory(offered.offer, self.ring_bytes), self.received, is_client=False)
        offered.withdraw()
        self.client = Rings(offered.memory, self.sent, is_client=True)

    def place(self, *frames: bytes) -> Placement:
        placement = self.client.place([memoryview(frame) for frame in frames])
        assert placement is not None
        return placement

    def pass_on(self, *frames: bytes) -> list[memoryview]:
        placement = self.place(*frames)
        return self.server.views(placement.table, placement.frames)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.client.close()
    made.server.close()


def frame(nbytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(nbytes)


@pytest.mark.parametrize("nbytes", [PLACED_LEAST, PLACED_LEAST + 1, UNLOCKED_LEAST - 1, UNLOCKED_LEAST, RING])
def test_frames_arrive_as_they_are(ends: Ends, nbytes: int) -> None:
    (there,) = ends.pass_on(frame(nbytes))
    assert there == frame(nbytes)
    assert ends.sent.ring_bytes_out == ends.received.ring_bytes_in == nbytes


def test_both_directions_have_their_own_ring(ends: Ends) -> None:
    (there,) = ends.pass_on(frame(RING, 1))
    back = ends.server.place([memoryview(frame(RING, 2))])
    assert back is not None
    assert ends.client.views(back.table, back.frames) == [frame(RING, 2)]
    assert there == frame(RING, 1)


def test_a_frame_under_the_threshold_is_not_placed(ends: Ends) -> None:
    assert ends.client.place([memoryview(frame(PLACED_LEAST - 1))]) is None
    assert ends.sent.ring_full == 0


def test_a_frame_larger_than_the_ring_is_not_placed_and_counted(ends: Ends) -> None:
    assert ends.client.place([memoryview(frame(RING + 1))]) is None
    assert ends.sent.ring_full == 1


@pytest.mark.parametrize("large", [(0,), (1, 3), (4,), (0, 1, 2, 3, 4)])
def test_small_frames_keep_their_places_between_large_ones(ends: Ends, large: tuple[int, ...]) -> None:
    frames = [frame(PLACED_LEAST if each in large else 10 + each, each) for each in range(5)]
    placement = ends.place(*frames)
    assert len(placement.frames) == 5 - len(large)
    assert ends.server.views(placement.table, placement.frames) == frames


def test_arrays_of_any_shape_are_placed_as_bytes(ends: Ends) -> None:
    for rows in (256, 4096):  # below and above the copy without the GIL
        array = np.random.default_rng(0).random((rows, 64))
        placement = ends.client.place(lent([array]))
        assert placement is not None
        (there,) = ends.server.views(placement.table, [])
        assert np.array_equal(np.frombuffer(there).reshape(rows, 64), array)


def test_a_slot_is_used_again_when_its_last_view_is_gone_and_not_before(ends: Ends) -> None:
    (whole,) = ends.pass_on(frame(RING))
    part = np.frombuffer(whole[100:200], np.uint8)[10:20]
    del whole
    assert ends.client.place([memoryview(frame(RING, 1))]) is None
    assert part.tobytes() == frame(RING)[110:120]
    del part
    assert ends.pass_on(frame(RING, 1)) == [frame(RING, 1)]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12; the child only ends
def test_a_forked_process_that_drops_its_copy_frees_nothing(ends: Ends) -> None:
    views = ends.pass_on(frame(RING))
    if (child := os.fork()) == 0:
        views.clear()
        os._exit(0)
    os.waitpid(child, 0)
    assert ends.client.place([memoryview(frame(RING))]) is None
    views.clear()
    assert ends.client.place([memoryview(frame(RING))]) is not None


def test_slots_are_freed_in_any_order(ends: Ends) -> None:
    quarter = RING // 4
    views = [ends.pass_on(frame(quarter, each))[0] for each in range(4)]
    assert ends.client.place([memoryview(frame(quarter))]) is None
    views[2] = views[1] = memoryview(b"")
    assert ends.pass_on(frame(2 * quarter, 9)) == [frame(2 * quarter, 9)]
    assert views[0] == frame(quarter, 0)
    assert views[3] == frame(quarter, 3)


def test_what_has_no_room_goes_with_the_message_and_is_counted(ends: Ends) -> None:
    placement = ends.place(frame(RING // 2, 1), frame(RING, 2), frame(RING // 2, 3))
    assert [each.nbytes for each in placement.frames] == [RING]
    assert ends.sent.ring_full == 1
    there = ends.server.views(placement.table, placement.frames)
    assert there == [frame(RING // 2, 1), frame(RING, 2), frame(RING // 2, 3)]


def test_more_frames_than_slots_go_with_the_message() -> None:
    ends = Ends(ring_bytes=PLACED_LEAST * (SLOTS + 1))
    one = frame(PLACED_LEAST)
    placement = ends.place(*[one] * (SLOTS + 1))
    assert (len(placement.slots), len(placement.frames), ends.sent.ring_full) == (SLOTS, 1, 1)
    there = ends.server.views(placement.table, placement.frames)
    assert len(there) == SLOTS + 1
    assert all(each == one for each in there)


def test_a_message_that_was_not_sent_frees_its_slots(ends: Ends) -> None:
    placement = ends.place(frame(RING))
    assert ends.client.place([memoryview(frame(RING))]) is None
    ends.client.free(placement)
    assert ends.pass_on(frame(RING, 1)) == [frame(RING, 1)]


def entry(position: int, slot: int, offset: int, nbytes: int) -> bytes:
    return pack("<IIQQ", position, slot, offset, nbytes)


@pytest.mark.parametrize(
    ("table", "accepted"),
    [
        (entry(0, 0, 0, RING), True),
        (entry(0, 0, 1, RING), False),
        (entry(0, 0, RING, 0), True),
        (entry(0, 0, RING + 1, 0), False),
        (entry(0, 0, 2**64 - 1, 2**64 - 1), False),
        (entry(0, 0, 0, 2**64 - 1), False),
        (entry(0, SLOTS - 1, 0, 1), True),
        (entry(0, SLOTS, 0, 1), False),
        (entry(1, 0, 0, 1), True),
        (entry(2, 0, 0, 1), False),
        (entry(0, 0, 0, 1) + entry(0, 1, 0, 1), False),
        (entry(0, 0, 0, 1) + entry(1, 1, 0, 1), True),
        (b"", True),
        (bytes(23), False),
        (bytes(24 * (SLOTS + 1)), False),
    ],
)
def test_a_table_that_points_outside_is_refused(ends: Ends, table: bytes, accepted: bool) -> None:
    token = ends.place(frame(PLACED_LEAST)).table[:16]
    if accepted:
        ends.server.views(token + table, [memoryview(b"one")])
    else:
        with pytest.raises(InputError, match="shared memory"):
            ends.server.views(token + table, [memoryview(b"one")])


@given(
    st.lists(st.tuples(st.integers(0, 4), *[st.integers(0, n) | st.integers(0, 2**32 - 1) for n in (3, RING, RING)]))
)
def test_a_table_of_any_numbers_is_refused_or_names_bytes_of_the_ring(places: list[tuple[int, int, int, int]]) -> None:
    ends = Ends()
    table = ends.place(frame(PLACED_LEAST)).table[:16] + b"".join(entry(*place) for place in places)
    inside = all(slot < SLOTS and offset + nbytes <= RING for _, slot, offset, nbytes in places)
    rising = all(low < high for low, high in pairwise(position for position, *_ in places))
    reached = all(position <= number + 2 for number, (position, *_) in enumerate(places))
    try:
        there = ends.server.views(table, [memoryview(b"one"), memoryview(b"two")])
    except InputError:
        assert not (inside and rising and reached)
    else:
        assert inside
        assert rising
        assert reached
        assert len(there) == len(places) + 2
        assert ends.client._memory is not None
        for position, _, offset, nbytes in places:
            assert there[position] == ends.client._memory.mapped[PAGE + offset : PAGE + offset + nbytes]


def test_flags_that_a_peer_sets_at_random_free_no_slot_that_was_not_taken(ends: Ends) -> None:
    assert ends.server._memory is not None
    ends.place(frame(PLACED_LEAST))  # slot 0
    ends.server._memory.mapped[SLOTS + 1 : 2 * SLOTS] = b"\x01" * (SLOTS - 1)
    assert ends.client.place([memoryview(frame(RING))]) is None
    assert ends.pass_on(frame(RING - PLACED_LEAST)) == [frame(RING - PLACED_LEAST)]


def test_a_table_of_other_rings_is_stale(ends: Ends) -> None:
    with pytest.raises(StaleRings):
        ends.server.views(Ends().place(frame(PLACED_LEAST)).table, [])


def test_closed_rings_place_nothing_and_views_of_them_stay_readable(ends: Ends) -> None:
    placement = ends.place(frame(PLACED_LEAST))
    (view,) = ends.server.views(placement.table, [])
    ends.server.close()
    ends.client.close()
    ends.client.close()
    gc.collect()
    assert view == frame(PLACED_LEAST)
    assert ends.client.place([memoryview(frame(PLACED_LEAST))]) is None
    ends.client.free(placement)
    with pytest.raises(StaleRings):
        ends.server.views(placement.table, [])


def test_rings_that_get_the_pipe_number_of_closed_ones_stay_open() -> None:
    watch, ends, successor = RingWatch(zmq.Poller()), Ends(), Ends()
    watch.add(ends.server)
    ended = watch.ended({ends.server.pipe: zmq.POLLERR})
    assert ended == [ends.server]
    ends.server.close()  # by a message that was read in the same turn
    assert successor.server._memory is not None
    number, ends.server.pipe = os.dup2(successor.server.pipe, ends.server.pipe), -1
    os.close(successor.server.pipe)
    successor.server.pipe = successor.server._memory.pipe = number
    watch.add(successor.server)
    for rings in ended:
        rings.close()
    assert len(watch) == 1
    watch.close()
    assert len(watch) == 0
