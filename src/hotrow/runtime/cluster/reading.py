"""Reading on a cluster: loaders make the batches, the driver learns their names and hands them out in order.

The loaders are roles of their own, or the trainers. Where they change, what was not handed out yet is read again by
those that stay; a loader that leaves keeps its batches until they are done.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress

from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.data.reading import BatchName, BatchRead, advanced, in_order
from hotrow.data.row_ranges import group_rows_of
from hotrow.data.stretches import ROWS_MOST, Assignment, assign, stretch_of
from hotrow.errors import InputError
from hotrow.runtime.cluster.loader_link import LoaderLink
from hotrow.transport.client import RpcClient
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.messages import CloseReading, KeepBatches, Message, OpenReading
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
    ) -> None:
        """`key`: of the source, which the loaders have prepared; `numbers`: of readings, none is used again."""
        self._rpc, self._check_alive, self._loaders, self._loader, self._key = rpc, check_alive, loaders, loader, key
        self._numbers = numbers
        self._stretch = 0
        self._sessions: list[_Session] = []  # the last one reads, the others have batches that are not done
        self._changed = False  # the loaders, since the last session began
        self._left: dict[RoleId, Future[None]] = {}

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

    def join(self, loader: RoleId) -> None:
        """Read with one more loader, which has prepared the source, from the next batch on."""
        self._loaders = [*(each for each in self._loaders if each not in self._left), loader]
        self._changed = True

    def _read(self, position: Position) -> Generator[BatchRead, None, Position | None]:
        """Read with the current loaders; returns the position where they changed, None at the end."""
        assigned = assign(len(self._loaders), self._stretch)
        number = next(self._numbers)
        session = _Session(
            number, self._rpc, self._check_alive, self._loader, self._key, self._loaders, assigned, position
        )
        self._sessions.append(session)
        self._changed = False
        for before in self._sessions[:-1]:
            before.supersede()
        self._close([each for each in self._sessions[:-1] if not each.handed_out])
        for item in in_order(position, self._loader.epochs, assigned[0], session.next_of):
            position = advanced(position, item)
            if isinstance(item.batch, BatchName):
                session.handed_out[item.epoch, item.index] = item.batch.loader
            yield item
            if self._changed:
                return position
        return None

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
        document = position.model_dump_json()
        opened = [
            rpc.request(
                name,
                OpenReading(
                    self.number, key, document, loader.epochs, loader.labels, each.number, each.loaders, each.stretch
                ),
            )
            for name, each in zip(names, assigned, strict=True)
        ]
        for asked, link in zip(opened, self._links.values(), strict=True):
            link.wait(asked)
            link.request()

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
