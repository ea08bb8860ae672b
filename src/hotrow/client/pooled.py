"""The embedding client of a trainer with embedding workers: it gets pooled vectors, and returns their gradients.

A batch is identified by its sample id, whose first byte is the number of its embedding worker.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from hotrow.client.base import FeatureVectors
from hotrow.client.sharded import LookupStep, PushFacts, TrafficCounts
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.store.tiers import named_tables
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.ids import worker_of
from hotrow.transport.messages import Folded, Pooled, PullPooled, PushPooled, Taken
from hotrow.transport.vectors import pack_gradients, plain_bytes, unpack_vectors
from hotrow.types import RoleId, Values


class InFlightPush(Protocol):
    """A push that was sent."""

    @property
    def asked(self) -> Sequence[Future[Answer]]:
        """The replies that have to arrive before the push is complete."""

    def taken(self) -> list[Taken]:
        """The result of the push, by shard."""

    @property
    def changed_rows(self) -> int:
        """Rows with changes that no shard knows, of the caches that the push was applied to. After all replies."""


class InFlightExchange(InFlightPush, Protocol):
    """A lookup that was sent, alone or with a push."""

    def wait(self, most_s: float) -> bool:
        """Whether the lookup is answered, or has failed, within so many seconds."""

    def handle(self) -> Any:
        """The result of the lookup."""


class RemoteTables(Protocol):
    """The client of a trainer: rows of shards, or pooled vectors of embedding workers."""

    samples: int  # with applied gradients
    traffic: TrafficCounts

    def prepare_lookup(
        self,
        batch: Batch,
        *,
        learn: bool,
        versions: bool = False,
        after: int = 0,
        sample: int | None = None,
        place: LookupStep | None = None,
    ) -> Any:
        """The requests of a lookup."""

    def gradients(self, handle: Any, facts: PushFacts) -> Any:
        """The gradients that backward left in the outputs, ready to be sent."""

    def push(self, push: Any) -> InFlightPush:
        """Send gradients. They must not change until they are answered."""

    def exchange(self, push: Any, lookup: Any) -> InFlightExchange:
        """Send a lookup, and with it gradients unless they are None."""


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


class _PooledPush:
    """A request with gradients, sent to its embedding worker; `asked` is empty where a lookup was sent without one."""

    def __init__(self, asked: list["Future[Answer]"]) -> None:
        self.asked = asked

    def taken(self) -> list[Taken]:
        return [each for folded in self._folded for each in folded.taken]

    @property
    def changed_rows(self) -> int:
        return sum(folded.changed_rows for folded in self._folded)

    @property
    def _folded(self) -> list[Folded]:
        return [push.result().of(Folded, "an embedding worker") for push in self.asked]


class _PooledExchange(_PooledPush):
    """A request for vectors, sent alone or with gradients of another batch."""

    def __init__(
        self,
        asked: list["Future[Answer]"],
        client: "PooledTables",
        expected: PooledRequest,
        vectors: "Future[Answer]",
    ) -> None:
        super().__init__(asked)
        self._client, self._expected, self._vectors = client, expected, vectors

    def wait(self, most_s: float) -> bool:
        return bool(wait([self._vectors], most_s).done)

    def handle(self) -> PooledLookup:
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
        self,
        batch: Batch,
        *,
        learn: bool,
        versions: bool = False,
        after: int = 0,
        sample: int | None = None,
        place: LookupStep | None = None,
    ) -> PooledRequest:
        """The request for a batch's vectors; versions, order and step went to the embedding worker with the ids."""
        if sample is None:
            raise InputError("a batch came without a sample id: this trainer works with embedding workers")
        return PooledRequest(sample, batch, learn)

    def gradients(self, handle: PooledLookup, facts: PushFacts) -> VectorPush:
        """The gradients that backward left in the outputs; parts that the model did not use have none."""
        heads, frames = pack_gradients(handle.outputs, self._values, self.threads)
        push = PushPooled(handle.sample, facts.worker, facts.token, facts.pulled_step, heads, facts.arrival)
        return VectorPush(push, frames)

    def push(self, push: VectorPush) -> _PooledPush:
        """Send gradients. They must not change until they are answered."""
        self.traffic.sent += sum(memoryview(frame).nbytes for frame in push.frames)
        self.traffic.plain += plain_bytes(push.push.parts)
        return _PooledPush([self._wire.request(peer_name(worker_of(push.push.sample)), push.push, push.frames)])

    def exchange(self, push: VectorPush | None, lookup: PooledRequest) -> _PooledExchange:
        """Send a lookup, and with it gradients unless they are None."""
        pushed = [] if push is None else self.push(push).asked
        vectors = self._wire.request(peer_name(worker_of(lookup.sample)), PullPooled(lookup.sample))
        return _PooledExchange(pushed, self, lookup, vectors)

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
