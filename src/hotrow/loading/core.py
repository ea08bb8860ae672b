"""The batches of one reading on one loader: which may be made, which are announced, which are kept.

The driver grants a number of items, batches and ends of epochs. Items are announced in order and repeated until a later
request says that they were received. A batch is kept until the driver releases it, so it can be pulled again.
"""

from collections.abc import Iterable

from hotrow.data.batch import Batch
from hotrow.data.reading import BatchRead
from hotrow.errors import InputError


class ReadingBuffer:
    """Values in, values out. Not thread-safe."""

    def __init__(self) -> None:
        self.error: BaseException | None = None  # that ended the reading
        self.ended = False
        self._made = self._until = self._received = 0
        self._items: list[BatchRead] = []  # made and not known to be received
        self._batches: dict[tuple[int, int], Batch] = {}  # by epoch and index
        self._due = (-1, -1)  # batches up to this one are handed out soon
        self._announced = (-1, -1)  # batches up to this one were given by `take_due`

    @property
    def may_make(self) -> bool:
        """Whether the driver has granted one more item."""
        return self._made < self._until

    @property
    def kept(self) -> int:
        """Batches in memory."""
        return len(self._batches)

    @property
    def received(self) -> int:
        """Items that the driver has."""
        return self._received

    def add(self, item: BatchRead) -> None:
        """One more item was made."""
        self._made += 1
        self._items.append(item)
        if isinstance(item.batch, Batch):
            self._batches[item.epoch, item.index] = item.batch

    def expect(self, epoch: int, index: int) -> None:
        """Batches up to this one are handed out soon. What an earlier call has named stays."""
        self._due = max(self._due, (epoch, index))

    def take_due(self) -> list[Batch]:
        """Batches that are handed out soon and are here, each once."""
        due = [each for each in self._batches if self._announced < each <= self._due]  # made in their order
        self._announced = due[-1] if due else self._announced
        return [self._batches[each] for each in due]

    def end(self, error: BaseException | None = None) -> None:
        """No more items, maybe for a reason."""
        self.ended, self.error = True, error

    def grant(self, received: int, until: int, released: Iterable[tuple[int, int]]) -> None:
        """The driver has the first `received` items, and wants those before `until`."""
        if not self._received <= received <= self._made:
            known = f"from {self._received} to {self._made}"
            raise InputError(f"received={received}: must be {known}, the items that were made and not received yet")
        del self._items[: received - self._received]
        self._received, self._until = received, max(self._until, until)
        for each in released:
            self._batches.pop(each, None)  # the request may come a second time

    def keep(self, kept: Iterable[tuple[int, int]]) -> None:
        """Nothing more is made; of the batches here only `kept` are needed."""
        self.ended = True
        self._items.clear()
        self._batches = {each: self._batches[each] for each in kept if each in self._batches}

    def made(self) -> list[BatchRead] | None:
        """Items that were not received; None where there is nothing to tell yet."""
        if self._items or self.ended:
            return list(self._items)
        return None

    def batch(self, epoch: int, index: int) -> Batch:
        """A batch that was announced and not released."""
        if (found := self._batches.get((epoch, index))) is None:
            raise InputError(f"batch {index} of epoch {epoch}: is not here: it was released, or never made")
        return found
