"""The batches of an embedding worker: their ids by sample id, from arrival to their gradients.

Values in, values out. A batch counts once, however often its ids or its gradients are sent. Memory is bounded: a batch
is dropped when its gradients arrived, when it is released, or when nothing arrived for too long.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from hotrow.client.pooled import peer_name
from hotrow.data.batch import Batch
from hotrow.errors import ConfigError, InputError
from hotrow.server.pushes import SeenGrants
from hotrow.sizes import number_text
from hotrow.spec import Spec
from hotrow.store.tiers import listed
from hotrow.transport.errors import Busy
from hotrow.transport.ids import grant_of, plain_bytes, unpack_ids, worker_of
from hotrow.transport.messages import Folded, LookUp
from hotrow.types import RoleId
from hotrow.worker.embedding_lookups import AnyLookup

ID_BYTES = 24  # of one id: itself, its index among the distinct ones, and among those of its shard
FLOAT_BYTES = 8  # of one number of a vector: itself and its gradient
OVERHEAD = 16_384  # of a batch beside that
ENDS_KEPT = 1_000  # results, for repeated requests
GRANTS_KEPT = 2**20


class BufferLimits(Spec):
    """Bounds of an embedding worker's memory, and how long it keeps a batch."""

    samples: int = Field(2**20, ge=1, le=2**40)
    bytes: int = Field(2**31, ge=2**10, le=2**50)
    keep_s: float = Field(600.0, gt=0, le=1e9)  # without a message about a batch
    waiting: int = Field(1_024, ge=1, le=2**20)  # requests for vectors that are not looked up yet
    queued: int = Field(1_024, ge=1, le=2**20)  # unhandled requests, before new batches are refused as busy


@dataclass(slots=True, eq=False)
class BufferedBatch:
    """A batch whose gradients have not arrived."""

    sample: int
    batch: Batch
    nbytes: int
    touched_s: float
    handle: AnyLookup | None = None  # None until its rows are here
    pushing: bool = False  # its gradients are being sent to the shards, or in caches


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """What became of a batch."""

    outcome: Folded | str  # its result, or why it was dropped
    pushed: bool  # its gradients were sent on


