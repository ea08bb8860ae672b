"""A checkpoint that a thread writes while training goes on, and what the next delta builds on."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hotrow.checkpoint.manifest import Base
from hotrow.checkpoint.reader import SavedLink
from hotrow.checkpoint.rows import Watch


class Saving:
    """One checkpoint on its way to its folder."""

    def __init__(
        self, write: Callable[[Watch], SavedLink], *, size: int, pause_s: float, copied: Callable[[], int]
    ) -> None:
        """`size`: about how many bytes; `pause_s`: how long training stood still for the moment that is saved.

        `copied` tells the bytes of rows that are held in their old form now.
        """
        self.size, self.pause_s = size, pause_s
        self.written = 0  # bytes so far
        self.copied_bytes = 0  # of rows in their old form, at most so far
        self._copied = copied
        self._started, self._ended = time.monotonic(), 0.0
        self._link: SavedLink | None = None
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it is written, or failed."""
        return not self._thread.is_alive()

    @property
    def seconds(self) -> float:
        """Since it began, until it ended."""
        return (self._ended or time.monotonic()) - self._started

    def wait(self) -> None:
        """Until it is written, or failed."""
        self._thread.join()

    def result(self) -> SavedLink:
        """Wait for it; raises what made it fail."""
        self.wait()
        if self._fault is not None:
            raise self._fault
        assert self._link is not None
        return self._link

    def _run(self, write: Callable[[Watch], SavedLink]) -> None:
        try:
            self._link = write(self._count)
        except BaseException as fault:  # told by `result`
            self._fault = fault
        finally:
            self._ended = time.monotonic()

    def _count(self, size: int) -> None:
        self.written += size
        self.copied_bytes = max(self.copied_bytes, self._copied())


@dataclass(slots=True)
class DeltaBases:
    """By folder, the checkpoint that a delta of these tables can build on: the last one that was saved."""

    _last: tuple[str, Base] | None = field(default=None)

    def base(self, folder: str) -> Base | None:
        """None where the next checkpoint of this folder has to be full."""
        return self._last[1] if self._last is not None and self._last[0] == folder else None

    def saved(self, folder: str, link: SavedLink) -> None:
        """The tables count changes from this one on."""
        self._last = folder, Base(number=link.manifest.number, digest=link.digest)

    def forget(self) -> None:
        """Rows came from elsewhere: the next one has to be full."""
        self._last = None
