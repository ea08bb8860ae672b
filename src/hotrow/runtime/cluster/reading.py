"""Reading on a cluster: loaders make the batches, the driver learns their names and hands them out in order.

The loaders are roles of their own, or the trainers. Where they change, what was not handed out yet is read again by
those that stay; a loader that leaves keeps its batches until they are done. Batches of a lost one that were handed out
and are not done are read again by another when one of them is needed.
"""

import logging
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress

from hotrow.data.loader import Loader
from hotrow.data.position import Mark, Position
from hotrow.data.reading import AnyBatch, BatchName, BatchRead, BatchReader, advanced, in_order
from hotrow.data.row_ranges import group_rows_of
from hotrow.data.stretches import ROWS_MOST, Assignment, assign, stretch_of
from hotrow.errors import InputError
from hotrow.runtime.cluster.loader_link import LoaderGone, LoaderLink
from hotrow.transport.client import RpcClient
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.messages import BatchesDue, CloseReading, KeepBatches, Message, OpenReading
from hotrow.types import RoleId

_log = logging.getLogger("hotrow.runtime")


class ClusterReading:
    """The `RemoteReading` of a data loader. Used in the thread of the training loop, like the loader itself."""

    def __init__(
        self,
        rpc: RpcClient,
        check_alive: Callable[[], None],
        loaders: Sequence[RoleId],
        loader: Loader,
        key: str,
        numbers: Iterator[int],
        window: Callable[[], int] | None = None,
    ) -> None:
        """`key`: of the source, which the loaders have prepared; `numbers`: of readings, none is used again.

        `window`: the batches after the last one handed out whose rows are loaded from disk ahead; None: no rows are.
        """
        self._rpc, self._check_alive, self._loaders, self._loader, self._key = rpc, check_alive, loaders, loader, key
        self._numbers, self._window = numbers, window
        self._stretch = 0
        self._sessions: list[_Session] = []  # the last one reads, the others have batches that are not done
        self._changed = False  # the loaders, since the last session began
        self._left: dict[RoleId, Future[None]] = {}
        self._gone: set[str] = set()  # loaders that were lost
        self._again: dict[tuple[int, int], BatchName] = {}  # by epoch and index, batches of lost loaders read again

    def read(self, position: Position) -> Generator[BatchRead, None, None]:
        """What is not done at a position, in order."""
        group_rows = group_rows_of(self._loader.source)
        if group_rows > ROWS_MOST and len(self._loaders) > 1:
            remedy = f"write them with row_group_size={ROWS_MOST:,} or less"
            _log.warning("row groups of %s rows: several loaders read each of them: %s", f"{group_rows:,}", remedy)
        self._stretch = stretch_of(position.batch, position.shuffle, group_rows)
        reading: Position | None = position
        while reading is not None:
            reading = yield from self._read(reading)

    def close(self) -> None:
        """Drop all batches. The fit has ended."""
        self._loaders = []
        self._close(self._sessions)

    def release(self, batch: BatchName) -> None:
        """Drop a batch that is not needed any more."""
        if (again := self._again.pop((batch.epoch, batch.index), None)) is not None:
            self.release(again)
        for session in self._sessions:
            if session.number == batch.reading:
                session.release(batch)
        self._close([each for each in self._sessions[:-1] if not each.handed_out])

    def leave(self, loader: RoleId) -> "Future[None]":
        """Read without a loader from the next batch on; the future is done when no batch of it is needed."""
        left = self._left[loader] = uncancellable_future()
        if loader in self._loaders and len(self._loaders) > 1:  # the last one reads until another joins
            self._loaders = [each for each in self._loaders if each != loader]
            self._changed = True
        self._finish_leaves()
        return left

    def lose(self, loader: RoleId) -> None:
        """Read without a lost loader from the next batch on."""
        self._gone.add(loader)
        self._loaders = [each for each in self._loaders if each != loader]
        self._changed = True
        for session in self._sessions:
            session.lose(loader)
        if (left := self._left.pop(loader, None)) is not None:
            left.set_result(None)

    def current(self, batch: BatchName) -> AnyBatch:
        """The batch itself, or its copy where its loader is lost: another one reads it again, or this process."""
        while batch.loader in self._gone:
            if not self._loaders:
                return self._read_one(batch)
            if (again := self._again.get((batch.epoch, batch.index))) is None or again.loader in self._gone:
                with suppress(LoaderGone):  # that one is lost too: another one reads
                    self._read_again(batch.epoch)
            else:
                batch = again
        return batch

    def _read_one(self, batch: BatchName) -> AnyBatch:
        """A batch, read in this process."""
        position = _position_of([batch.index], batch.epoch, self._loader.position())
        item = next(self._reader().read(position))
        if item.batch is None:
            raise InputError(f"batch {batch.index} of epoch {batch.epoch}: is not in the data any more")
        return item.batch

    def _reader(self) -> BatchReader:
        return BatchReader(self._loader.source, epochs=self._loader.epochs, labels=self._loader.labels)

    def join(self, loader: RoleId) -> None:
        """Read with one more loader, which has prepared the source, from the next batch on; not with a lost one."""
        if loader in self._gone:
            return
        self._loaders = [*(each for each in self._loaders if each not in self._left), loader]
        self._changed = True

    def _read(self, position: Position) -> Generator[BatchRead, None, Position | None]:
        """Read with the current loaders; returns the position where they changed, None at the end."""
        if not self._loaders:
            return (yield from self._read_here(position))
        assigned = assign(len(self._loaders), self._stretch)
        self._changed = False
        session = self._open_session(self._loaders, assigned, position)
        try:
            session.begin()
            for before in self._sessions[:-1]:
                before.supersede()
            self._close([each for each in self._sessions[:-1] if not each.handed_out])
            self._announce(session, assigned[0], position, None)
            for item in in_order(position, self._loader.epochs, assigned[0], session.next_of):
                position = advanced(position, item)
                session.hand_out(item)
                self._announce(session, assigned[0], position, item)
                yield item
                if self._changed:
                    return position
        except LoaderGone:
            return position
        return None

    def _announce(
        self, session: "_Session", assignment: Assignment, position: Position, item: BatchRead | None
    ) -> None:
        """Name the batches that are handed out soon to the loaders that have them; at the start of an epoch to all."""
        if self._window is None:
            return
        if item is None or item.batch is None:
            last = position.mark(position.epoch).below + self._window() - 1
            session.expect(session.names, position.epoch, last)
        else:
            last = item.index + self._window()
            session.expect([session.names[assignment.owner(last)]], item.epoch, last)

    def _read_here(self, position: Position) -> Generator[BatchRead, None, Position | None]:
        """Read in this process until another loader joins: all are lost."""
        _log.warning(
            "the run's own process reads the data until another role does, lost are: %s", ", ".join(sorted(self._gone))
        )
        self._changed = False
        for item in self._reader().read(position):
            position = advanced(position, item)
            yield item
            if self._changed:
                return position
        return None

    def _open_session(
        self, loaders: Sequence[RoleId], assigned: Sequence[Assignment], position: Position
    ) -> "_Session":
        number, (rpc, check_alive) = next(self._numbers), (self._rpc, self._check_alive)
        session = _Session(number, rpc, check_alive, self._loader, self._key, loaders, assigned, position)
        self._sessions.append(session)
        return session

    def _read_again(self, epoch: int) -> None:
        """Let one loader read what lost ones had made of an epoch, and what is handed out and not done."""
        wanted = sorted({each for session in self._sessions for each in session.handed_out_by(self._gone)})
        indexes = [index for each, index in wanted if each == epoch]
        position = _position_of(indexes, epoch, self._loader.position())
        session = self._open_session(self._loaders[:1], assign(1, self._stretch), position)
        self._sessions.insert(0, self._sessions.pop())  # the last one reads on
        session.begin()
        for _ in indexes:
            item = session.next_of(0)
            session.hand_out(item)
            if isinstance(item.batch, BatchName):
                self._again[epoch, item.index] = item.batch
        session.supersede()

    def _close(self, sessions: "Sequence[_Session]") -> None:
        self._sessions = [each for each in self._sessions if each not in sessions]
        for session in sessions:
            session.close()
        self._finish_leaves()

    def _finish_leaves(self) -> None:
        """A loader is needed while it reads, or is to, and while a batch of it is not done."""
        busy: set[str] = set(self._loaders)
        busy |= {name for session in self._sessions for name in session.handed_out.values()}
        busy |= {name for session in self._sessions[-1:] for name in session.names}
        for name in [each for each in self._left if each not in busy]:
            self._left.pop(name).set_result(None)


