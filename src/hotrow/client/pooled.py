"""The client of a trainer whose ids are at embedding workers: vectors come pooled, gradients go back for the vectors.

A batch is known by its sample id, whose first byte names the embedding worker that has it.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hotrow.client.base import FeatureVectors
from hotrow.client.sharded import PushFacts, TrafficCounts
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.store.tiers import named_tables
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.ids import worker_of
from hotrow.transport.messages import Folded, Pooled, PullPooled, PushPooled, Taken, Values
from hotrow.transport.vectors import pack_gradients, plain_bytes, unpack_vectors
from hotrow.types import RoleId


class InFlightExchange(Protocol):
    """A push, a lookup or both, sent off."""

    @property
    def asked(self) -> Sequence[Future[Answer]]:
        """All that has to be answered before the push has arrived."""

    def taken(self) -> list[Taken]:
        """What became of the push, by shard."""

    def handle(self) -> Any:
        """What was looked up."""


class RemoteTables(Protocol):
    """What a trainer needs of a client, wherever rows are pooled."""

    samples: int  # whose gradients were applied
    traffic: TrafficCounts

    def prepare_lookup(
        self, batch: Batch, *, learn: bool, versions: bool = False, after: int = 0, sample: int | None = None
    ) -> Any:
        """What a lookup will ask for."""

    def gradients(self, handle: Any, facts: PushFacts) -> Any:
        """What backward left in the outputs, as it will be sent."""

    def exchange(self, push: Any, lookup: Any) -> InFlightExchange:
        """Send both, or one of them."""


@dataclass(frozen=True, slots=True, eq=False)
class PooledRequest:
    """A batch whose vectors are wanted."""

    sample: int
    batch: Batch
    learn: bool


@dataclass(frozen=True, slots=True, eq=False)
class PooledLookup:
    """One lookup, from its vectors to the push of their gradients."""

    sample: int
    samples: int
    outputs: tuple[FeatureVectors, ...]


@dataclass(frozen=True, slots=True, eq=False)
class VectorPush:
    """Gradients of a batch's vectors."""

    push: PushPooled
    frames: list[Buffer]


class _Asked:
    """At most one ask for vectors and one with gradients, under way to their embedding workers."""

    def __init__(
        self,
        client: "PooledTables",
        push: "Future[Answer] | None",
        expected: PooledRequest | None,
        vectors: "Future[Answer] | None",
    ) -> None:
        self._client, self._push, self._expected, self._vectors = client, push, expected, vectors

    @property
    def asked(self) -> list["Future[Answer]"]:
        return [] if self._push is None else [self._push]

    def taken(self) -> list[Taken]:
        return [] if self._push is None else list(self._push.result().of(Folded, "an embedding worker").taken)

    def handle(self) -> PooledLookup:
        if self._expected is None or self._vectors is None:
            raise AssertionError("nothing was looked up in this exchange")
        return self._client.received(self._expected, self._vectors.result())


class PooledTables:
    """Embedding workers, which the wire knows as `peer_name` says."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        wire: RpcClient,
        *,
        values: Mapping[str, Values] | None = None,
        threads: int | None = None,
    ) -> None:
        self.samples = 0
        self.traffic = TrafficCounts()
        self.threads = torch.get_num_threads() if threads is None else threads
        self._wire, self._values = wire, dict(values or {})
        self._dims = {name: table.dim for name, table in named_tables(tables).items()}

    def prepare_lookup(
        self, batch: Batch, *, learn: bool, versions: bool = False, after: int = 0, sample: int | None = None
    ) -> PooledRequest:
        """The embedding worker was told with the ids which versions and which order they need."""
        if sample is None:
            raise InputError("a batch came without a sample id: this trainer's ids go to embedding workers")
        return PooledRequest(sample, batch, learn)

    def gradients(self, handle: PooledLookup, facts: PushFacts) -> VectorPush:
        """What backward left in the outputs; parts that the model did not use have none."""
        heads, frames = pack_gradients(handle.outputs, self._values, self.threads)
        push = PushPooled(handle.sample, facts.worker, facts.token, facts.pulled_step, heads, facts.arrival)
        return VectorPush(push, frames)

    def exchange(self, push: VectorPush | None, lookup: PooledRequest | None) -> _Asked:
        """Send both, or one of them. Gradients must stay as they are until they are answered."""
        pushed = vectors = None
        if push is not None:
            self.traffic.sent += sum(memoryview(frame).nbytes for frame in push.frames)
            self.traffic.plain += plain_bytes(push.push.parts)
            pushed = self._wire.request(peer_name(worker_of(push.push.sample)), push.push, push.frames)
        if lookup is not None:
            vectors = self._wire.request(peer_name(worker_of(lookup.sample)), PullPooled(lookup.sample))
        return _Asked(self, pushed, lookup, vectors)

    def received(self, expected: PooledRequest, answer: Answer) -> PooledLookup:
        """The vectors, as outputs of the batch's parts."""
        told, count = answer.message, len(expected.batch)
        if not isinstance(told, Pooled) or told.count != count:
            what = f"vectors of {told.count} samples" if isinstance(told, Pooled) else type(told).__name__
            raise InputError(f"sample id {expected.sample:#x}: {what} came, the batch has {count} samples")
        self.traffic.received += sum(frame.nbytes for frame in answer.frames)
        self.traffic.plain += plain_bytes(told.parts)
        outputs = unpack_vectors(count, told.parts, answer.frames, expected.batch.parts, self._dims, self.threads)
        for output in outputs:
            output.rows.requires_grad_(expected.learn)
        return PooledLookup(expected.sample, count, outputs)


def peer_name(number: int) -> RoleId:
    """The name of an embedding worker on the wire."""
    return RoleId("embedding worker", number)
