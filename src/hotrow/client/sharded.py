"""The embedding client whose rows are on shards: one request per shard and batch, for all tables.

In look-ahead the rows of a lookup come in two parts: those that the open step does not change at once, the others when
it is applied to them. Both are requested at the same time.

Ids are made distinct once and grouped by shard, so rows come back into one block per table, each shard's in its own
slice. Gradients are folded to the same distinct ids and sent in the same slices. A lookup and a push are prepared first
and exchanged then, so that several can be in flight and one request carries a push and another batch's lookup.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from hotrow.client.base import FeatureVectors
from hotrow.client.pooling import folded, shares_of, spread
from hotrow.client.shard_table import ShardTable
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError, InputError
from hotrow.store.arrays import Flags
from hotrow.store.shards import Sharded, sharded
from hotrow.store.tiers import listed, named_tables
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.frames import RowBlock, pack, unpack
from hotrow.transport.messages import (
    Arrival,
    Exchange,
    Exchanged,
    PullRest,
    PullRows,
    PushRows,
    RowBlockHeader,
    Taken,
)
from hotrow.types import Values

U32 = NDArray[np.uint32]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PushFacts:
    """The grant of a push, and the values that a shard needs to apply it."""

    grant: int
    worker: int
    token: int
    pulled_step: int
    arrival: Arrival | None = None  # None: it is parked until the driver decides


@dataclass(frozen=True, slots=True)
class LookupStep:
    """The grant and the step of a lookup, in a mode with look-ahead or of a trainer with caches."""

    grant: int
    step: int
    ahead: bool  # the step before is not applied yet
    epoch: int = 0  # of the caches when the mode of the batch was open; 0: the current one


@dataclass(frozen=True, slots=True, eq=False)
class ShardedLookup:
    """One lookup, from its vectors to the push of their gradients."""

    samples: int
    outputs: tuple[FeatureVectors, ...]
    ids: dict[str, Sharded]  # by table
    versions: dict[str, U32] = field(default_factory=dict)  # by table, of each distinct id, where they are needed


@dataclass(frozen=True, slots=True, eq=False)
class ShardedRequest:
    """The rows that a batch needs, as one request per shard."""

    batch: Batch
    learn: bool
    ids: dict[str, Sharded]
    pulls: list[tuple[PullRows, list[Buffer]]]
    rest_of: int | None = None  # the grant, in look-ahead: some rows come later


@dataclass(frozen=True, slots=True, eq=False)
class RowPush:
    """Gradients of a batch, as one message per shard. Shards without a row of the batch get one too."""

    pushes: list[tuple[PushRows, list[Buffer]]]


@dataclass(slots=True)
class TrafficCounts:
    """Bytes of rows and ids, and their size as plain ids and float32."""

    sent: int = 0
    received: int = 0
    plain: int = 0


class PendingPush:
    """Gradients in flight, in one request to each shard."""

    changed_rows = 0  # no cache

    def __init__(self, asked: Sequence[Future[Answer]]) -> None:
        self.asked = asked

    def taken(self) -> list[Taken]:
        """The result of the push, by shard."""
        answers = [exchanged(each.result()) for each in self.asked]
        return [answer.taken for answer in answers if answer.taken is not None]


class PendingExchange(PendingPush):
    """A lookup in flight, alone or in the same requests as gradients; in look-ahead with a second request each."""

    def __init__(
        self,
        asked: Sequence[Future[Answer]],
        client: "ShardedTables",
        lookup: ShardedRequest,
        rest: Sequence[Future[Answer]] = (),
    ) -> None:
        super().__init__([*asked, *rest])
        self._client, self._lookup = client, lookup
        self.first, self.rest = asked, rest

    def wait(self, most_s: float) -> bool:
        """Whether the lookup is answered, or has failed, within so many seconds."""
        done, left = wait(self.asked, most_s, FIRST_EXCEPTION)
        return not left or any(each.exception() is not None for each in done)

    def handle(self) -> ShardedLookup:
        """The result of the lookup."""
        first, rest = [each.result() for each in self.first], [each.result() for each in self.rest]
        return self._client.received(self._lookup, first, rest)


class ShardedTables:
    """Tables on shards, by connection name. `samples` counts those whose gradients were applied."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        wire: RpcClient,
        shards: Sequence[str],
        *,
        values: Mapping[str, Values] | None = None,
        threads: int | None = None,
    ) -> None:
        self.specs = named_tables(tables)
        self.threads = torch.get_num_threads() if threads is None else threads
        self.samples = 0
        self.absent_ids = 0  # distinct ids without a row, summed over lookups that create none
        self.traffic = TrafficCounts()
        self._wire, self._shards = wire, tuple(shards)
        self._values: dict[str, Values] = {name: (values or {}).get(name, "fp32") for name in self.specs}
        self._dims = {name: table.dim for name, table in self.specs.items()}
        self.tiers = {name: ShardTable(table, wire, shards) for name, table in self.specs.items()}
        self._incarnations = [exchanged(self._wire.request(name, Exchange(0)).result()).incarnation for name in shards]

    def set_incarnation(self, name: str, incarnation: int) -> None:
        """A shard was started again."""
        self._incarnations[self._shards.index(name)] = incarnation

    def close(self) -> None:
        """No effect: rows belong to the shards."""

    def lookup(self, batch: Batch, *, learn: bool, versions: bool = False, after: int = 0) -> ShardedLookup:
        """Vectors for all ids of a batch, after the order `after` was performed."""
        return self.exchange(None, self.prepare_lookup(batch, learn=learn, versions=versions, after=after)).handle()

    def prepare_lookup(
        self,
        batch: Batch,
        *,
        learn: bool,
        versions: bool = False,
        after: int = 0,
        sample: int | None = None,
        place: LookupStep | None = None,
    ) -> ShardedRequest:
        """The requests of a lookup: its ids, made distinct and grouped by shard. `place`: in modes with look-ahead."""
        if sample is not None:
            raise InputError(f"sample id {sample:#x}: this client reads from shards, not from embedding workers")
        ids = {
            table: sharded(np.concatenate([part.keys for part in parts]), len(self._shards), self.threads)
            for table, parts in self._parts(batch).items()
        }
        grant, step = (0, None) if place is None else (place.grant, place.step)
        pulls = []
        for shard in range(len(self._shards)):
            mine = [
                RowBlock(table, keys=found.keys[of_shard(found, shard)], dim=self._dims[table])
                for table, found in ids.items()
            ]
            blocks, frames = self._packed(mine)
            pull = PullRows(after, self.samples, learn, versions, "fp16-scaled", blocks, grant, step)
            pulls.append((pull, frames))
        return ShardedRequest(batch, learn, ids, pulls, grant if place is not None and place.ahead else None)

    def gradients(self, handle: ShardedLookup, facts: PushFacts) -> RowPush:
        """The gradients that backward left in the outputs, by distinct id; tables that the model did not use are left
        out.
        """
        folds = {}
        for table, found in handle.ids.items():
            outputs = [output for output in handle.outputs if output.part.table == table]
            if any(output.rows.grad is not None for output in outputs):
                folds[table] = folded(outputs, found.inverse, len(found.keys), self.threads)
        pushes = []
        for shard in range(len(self._shards)):
            mine = [
                _rows_of_shard(table, handle.ids[table], shard, gradients, used, handle.versions.get(table))
                for table, (gradients, used) in folds.items()
            ]
            blocks, frames = self._packed(mine)
            push = PushRows(
                facts.grant, facts.worker, facts.token, facts.pulled_step, handle.samples, blocks, facts.arrival
            )
            pushes.append((push, frames))
        return RowPush(pushes)

    def push(self, push: RowPush) -> PendingPush:
        """Send gradients. Their arrays must not change until they are answered."""
        return PendingPush(self._send(push, None))

    def exchange(self, push: RowPush | None, lookup: ShardedRequest) -> PendingExchange:
        """Send a lookup, and with it gradients unless they are None."""
        asked = self._send(push, lookup)
        rest: list[Future[Answer]] = []
        if lookup.rest_of is not None:
            incarnations = zip(self._shards, self._incarnations, strict=True)
            rest = [self._wire.request(name, PullRest(known, lookup.rest_of)) for name, known in incarnations]
        return PendingExchange(asked, self, lookup, rest)

    def _send(self, push: RowPush | None, lookup: ShardedRequest | None) -> list[Future[Answer]]:
        asked = []
        for shard, name in enumerate(self._shards):
            pushed, push_frames = (None, []) if push is None else push.pushes[shard]
            pulled, pull_frames = (None, []) if lookup is None else lookup.pulls[shard]
            frames = [*push_frames, *pull_frames]
            self.traffic.sent += sum(memoryview(frame).nbytes for frame in frames)
            asked.append(self._wire.request(name, Exchange(self._incarnations[shard], pushed, pulled), frames))
        return asked

    def received(self, lookup: ShardedRequest, answers: Sequence[Answer], rest: Sequence[Answer] = ()) -> ShardedLookup:
        """The vectors, from the rows of all shards; with `rest`, from both parts of them."""
        rows = {
            table: np.empty((len(found.keys), self._dims[table]), np.float32) for table, found in lookup.ids.items()
        }
        versions: dict[str, U32] = {}
        for shard, answer in enumerate(answers):
            message = exchanged(answer)
            self.absent_ids += message.absent
            self.traffic.received += sum(frame.nbytes for frame in answer.frames)
            into = {table: rows[table][of_shard(found, shard)] for table, found in lookup.ids.items()}
            blocks = unpack(message.blocks, answer.frames, self._dims, out=list(into.values()), threads=self.threads)
            if [block.table for block in blocks] != list(into):
                raise InputError(f"rows of tables {listed(block.table for block in blocks)} came, not {listed(into)}")
            late = self._late_blocks(rest[shard]) if rest else {}
            for block in blocks:
                of_ids = block.versions
                if block.mask is not None:
                    into[block.table][~block.mask], of_ids = _rest_of(block, block.mask, late)
                if block.versions is not None:
                    whole = versions.setdefault(block.table, np.empty(len(rows[block.table]), np.uint32))
                    whole[of_shard(lookup.ids[block.table], shard)] = np.asarray(of_ids)
        batch, outputs = lookup.batch, {}
        for table, parts in self._parts(batch).items():
            shares = shares_of(lookup.ids[table].inverse, parts)
            for part, which in zip(parts, shares, strict=True):
                outputs[id(part)] = spread(part, rows[table], which, len(batch), self.threads)
                outputs[id(part)].rows.requires_grad_(lookup.learn)
                self.traffic.plain += len(part.keys) * (8 + 4 * self._dims[table] * (2 if lookup.learn else 1))
        return ShardedLookup(len(batch), tuple(outputs[id(part)] for part in batch.parts), lookup.ids, versions)

    def _late_blocks(self, answer: Answer) -> dict[str, RowBlock]:
        """By table, the rows that were not read early; none where all were."""
        self.traffic.received += sum(frame.nbytes for frame in answer.frames)
        blocks = unpack(exchanged(answer).blocks, answer.frames, self._dims, threads=self.threads)
        return {block.table: block for block in blocks}

    def _packed(self, rows: Sequence[RowBlock]) -> tuple[tuple[RowBlockHeader, ...], list[Buffer]]:
        """Values of each table in the format of its setting."""
        packed = [pack([each], self._values[each.table]) for each in rows]
        return (
            tuple(block for blocks, _ in packed for block in blocks),
            [frame for _, frames in packed for frame in frames],
        )

    def _parts(self, batch: Batch) -> dict[str, list[FeatureBlock]]:
        """The parts of the batch by table."""
        parts: dict[str, list[FeatureBlock]] = {}
        for part in batch.parts:
            if part.table not in self.specs:
                raise ConfigError(
                    f"table {part.table!r} of feature {part.features[0]!r} is missing: there are {listed(self.specs)}"
                )
            parts.setdefault(part.table, []).append(part)
        return parts


