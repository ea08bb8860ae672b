"""Items that a thread reads ahead: all of them, in order, its exceptions, and no more than were asked for."""

import threading
from collections.abc import Generator

import pytest

from hotrow.data.background import read_ahead, read_ahead_ready


def numbers(count: int) -> Generator[int, None, None]:
    yield from range(count)


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_ready_lists_hold_all_items_in_order(count: int, most: int) -> None:
    lists = list(read_ahead_ready(numbers(count), most))
    assert [item for ready in lists for item in ready] == list(range(count))
    assert all(1 <= len(ready) <= most for ready in lists)
    assert list(read_ahead(numbers(count), most)) == list(range(count))


def test_all_items_that_are_ready_come_at_once() -> None:
    waiting = threading.Event()

    def items() -> Generator[int, None, None]:
        yield from range(3)
        waiting.set()  # three are in the queue
        yield 3

    lists = read_ahead_ready(items(), 3)
    first = next(lists)
    assert waiting.wait(10)
    rest = list(lists)
    assert first + [item for ready in rest for item in ready] == [0, 1, 2, 3]


def test_items_before_an_exception_come_first() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        raise ValueError("torn page")

    lists = read_ahead_ready(items(), 4)
    assert next(lists) == [1]
    with pytest.raises(ValueError, match="torn page"):
        next(lists)


def test_closing_ends_the_thread_and_the_items() -> None:
    closed = threading.Event()

    def items() -> Generator[int, None, None]:
        try:
            yield from range(1_000_000)
        finally:
            closed.set()

    lists = read_ahead_ready(items(), 2)
    assert next(lists)[0] == 0
    lists.close()
    assert closed.wait(10)
