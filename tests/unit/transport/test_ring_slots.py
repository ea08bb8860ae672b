"""Which bytes of a ring are free: first fit, freed in any order, beside a slow twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.transport.slots import ALIGNMENT, Slot, SlotAllocator
from oracles.slots import SlowSlots

BYTES, SLOTS = 16 * ALIGNMENT, 5

actions = st.lists(st.one_of(st.integers(1, BYTES + 1), st.tuples(st.integers(0, SLOTS - 1))), max_size=40)


@given(actions)
def test_slots_are_those_of_the_slow_twin(drawn: list[int | tuple[int]]) -> None:
    """A number is a size to take; a tuple names a slot to free, counted among those that are taken."""
    fast, slow, taken = SlotAllocator(BYTES, SLOTS), SlowSlots(BYTES, SLOTS), []
    for each in drawn:
        if isinstance(each, int):
            slot = fast.take(each)
            expected = slow.take(-1 if slot is None else slot.number, each)
            assert (None if slot is None else slot.offset) == expected
            if slot is not None:
                assert slot.nbytes == each
                assert slot.number not in taken
                taken.append(slot.number)
        elif taken:
            number = taken.pop(each[0] % len(taken))
            fast.free(number)
            slow.free(number)
        assert len(fast) == len(taken)
        assert all(number in fast for number in taken)
    for number in taken:
        fast.free(number)
    assert fast.take(BYTES) is not None  # all gaps were joined


@pytest.mark.parametrize(("nbytes", "fits"), [(BYTES - 1, True), (BYTES, True), (BYTES + 1, False)])
def test_a_frame_may_take_the_whole_ring_and_no_byte_more(nbytes: int, fits: bool) -> None:
    assert (SlotAllocator(BYTES, SLOTS).take(nbytes) is not None) is fits


def test_a_slot_more_than_there_are_numbers_is_refused_until_one_is_free() -> None:
    slots = SlotAllocator(BYTES, 2)
    assert [slots.take(1), slots.take(1), slots.take(1)] == [Slot(0, 0, 1), Slot(1, ALIGNMENT, 1), None]
    slots.free(0)
    assert slots.take(1) == Slot(0, 0, 1)


def test_a_slot_that_is_kept_blocks_no_other() -> None:
    slots = SlotAllocator(4 * ALIGNMENT, SLOTS)
    first, second, third = (slots.take(ALIGNMENT) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    slots.free(third.number)
    slots.free(first.number)
    assert slots.take(3 * ALIGNMENT) is None
    assert slots.take(2 * ALIGNMENT) == Slot(first.number, 2 * ALIGNMENT, 2 * ALIGNMENT)
    assert len(slots) == 2


def test_an_empty_ring_has_no_slot() -> None:
    assert SlotAllocator(0, SLOTS).take(1) is None
