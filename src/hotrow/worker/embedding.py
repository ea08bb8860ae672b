"""What an embedding worker keeps: the ids of batches under their sample ids, from their coming to their gradients.

Values in, values out. A batch counts once, however often its ids or its gradients are sent. What is kept is bounded,
and let go when gradients came, when somebody says that none will come, or when none came for too long.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from hotrow.client.sharded import ShardedLookup
from hotrow.data.batch import Batch
from hotrow.errors import ConfigError, InputError
from hotrow.server.pushes import SeenGrants
from hotrow.spec import Spec
from hotrow.store.tiers import listed
from hotrow.transport.errors import Busy
from hotrow.transport.ids import grant_of, plain_bytes, unpack_ids, worker_of
from hotrow.transport.messages import Folded, LookUp

ID_BYTES = 24  # of one id: itself, its place among the distinct ones, and among those of its shard
FLOAT_BYTES = 8  # of one number of a vector: itself and its gradient
OVERHEAD = 16_384  # of a batch beside that
ENDS_KEPT = 1_000  # for who asks about a batch once more
GRANTS_KEPT = 2**20


class BufferLimits(Spec):
    """How much an embedding worker keeps for others, and how long."""

    samples: int = Field(2**20, ge=1, le=2**40)
    bytes: int = Field(2**31, ge=2**10, le=2**50)
    keep_s: float = Field(600.0, gt=0, le=1e9)  # without a word about a batch
    waiting: int = Field(1_024, ge=1, le=2**20)  # asks for vectors that are not there yet
    queued: int = Field(1_024, ge=1, le=2**20)  # requests that nobody has looked at, before new batches have to wait


@dataclass(slots=True, eq=False)
class BufferedBatch:
    """A batch whose gradients have not come."""

    sample: int
    batch: Batch
    nbytes: int
    touched_s: float
    handle: ShardedLookup | None = None  # once its rows are there
    pushing: bool = False  # its gradients are on their way to the shards


class EmbeddingBuffers:
    """All batches of one embedding worker. The time is handed in."""

    def __init__(self, number: int, dims: Mapping[str, int], bounds: BufferLimits) -> None:
        self.number, self.bounds = number, bounds
        self.samples = self.nbytes = 0
        self.counts: Counter[str] = Counter()
        self._dims = dims
        self._kept: dict[int, BufferedBatch] = {}  # by sample id
        self._seen = SeenGrants(GRANTS_KEPT)
        self._ends: OrderedDict[int, Folded | str] = OrderedDict()  # what became of batches, or why they went

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, told: LookUp, frames: Sequence[memoryview], now: float) -> BufferedBatch | None:
        """Keep the ids of a batch; None where they came before. Busy: there is no room now; InputError: never.

        The oldest batch is taken above the bounds: others may be kept until it is done.
        """
        self._check_mine(told.sample)
        if grant_of(told.sample) in self._seen:
            self.counts["again"] += 1
            return None
        self._check_room(told.sample, told.count, self._least_bytes(told))
        batch = unpack_ids(told.count, told.parts, frames)
        nbytes = self._bytes_of(batch)
        self._check_room(told.sample, told.count, nbytes)
        kept = BufferedBatch(told.sample, batch, nbytes, now)
        self._kept[told.sample] = kept
        self._seen.add(grant_of(told.sample))
        self.samples += told.count
        self.nbytes += nbytes
        self.counts["batches"] += 1
        self.counts["ids_bytes"] += sum(frame.nbytes for frame in frames)
        self.counts["ids_plain_bytes"] += plain_bytes(told.parts)
        return kept

    def find(self, sample: int, now: float) -> BufferedBatch | None:
        """A batch that is kept; None where its ids have not come yet. InputError where it is gone."""
        self._check_mine(sample)
        kept = self._kept.get(sample)
        if kept is not None:
            kept.touched_s = now
        elif grant_of(sample) in self._seen:
            self.counts["gone"] += 1
            end = self._ends.get(sample, "that was long ago")
            message = "its gradients came before" if isinstance(end, Folded) else end
            raise InputError(f"sample id {sample:#x}: embedding worker {self.number} has let it go: {message}")
        return kept

    def is_kept(self, kept: BufferedBatch) -> bool:
        """Whether it was not let go meanwhile."""
        return self._kept.get(kept.sample) is kept

    def outcome(self, sample: int) -> Folded | None:
        """What became of gradients that came before."""
        end = self._ends.get(sample)
        return end if isinstance(end, Folded) else None

    def finish(self, kept: BufferedBatch, outcome: Folded) -> None:
        """Its gradients are on all shards."""
        self._let_go([kept], "pushed", outcome)

    def fail(self, kept: BufferedBatch, why: str) -> None:
        """Its rows cannot be had, or its gradients were refused."""
        self._let_go([kept], "failed", why)

    def release(self, samples: Iterable[int]) -> list[BufferedBatch]:
        """Let batches go whose gradients will not come. Those whose gradients are on their way end by themselves."""
        wanted = set(samples)
        for sample in wanted:
            self._check_mine(sample)
            self._seen.add(grant_of(sample))  # ids that come after this word are not wanted either
        idle = [each for each in self._kept.values() if not each.pushing]
        mine = [each for each in idle if each.sample in wanted]
        return self._let_go(mine, "released", "it was released")

    def expire(self, now: float) -> list[BufferedBatch]:
        """Let go what nobody spoke of for too long."""
        oldest = now - self.bounds.keep_s
        silent = [each for each in self._kept.values() if each.touched_s <= oldest and not each.pushing]
        return self._let_go(silent, "expired", f"nothing was heard of it for {self.bounds.keep_s:g} s")

    def figures(self) -> dict[str, float]:
        """How it is, by name."""
        names = ("batches", "again", "gone", "refused", "busy", "pushed", "failed", "released", "expired")
        now = {"kept": len(self), "kept_samples": self.samples, "kept_bytes": self.nbytes}
        return {name: float(count) for name, count in (now | dict.fromkeys(names, 0) | self.counts).items()}

    def _let_go(self, batches: list[BufferedBatch], count: str, end: Folded | str) -> list[BufferedBatch]:
        for kept in batches:
            if self.is_kept(kept):
                del self._kept[kept.sample]
                self.samples -= len(kept.batch)
                self.nbytes -= kept.nbytes
                self.counts[count] += 1
                self._ends[kept.sample] = end
        while len(self._ends) > ENDS_KEPT:
            self._ends.popitem(last=False)
        return batches

    def _check_mine(self, sample: int) -> None:
        if worker_of(sample) != self.number:
            raise InputError(
                f"sample id {sample:#x} names embedding worker {worker_of(sample)}, this is {self.number}: ask that one"
            )

    def _check_room(self, sample: int, samples: int, nbytes: int) -> None:
        for what, there, more, most in (
            ("samples", self.samples, samples, self.bounds.samples),
            ("bytes", self.nbytes, nbytes, self.bounds.bytes),
        ):
            if more > most:
                self.counts["refused"] += 1
                raise InputError(
                    f"sample id {sample:#x}: a batch of {more:,} {what} is more than the {most:,} that embedding "
                    f"worker {self.number} may keep: take a smaller local batch, or raise the bound"
                )
            if there + more > most and any(other < sample for other in self._kept):
                self.counts["busy"] += 1
                message = f"{len(self)} batches of {there:,} {what} are kept, and {more:,} more would pass the {most:,}"
                raise Busy(f"sample id {sample:#x}: {message} of its bounds: send it later")

    def _least_bytes(self, told: LookUp) -> int:
        """Of what a header announces, before anything is made of it. How long sequences are is not known yet."""
        size = OVERHEAD
        for part in told.parts:
            if part.table not in self._dims:
                raise ConfigError(f"table {part.table!r} of a batch is missing: there are {listed(self._dims)}")
            ids = sum(each.ids for each in part.coded)
            vectors = ids if part.kind == "sequence" else told.count * len(part.names)
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
