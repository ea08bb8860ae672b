"""The embedding client of a trainer with embedding workers: it gets pooled vectors, and returns their gradients.

A batch is identified by its sample id, whose first byte is the number of its embedding worker.
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
    """A push, a lookup or both that were sent."""

    @property
    def asked(self) -> Sequence[Future[Answer]]:
        """The replies that have to arrive before the push is complete."""

    def taken(self) -> list[Taken]:
        """The result of the push, by shard."""

    def handle(self) -> Any:
        """The result of the lookup."""


class RemoteTables(Protocol):
    """The client of a trainer: rows of shards, or pooled vectors of embedding workers."""

    samples: int  # with applied gradients
    traffic: TrafficCounts

    def prepare_lookup(
        self, batch: Batch, *, learn: bool, versions: bool = False, after: int = 0, sample: int | None = None
    ) -> Any:
        """The requests of a lookup."""

    def gradients(self, handle: Any, facts: PushFacts) -> Any:
        """The gradients that backward left in the outputs, ready to be sent."""

    def exchange(self, push: Any, lookup: Any) -> InFlightExchange:
        """Send both, or one of them."""


@dataclass(frozen=True, slots=True, eq=False)
class PooledRequest:
    """A batch whose vectors are requested."""

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


class _PooledExchange:
    """At most one request for vectors and one with gradients, sent to their embedding workers."""

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
    """The embedding client of embedding workers, whose connections have the names of `peer_name`."""

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
        """The request for a batch's vectors; versions and order went to the embedding worker with the ids."""
        if sample is None:
            raise InputError("a batch came without a sample id: this trainer works with embedding workers")
        return PooledRequest(sample, batch, learn)

    def gradients(self, handle: PooledLookup, facts: PushFacts) -> VectorPush:
        """The gradients that backward left in the outputs; parts that the model did not use have none."""
        heads, frames = pack_gradients(handle.outputs, self._values, self.threads)
        push = PushPooled(handle.sample, facts.worker, facts.token, facts.pulled_step, heads, facts.arrival)
        return VectorPush(push, frames)

    def exchange(self, push: VectorPush | None, lookup: PooledRequest | None) -> _PooledExchange:
        """Send both, or one of them. Gradients must not change until they are answered."""
        pushed = vectors = None
        if push is not None:
            self.traffic.sent += sum(memoryview(frame).nbytes for frame in push.frames)
            self.traffic.plain += plain_bytes(push.push.parts)
            pushed = self._wire.request(peer_name(worker_of(push.push.sample)), push.push, push.frames)
        if lookup is not None:
            vectors = self._wire.request(peer_name(worker_of(lookup.sample)), PullPooled(lookup.sample))
        return _PooledExchange(self, pushed, lookup, vectors)

    def received(self, expected: PooledRequest, answer: Answer) -> PooledLookup:
        """The vectors, as outputs of the batch's parts."""
        reply, count = answer.message, len(expected.batch)
        if not isinstance(reply, Pooled) or reply.count != count:
            what = f"vectors of {reply.count} samples" if isinstance(reply, Pooled) else type(reply).__name__
            raise InputError(f"sample id {expected.sample:#x}: {what} came, the batch has {count} samples")
        self.traffic.received += sum(frame.nbytes for frame in answer.frames)
        self.traffic.plain += plain_bytes(reply.parts)
        outputs = unpack_vectors(count, reply.parts, answer.frames, expected.batch.parts, self._dims, self.threads)
        for output in outputs:
            output.rows.requires_grad_(expected.learn)
        return PooledLookup(expected.sample, count, outputs)


def peer_name(number: int) -> RoleId:
    """The connection name of an embedding worker."""
    return RoleId("embedding worker", number)
