"""Shards that are threads of this process, behind real sockets, and can be ended and started again as processes are."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from hotrow.config import Table
from hotrow.server.dense_memory import DenseMemory
from hotrow.server.dense_service import DenseService
from hotrow.server.dense_shard import DenseShard
from hotrow.server.process import ShardServer
from hotrow.server.restarting import ShardBefore, open_shard
from hotrow.server.shard import Shard
from hotrow.server.shared_rows import dense_path, remove_leftovers
from hotrow.store.segments import SHARED_MEMORY
from hotrow.transport.limits import Limits
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    shard: Shard
    dense: DenseService
    server: RpcServer
    thread: threading.Thread

    def end(self, *, leave: bool) -> None:
        self.server.stop()
        self.thread.join()
        self.server.close()
        self.shard.close(leave=leave)
        self.dense.close(leave=leave)


class ShardThreads:
    """The processes of a cluster, as its roles see them: only shards end."""

    def __init__(
        self, stack: ExitStack, tables: Mapping[str, Table], piece: Callable[[int], DenseShard], run: str | None
    ) -> None:
        """`run` names their shared memory; `piece`: the dense parameters of each."""
        self._tables, self._piece, self._run = tables, piece, run
        self._running: dict[RoleId, _Running] = {}
        self._lost: dict[RoleId, str] = {}
        self.limits: Limits | None = None
        self.parked_bytes = 2**30
        stack.callback(self._end_all)

    @property
    def cores(self) -> list[Shard]:
        return [self._running[name].shard for name in sorted(self._running)]

    def start(self, name: RoleId, *, incarnation: int = 0, checkpoint: str | None = None) -> str:
        """Gives its address. With an incarnation it takes the place of one that ended."""
        before = ShardBefore(incarnation, "*", checkpoint) if incarnation else None
        number = name.number
        shard = open_shard(
            self._tables, self._run, before, number=number, shards=2, threads=1, parked_bytes=self.parked_bytes
        )
        memory = None if self._run is None else DenseMemory(dense_path(self._run, number, 2))
        dense = DenseService(self._piece(number), memory)
        server = RpcServer(security="off", limits=self.limits)
        serving = ShardServer(shard, server, dense, restarted=before is not None)
        thread = threading.Thread(target=serving.serve)
        thread.start()
        self._running[name] = _Running(shard, dense, server, thread)
        return server.address

    def kill(self, number: int, *, leave: bool = True) -> None:
        """End a shard; with `leave` its shared memory stays, as that of a killed process does."""
        name = RoleId("shard", number)
        self._running.pop(name).end(leave=leave)
        self._lost[name] = "it was killed"

    def lost(self) -> dict[RoleId, str]:
        return dict(self._lost)

    def release(self, name: RoleId) -> None: ...

    def end(self, name: RoleId) -> None:
        self._lost.pop(name, None)

    def _end_all(self) -> None:
        for each in self._running.values():
            each.end(leave=False)
        if self._run is not None:
            left = list(SHARED_MEMORY.glob(f"hotrow-{self._run}-*"))
            remove_leftovers(self._run)
            assert self._lost or not left