def exchanged(answer: Answer) -> Exchanged:
    """The reply to an exchange; InputError where it is of another kind."""
    return answer.of(Exchanged, "a shard")


def of_shard(ids: Sharded, shard: int) -> slice:
    """The slice of a shard's ids."""
    return slice(int(ids.bounds[shard]), int(ids.bounds[shard + 1]))


def _rest_of(block: RowBlock, early: Flags, late: Mapping[str, RowBlock]) -> tuple[F32, NDArray[np.uint32]]:
    """The values of the rows that were not read early, and the versions of all."""
    rest = late.get(block.table)
    if rest is None or rest.values is None or len(rest.values) != len(early) - int(early.sum()):
        came = 0 if rest is None or rest.values is None else len(rest.values)
        raise InputError(f"table {block.table!r}: {came:,} rows came for {len(early) - int(early.sum()):,} that lacked")
    if (block.versions is None) != (rest.versions is None):
        raise InputError(f"table {block.table!r}: versions came for some of its rows only")
    if block.versions is None:
        return np.asarray(rest.values), np.empty(0, np.uint32)
    versions = np.empty(len(early), np.uint32)
    versions[early], versions[~early] = np.asarray(block.versions), np.asarray(rest.versions)
    return np.asarray(rest.values), versions


def _rows_of_shard(
    table: str, ids: Sharded, shard: int, gradients: F32, used: I64 | None, versions: U32 | None
) -> RowBlock:
    mine: slice | I64 = of_shard(ids, shard)
    if used is not None:
        mine = used[np.searchsorted(used, ids.bounds[shard]) : np.searchsorted(used, ids.bounds[shard + 1])]
    return RowBlock(
        table, keys=ids.keys[mine], values=gradients[mine], versions=None if versions is None else versions[mine]
    )
