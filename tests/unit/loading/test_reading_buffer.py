"""A loader makes what was granted, announces it until it is received, and keeps batches until they are released."""

import numpy as np
import pytest

from hotrow.data.batch import Batch
from hotrow.data.reading import BatchRead
from hotrow.errors import InputError
from hotrow.loading.core import ReadingBuffer


def item(index: int) -> BatchRead:
    return BatchRead(0, index, Batch((), np.full((2, 1), index, np.float32)), {})


def indexes(buffer: ReadingBuffer) -> list[int] | None:
    made = buffer.made()
    return None if made is None else [each.index for each in made]


def test_nothing_is_made_before_it_is_granted_and_no_more_than_that() -> None:
    buffer = ReadingBuffer()
    assert not buffer.may_make
    buffer.grant(0, 2, [])
    for index in range(2):
        assert buffer.may_make
        buffer.add(item(index))
    assert not buffer.may_make
    buffer.grant(1, 3, [])
    assert buffer.may_make


def test_items_are_announced_again_until_they_are_received() -> None:
    """A reply may be lost: the request comes a second time then."""
    buffer = ReadingBuffer()
    buffer.grant(0, 5, [])
    assert indexes(buffer) is None
    buffer.add(item(0))
    buffer.add(item(1))
    for _ in range(2):
        buffer.grant(0, 5, [])
        assert indexes(buffer) == [0, 1]
    buffer.grant(2, 5, [])
    assert indexes(buffer) is None
    for wrong in (1, 3):
        with pytest.raises(InputError, match=f"received={wrong}: must be from 2 to 2"):
            buffer.grant(wrong, 5, [])


def test_a_batch_can_be_pulled_again_until_it_is_released() -> None:
    buffer = ReadingBuffer()
    buffer.grant(0, 5, [])
    buffer.add(item(7))
    for _ in range(2):
        assert buffer.batch(0, 7).numbers[0, 0] == 7
    for _ in range(2):
        buffer.grant(1, 5, [(0, 7)])
    assert buffer.kept == 0
    with pytest.raises(InputError, match="batch 7 of epoch 0: is not here"):
        buffer.batch(0, 7)


def due(buffer: ReadingBuffer) -> list[int]:
    return [int(batch.numbers[0, 0]) for batch in buffer.take_due()]


def test_batches_up_to_the_named_one_are_due_each_once_and_those_made_later_too() -> None:
    buffer = ReadingBuffer()
    buffer.grant(0, 9, [])
    for index in range(4):
        buffer.add(item(index))
    assert due(buffer) == []
    buffer.expect(0, 2)
    assert due(buffer) == [0, 1, 2]
    assert due(buffer) == []
    buffer.expect(0, 5)
    assert due(buffer) == [3]
    for index in (4, 5, 6):
        buffer.add(item(index))
    assert due(buffer) == [4, 5]
    buffer.expect(0, 1)  # an old message
    assert due(buffer) == []


def test_a_batch_that_was_released_is_not_due() -> None:
    buffer = ReadingBuffer()
    buffer.grant(0, 9, [])
    for index in range(3):
        buffer.add(item(index))
    buffer.grant(3, 9, [(0, 0), (0, 1)])
    buffer.expect(1, 0)
    assert due(buffer) == [2]


def test_the_end_is_told_after_the_last_item() -> None:
    buffer = ReadingBuffer()
    buffer.grant(0, 5, [])
    buffer.add(item(0))
    buffer.end(InputError("bad"))
    assert (indexes(buffer), buffer.ended) == ([0], True)
    buffer.grant(1, 5, [])
    assert indexes(buffer) == []