class EmbeddingBuffers:
    """All batches of one embedding worker. The time is an argument."""

    def __init__(self, role: RoleId, dims: Mapping[str, int], bounds: BufferLimits) -> None:
        self.role, self.bounds = role, bounds
        self.samples = self.nbytes = 0
        self.counts: Counter[str] = Counter()
        self._dims = dims
        self._kept: dict[int, BufferedBatch] = {}  # by sample id
        self._seen = SeenGrants(GRANTS_KEPT)
        self._ends: OrderedDict[int, BatchEnd] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, lookup: LookUp, frames: Sequence[memoryview], now: float) -> BufferedBatch | None:
        """Keep the ids of a batch; None where they arrived before. Busy: no memory now; InputError: never.

        The oldest batch is accepted above the bounds: others may wait for it.
        """
        self._check_mine(lookup.sample)
        if grant_of(lookup.sample) in self._seen:
            self.counts["again"] += 1
            return None
        self._check_room(lookup.sample, lookup.count, self._least_bytes(lookup))
        batch = unpack_ids(lookup.count, lookup.parts, frames)
        nbytes = self._bytes_of(batch)
        self._check_room(lookup.sample, lookup.count, nbytes)
        kept = BufferedBatch(lookup.sample, batch, nbytes, now)
        self._kept[lookup.sample] = kept
        self._seen.add(grant_of(lookup.sample))
        self.samples += lookup.count
        self.nbytes += nbytes
        self.counts["batches"] += 1
        self.counts["ids_bytes"] += sum(frame.nbytes for frame in frames)
        self.counts["ids_plain_bytes"] += plain_bytes(lookup.parts)
        return kept

    def find(self, sample: int, now: float) -> BufferedBatch | None:
        """The batch of a sample id; None where its ids have not arrived yet. InputError where it was dropped."""
        self._check_mine(sample)
        kept = self._kept.get(sample)
        if kept is not None:
            kept.touched_s = now
        elif grant_of(sample) in self._seen:
            self.counts["gone"] += 1
            end = self._ends.get(sample)
            outcome = "its result is not kept any more" if end is None else end.outcome
            message = "its gradients arrived before" if isinstance(outcome, Folded) else outcome
            raise InputError(f"sample id {sample:#x}: {self.role} has dropped it: {message}")
        return kept

    def is_kept(self, kept: BufferedBatch) -> bool:
        """Whether it was not dropped meanwhile."""
        return self._kept.get(kept.sample) is kept

    def outcome(self, sample: int) -> Folded | None:
        """The result of gradients that arrived before."""
        end = self._ends.get(sample)
        return end.outcome if end is not None and isinstance(end.outcome, Folded) else None

    def pushed(self, samples: Sequence[int]) -> int:
        """How many of these batches have sent their gradients on."""
        kept = [self._kept[each].pushing for each in samples if each in self._kept]
        return sum(kept) + sum(self._ends[each].pushed for each in samples if each in self._ends)

    def finish(self, kept: BufferedBatch, outcome: Folded) -> None:
        """Drop a batch whose gradients are on all shards."""
        self._drop([kept], "pushed", outcome)

    def fail(self, kept: BufferedBatch, why: str) -> None:
        """Drop a batch whose rows could not be read, or whose gradients were refused."""
        self._drop([kept], "failed", why)

    def release(self, samples: Iterable[int]) -> list[BufferedBatch]:
        """Drop batches whose gradients will not arrive. Those whose gradients are being sent end by themselves."""
        wanted = set(samples)
        for sample in wanted:
            self._check_mine(sample)
            self._seen.add(grant_of(sample))  # ids that arrive after this message are refused too
        idle = [each for each in self._kept.values() if not each.pushing]
        mine = [each for each in idle if each.sample in wanted]
        return self._drop(mine, "released", "it was released")

    def release_all(self) -> list[BufferedBatch]:
        """The same for all batches: their mode has ended."""
        idle = [each for each in self._kept.values() if not each.pushing]
        return self._drop(idle, "released", "its mode has ended")

    def expire(self, now: float) -> list[BufferedBatch]:
        """Drop batches without a message for too long."""
        oldest = now - self.bounds.keep_s
        silent = [each for each in self._kept.values() if each.touched_s <= oldest and not each.pushing]
        return self._drop(silent, "expired", f"no message about it came for {number_text(self.bounds.keep_s)} s")

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        names = ("batches", "again", "gone", "refused", "busy", "pushed", "failed", "released", "expired")
        now = {"kept": len(self), "kept_samples": self.samples, "kept_bytes": self.nbytes}
        return {name: float(count) for name, count in (now | dict.fromkeys(names, 0) | self.counts).items()}

    def _drop(self, batches: list[BufferedBatch], count: str, outcome: Folded | str) -> list[BufferedBatch]:
        for kept in batches:
            if self.is_kept(kept):
                del self._kept[kept.sample]
                self.samples -= len(kept.batch)
                self.nbytes -= kept.nbytes
                self.counts[count] += 1
                self._ends[kept.sample] = BatchEnd(outcome, kept.pushing)
        while len(self._ends) > ENDS_KEPT:
            self._ends.popitem(last=False)
        return batches

    def _check_mine(self, sample: int) -> None:
        if worker_of(sample) != self.role.number:
            raise InputError(f"sample id {sample:#x} is of {peer_name(worker_of(sample))}, not of {self.role}")

    def _check_room(self, sample: int, samples: int, nbytes: int) -> None:
        for what, there, more, most in (
            ("samples", self.samples, samples, self.bounds.samples),
            ("bytes", self.nbytes, nbytes, self.bounds.bytes),
        ):
            if more > most:
                self.counts["refused"] += 1
                raise InputError(
                    f"sample id {sample:#x}: a batch of {more:,} {what} is more than the {most:,} that "
                    f"{self.role} may keep: take a smaller local batch, or raise the bound"
                )
            if there + more > most and any(other < sample for other in self._kept):
                self.counts["busy"] += 1
                message = f"{len(self)} batches of {there:,} {what} are kept, and {more:,} more would pass the {most:,}"
                raise Busy(f"sample id {sample:#x}: {message} of its bounds: send it later")

    def _least_bytes(self, lookup: LookUp) -> int:
        """The least size of what a header announces, before it is decoded. Lengths of sequences are not known yet."""
        size = OVERHEAD
        for part in lookup.parts:
            if part.table not in self._dims:
                raise ConfigError(f"table {part.table!r} of a batch is missing: there are {listed(self._dims)}")
            ids = sum(each.ids for each in part.coded)
            vectors = ids if part.kind == "sequence" else lookup.count * len(part.names)
            size += ID_BYTES * ids + FLOAT_BYTES * vectors * self._dims[part.table]
        return size

    def _bytes_of(self, batch: Batch) -> int:
        size = OVERHEAD
        for part in batch.parts:
            vectors = len(batch) * len(part.features)
            if part.kind == "sequence" and part.bounds is not None:
                vectors = len(batch) * int((part.bounds[1:] - part.bounds[:-1]).max(initial=0))
            size += ID_BYTES * len(part.keys) + FLOAT_BYTES * vectors * self._dims[part.table]
        return size
