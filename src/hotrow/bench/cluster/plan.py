"""What a run of `hotrow bench cluster` measures."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from hotrow.bench.train_plan import TrainPlan
from hotrow.errors import ConfigError

Hidden = tuple[int, ...]
PARTS = (
    "shared-memory",
    "same",
    "auc",
    "wire",
    "delay",
    "look-ahead",
    "straggler",
    "readers",
    "overhead",
    "coordinator",
    "peers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Sizes of one run; the defaults are the job that the targets are set for."""

    networks: dict[str, Hidden] = field(default_factory=lambda: {"narrow": (64, 32), "wide": (400, 400, 400)})
    dims: tuple[int, ...] = (16, 64)  # beside the peers; everything else is measured with the first
    rows: int = 2_000_000  # ids of all features together
    samples: int = 4096  # of a global batch: each of two trainers gets half of it
    rounds: int = 5
    steps: int = 32  # of each contestant in a round
    skipped: int = 8  # of these, at the start: pipelines fill, connections are made
    tail: int = 4  # and at the end: pipelines run dry
    delay_s: float = 0.02  # on the way to a shard, and on the way back
    in_flight: int = 4  # what Hybrid does unless told otherwise
    ahead_samples: int = 512  # of a global batch in the part on look-ahead, which is bound by the wire
    ahead_steps: int = 200  # whose losses are compared
    slowed: int = 4  # the straggler takes so many times as long
    seeds: int = 5  # of each pair that is compared by AUC
    learned_rows: int = 1_000_000
    learned_batch: int = 1024
    judged_rows: int = 200_000
    same_steps: int = 200
    messages: int = 400  # of each kind of security
    large_bytes: int = 16 << 20
    workers: int = 1_000  # that the coordinator grants batches to
    shards: int = 8  # that get its orders
    granted: int = 40_000  # batches of each mode in a round
    criteo: Path | None = None  # a file of its format

    @property
    def train(self) -> TrainPlan:
        """The same job as `hotrow bench train` knows it, for the file and the peers."""
        return TrainPlan(
            rows=self.rows,
            dims=self.dims,
            networks=self.networks,
            rounds=self.rounds,
            steps=self.steps,
            threads=1,
            samples=self.samples,
        )

    def check_steps(self) -> None:
        """Refuse stretches of which nothing would be timed."""
        if self.steps <= self.skipped + self.tail:
            raise ConfigError(
                f"steps={self.steps}: the first {self.skipped} and the last {self.tail} are not timed: take more"
            )

    def quick(self) -> "ClusterPlan":
        """The same in a minute or two; its figures say that everything works, and no more."""
        return replace(
            self,
            networks={"narrow": self.networks["narrow"]},
            dims=self.dims[:1],
            rows=20_000,
            samples=256,
            ahead_samples=64,
            ahead_steps=10,
            rounds=1,
            steps=6,
            skipped=2,
            tail=1,
            seeds=1,
            learned_rows=5_120,
            learned_batch=256,
            judged_rows=2_048,
            same_steps=20,
            messages=20,
            workers=20,
            granted=200,
            large_bytes=1 << 20,
        )
