"""Shards, trainers and embedding workers as Ray actors. Each tells its address, then serves until it is told to stop.

Ray brings settings and the model to where an actor runs; everything after that goes by the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray
from torch import nn
from torch.optim import Optimizer

from hotrow.config import Table
from hotrow.server.dense_desk import DenseDesk
from hotrow.server.dense_piece import DensePiece
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.messages import Values
from hotrow.transport.security import ClusterKey, Security
from hotrow.transport.server import Server
from hotrow.transport.wire import Wire
from hotrow.worker.embedding_process import EmbeddingServer, EmbeddingSetup
from hotrow.worker.process import TrainerProcess
from hotrow.worker.setup import TrainerSetup


@dataclass(frozen=True, slots=True)
class Lines:
    """How the roles of a run talk."""

    security: Security = "key"
    key: ClusterKey | None = None
    delay_s: float = 0.0  # on the way to the shards and back: for measurements

    def server(self, host: str | None, name: str) -> Server:
        """Listening on a host; None: on the address by which other nodes know this one."""
        where = host or ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return Server(f"tcp://{where}:*", security=self.security, key=self.key, name=name)

    def wire(self, *, delayed: bool = False) -> Wire:
        return Wire(security=self.security, key=self.key, delay_s=self.delay_s if delayed else 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ShardSetup:
    """What a shard is made of."""

    tables: Mapping[str, Table]
    number: int
    shards: int
    model: nn.Module
    optimizer: Optimizer | None
    places: Sequence[int]  # of the model's parameters, that it serves in token modes
    threads: int = 1
    clip: float | None = None
    values: Mapping[str, Values] | None = None


class ShardRole:
    """One shard; a Ray actor when it is started as one."""

    def __init__(self, setup: ShardSetup, lines: Lines, host: str | None) -> None:
        self._server = lines.server(host, f"shard {setup.number}")
        self._shard = Shard(
            setup.tables, number=setup.number, shards=setup.shards, threads=setup.threads, values=setup.values
        )
        first = setup.number == 0
        piece = DensePiece(setup.model, setup.optimizer, setup.places, buffers=first, clip=setup.clip)
        self._serving = ShardServer(self._shard, self._server, DenseDesk(piece))

    def address(self) -> str:
        return self._server.address

    def serve(self) -> None:
        """Until it is told to stop."""
        try:
            self._serving.serve()
        finally:
            self._server.close()
            self._shard.close()


class TrainerRole:
    """One trainer; a Ray actor when it is started as one."""

    def __init__(
        self, setup: TrainerSetup, lines: Lines, host: str | None, shards: Mapping[str, str], worker: int
    ) -> None:
        self._server = lines.server(host, f"trainer {worker}")
        self._wire = lines.wire(delayed=True)
        for name, address in shards.items():
            self._wire.connect(name, address)
        self._trainer = TrainerProcess(setup, self._server, self._wire)

    def address(self) -> str:
        return self._server.address

    def serve(self) -> None:
        """Until it is told to stop."""
        try:
            self._trainer.serve()
        finally:
            self._server.close()
            self._wire.close()


class EmbeddingRole:
    """One embedding worker; a Ray actor when it is started as one."""

    def __init__(self, setup: EmbeddingSetup, lines: Lines, host: str | None, shards: Mapping[str, str]) -> None:
        self._server = lines.server(host, f"embedding worker {setup.number}")
        self._wire = lines.wire(delayed=True)
        for name, address in shards.items():
            self._wire.connect(name, address)
        self._serving = EmbeddingServer(setup, self._server, self._wire)

    def address(self) -> str:
        return self._server.address

    def serve(self) -> None:
        """Until it is told to stop."""
        try:
            self._serving.serve()
        finally:
            self._server.close()
            self._wire.close()