def _position_of(indexes: Sequence[int], epoch: int, like: Position) -> Position:
    """A position at which these batches of an epoch, and those after them, are not done."""
    wanted, first, last = set(indexes), indexes[0], indexes[-1]
    others = tuple(index for index in range(first + 1, last) if index not in wanted)
    return like.model_copy(update={"epoch": epoch, "marks": (Mark(below=first, above=others),)})


class _Session:
    """One reading on a fixed set of loaders."""

    def __init__(
        self,
        number: int,
        rpc: RpcClient,
        check_alive: Callable[[], None],
        loader: Loader,
        key: str,
        names: Sequence[RoleId],
        assigned: Sequence[Assignment],
        position: Position,
    ) -> None:
        self.number, self.names = number, list(names)
        self.handed_out: dict[tuple[int, int], str] = {}  # and not released, with their loaders
        self._rpc = rpc
        self._superseded = False
        ahead = loader.prefetch + (assigned[0].stretch if len(assigned) > 1 else 0)
        self._links = {
            name: LoaderLink(rpc, name, self.number, ahead, loader.source.trouble, check_alive) for name in names
        }
        document, labels = position.model_dump_json(), loader.labels
        self._open = {
            name: OpenReading(number, key, document, loader.epochs, labels, each.number, each.loaders, each.stretch)
            for name, each in zip(names, assigned, strict=True)
        }

    def begin(self) -> None:
        """Let all loaders read. LoaderGone where one is lost."""
        opened = [self._rpc.request(name, message) for name, message in self._open.items()]
        for asked, link in zip(opened, self._links.values(), strict=True):
            link.wait(asked)
            link.request()

    def hand_out(self, item: BatchRead) -> None:
        """Keep the batch until it is released."""
        if isinstance(item.batch, BatchName):
            self.handed_out[item.epoch, item.index] = item.batch.loader

    def handed_out_by(self, loaders: Container[str]) -> list[tuple[int, int]]:
        """Batches of these loaders that are not released."""
        return [batch for batch, loader in self.handed_out.items() if loader in loaders]

    def expect(self, loaders: Sequence[RoleId], epoch: int, index: int) -> None:
        """Batches up to this one are handed out soon. Word that does not arrive is made up for by the next."""
        for name in loaders:
            with suppress(InputError):  # it is lost
                self._rpc.send_one_way(name, BatchesDue(self.number, epoch, index))

    def lose(self, loader: RoleId) -> None:
        if loader in self._links:
            self._links[loader].lose()

    def next_of(self, loader: int) -> BatchRead:
        return self._links[self.names[loader]].next()

    def release(self, batch: BatchName) -> None:
        self.handed_out.pop((batch.epoch, batch.index), None)
        name = RoleId.parse(batch.loader)
        if self._superseded:
            self._send(name, self._keep(name))
        else:
            self._links[name].release(batch)

    def supersede(self) -> None:
        """Another session reads: the loaders of this one keep what was handed out, and make no more."""
        if not self._superseded:
            self._superseded = True
            for name, link in self._links.items():
                link.close()
                self._send(name, self._keep(name))

    def close(self) -> None:
        """Drop what the loaders still keep."""
        for name, link in self._links.items():
            link.close()
            self._send(name, CloseReading(self.number))

    def _keep(self, name: RoleId) -> KeepBatches:
        return KeepBatches(self.number, tuple(batch for batch, loader in self.handed_out.items() if loader == name))

    def _send(self, name: RoleId, message: Message) -> None:
        """A loader that is lost, or whose connection is closed, has nothing to drop."""
        with suppress(InputError):
            self._rpc.request(name, message)
