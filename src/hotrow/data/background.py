"""An iterator that runs ahead in a thread of its own, a bounded number of items at most."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")

JOIN_S = 5.0  # a reader that hangs in its input longer than this ends by itself once its input comes


def read_ahead(
    items: Generator[Item, None, None], most: int, started: Callable[[], None] | None = None
) -> Generator[Item, None, None]:
    """The same items. An exception of `items` comes out here; closing this, or dropping it, ends the thread.

    `started` is called first in the thread.
    """
    with _reader(items, most, started) as channel:
        yield from iter(channel.get, None)


def read_ahead_ready(items: Generator[Item, None, None], most: int) -> Generator[list[Item], None, None]:
    """The same items, in lists of all that are ready, of at least one and at most `most`; otherwise as `read_ahead`."""
    with _reader(items, most, None) as channel:
        yield from iter(channel.get_ready, [])


@contextmanager
def _reader(
    items: Generator[Item, None, None], most: int, started: Callable[[], None] | None
) -> Iterator["_Channel[Item]"]:
    channel: _Channel[Item] = _Channel(most)
    thread = Thread(target=_fill, args=(items, channel, started), name="hotrow-reader", daemon=True)
    thread.start()
    try:
        yield channel
        if channel.error is not None:
            raise channel.error
    finally:
        channel.close()
        thread.join(JOIN_S)


def _fill(items: Generator[Item, None, None], channel: "_Channel[Item]", started: Callable[[], None] | None) -> None:
    error: BaseException | None = None
    try:
        if started is not None:
            started()
        while (item := next(items, None)) is not None and channel.put(item):
            del item  # the consumer's alone from here on
        items.close()
    except BaseException as raised:
        error = raised
    channel.end(error)


class _Channel(Generic[Item]):
    """A bounded queue: the reader marks the end, the consumer may close it earlier."""

    def __init__(self, most: int) -> None:
        self.error: BaseException | None = None
        self._most = most
        self._items: deque[Item] = deque()
        self._changed = Condition()
        self._ended = self._closed = False

    def put(self, item: Item) -> bool:
        """Wait for space; False once the consumer has closed it."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._most)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            return not self._closed

    def get(self) -> Item | None:
        """Wait for an item; None once there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._items)
            item = self._items.popleft() if self._items else None
            self._changed.notify_all()
            return item

    def get_ready(self) -> list[Item]:
        """Wait for an item; all there are. Empty once there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._items)
            ready = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return ready

    def end(self, error: BaseException | None) -> None:
        """No more items, maybe for a reason."""
        with self._changed:
            self.error, self._ended = error, True
            self._changed.notify_all()

    def close(self) -> None:
        """No more wanted: what waits is dropped."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
