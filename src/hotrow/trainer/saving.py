"""A checkpoint that a thread writes while training goes on, and what the next delta builds on."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torch import nn

from hotrow import checkpoint
from hotrow.checkpoint import dense
from hotrow.checkpoint.folder_lock import SharedFolder
from hotrow.checkpoint.local_cut import LocalCut
from hotrow.checkpoint.manifest import Base, folder_of, read_manifest
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint, SavedLink
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.saving import TablesCut
from hotrow.errors import FileError, HotrowError, InputError
from hotrow.runtime.backend import Backend
from hotrow.runtime.losses import SavedRows
from hotrow.trainer.write_pace import WritePace

WAKE_S = 0.1  # how long the loss of a role may go unnoticed while the training loop waits for a checkpoint

_log = logging.getLogger("hotrow.trainer")


class Saving:
    """One checkpoint on its way to its folder."""

    def __init__(
        self,
        write: Callable[[Watch], SavedLink],
        *,
        size: int,
        pause_s: float,
        copied: Callable[[], int],
        pace: WritePace,
        check_alive: Callable[[], None],
    ) -> None:
        """`size`: about how many bytes; `pause_s`: how long training stood still for the moment that is saved.

        `copied` tells the bytes of rows that are held in their old form now; `check_alive` handles the losses of
        roles, which write. This is made in the thread of the training loop.
        """
        self._pace, self._check_alive = pace, check_alive
        self._loop_thread = threading.get_ident()
        self.size, self.pause_s = size, pause_s
        self.written = 0  # bytes so far
        self.copied_bytes = 0  # of rows in their old form, at most so far
        self._copied = copied
        self._started, self._ended = time.monotonic(), 0.0
        self.link: SavedLink | None = None  # once it is written
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
        """Until it is written, or failed. From now on it is written as fast as it can be.

        A shard that is lost meanwhile is started again by the training loop, which is here.
        """
        if not self.done:
            self._pace.hurry()
        ends_run: HotrowError | None = None
        while not self.done:
            self._thread.join(WAKE_S)
            if threading.get_ident() == self._loop_thread:
                try:
                    self._check_alive()
                except HotrowError as error:  # what can be written is written first
                    ends_run = ends_run or error
        if ends_run is not None:
            raise ends_run

    def result(self) -> SavedLink:
        """Wait for it; raises what made it fail."""
        self.wait()
        if self._fault is not None:
            raise self._fault
        assert self.link is not None
        return self.link

    def _run(self, write: Callable[[Watch], SavedLink]) -> None:
        try:
            self._pace.begin()
            self.link = write(self._count)
        except BaseException as fault:  # told by `result`
            self._fault = fault
        finally:
            self._ended = time.monotonic()

    def _count(self, size: int) -> None:
        self.written += size
        self.copied_bytes = max(self.copied_bytes, self._copied())
        self._pace.rest()


class BackgroundSaves:
    """The checkpoints of a trainer: one is written at a time, and a delta builds on the last one."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._folder = SharedFolder()
        self._under_way: tuple[str, Saving] | None = None  # the folder, and what is being written to it
        self._last: tuple[str, Base] | None = None  # the last folder, and the checkpoint that was saved to it
        self._loaded: str | None = None  # the folder that rows were loaded from

    def start(
        self,
        folder: str | Path,
        model: nn.Module,
        content: checkpoint.Saved,
        *,
        keep: int,
        delta: bool,
        slowdown: float,
        began: float,
    ) -> Saving:
        """Take the state of this moment, at rest, and let a thread write it. `began`: when training stopped for it."""
        checkpoint.check_keep(keep)
        pace = WritePace(slowdown)
        place = Place.of(folder)
        self._folder.hold(place)
        base, cut = self._cut(place, delta=delta)
        try:
            tensors = checkpoint.DenseTensors(*dense.saved(model, self._backend.optimizer))
        except BaseException:
            cut.close(saved=False)
            raise

        def write(watch: Watch) -> SavedLink:
            link = checkpoint.write_checkpoint(place, tensors, cut, content, base=base, keep=keep, watch=watch)
            with suppress(FileError):  # a rewrite came first: the next save is refused while it runs
                self._folder.hold(place)  # the first save has made it
            return link

        def copied() -> int:
            return cut.copied_bytes if isinstance(cut, LocalCut) else 0  # shards have their own

        size = cut.bytes + len(tensors.data)
        pause_s, check_alive = time.monotonic() - began, self._backend.check_alive
        saving = Saving(write, size=size, pause_s=pause_s, copied=copied, pace=pace, check_alive=check_alive)
        self._under_way = place.uri, saving
        if not cut.frozen:
            saving.wait()
            saving.pause_s = time.monotonic() - began
        return saving

    def finish(self) -> Saving | None:
        """Wait for what is being written; raises what made it fail."""
        saving = self.settle()
        if saving is not None:
            saving.result()
        return saving

    def settle(self) -> Saving | None:
        """Wait for what is being written. What made it fail is told by its `result`."""
        if self._under_way is None:
            return None
        folder, saving = self._under_way
        saving.wait()  # an interrupt here leaves it under way
        self._under_way = None
        if saving.link is not None:
            self._last = folder, Base(number=saving.link.manifest.number, digest=saving.link.digest)
        return saving

    def close(self) -> None:
        """The folder may be rewritten from now on."""
        self._folder.release()

    def abandon(self) -> bool:
        """Wait no longer for what is being written; whether there is something. What is unfinished is not found."""
        under_way, self._under_way = self._under_way, None
        return under_way is not None and not under_way[1].done

    def loaded(self, folder: str | None) -> None:
        """Rows came from a folder (None: from elsewhere): the next checkpoint has to be full."""
        self._last, self._loaded = None, folder

    def newest(self) -> SavedRows | None:
        """The last checkpoint that was saved or loaded, if it is still there."""
        saving = None if self._under_way is None else self._under_way[1]
        folders = [] if self._under_way is None or saving is None or saving.link is None else [self._under_way[0]]
        folders += [] if self._last is None else [self._last[0]]
        folders += [] if self._loaded is None else [self._loaded]
        for folder in folders:
            with suppress(InputError, OSError):
                counters = SavedCheckpoint.open(folder).manifest.counters
                return SavedRows(folder, int(counters.get("step", 0)), int(counters.get("samples", 0)))
        return None

    def _cut(self, place: Place, *, delta: bool) -> tuple[Base | None, TablesCut]:
        """The rows of this moment, and what a delta of them builds on; None: all rows, since no base serves."""
        base = self._base(place) if delta else None
        if base is not None:
            try:
                cut = self._backend.begin_cut(place, delta=True)
                return (base if cut.delta else None), cut
            except InputError as error:  # a table does not know all that changed
                _log.info("the next checkpoint is a full one: %s", error)
        if delta:
            self._backend.track_changes()
        return None, self._backend.begin_cut(place, delta=False)

    def _base(self, place: Place) -> Base | None:
        """The last checkpoint that was saved to a folder, if it is still there."""
        if self._last is None or self._last[0] != place.uri:
            return None
        base = self._last[1]
        with suppress(InputError, OSError):
            _, digest = read_manifest(place.folder(folder_of(base.number)))
            return base if digest == base.digest else None
        return None
