"""What a run of `hotrow bench cache` measures."""

from dataclasses import dataclass, replace

from hotrow.errors import ConfigError

PARTS = ("bytes", "oracles", "wire", "policies", "epoch", "hit")
DATA_SETS = ("criteo", "gowalla")
FLOAT_BYTES = 4
LONG_WARM_ROWS = 10_000_000
SLOW_LINK_GBPS, SLOW_LINK_STEPS = 0.1, 24  # slower ones have fewer timed steps, at least so many


def zipf_name(exponent: float) -> str:
    """Of a stream."""
    return f"zipf_{exponent:g}".replace(".", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """Sizes of one run; the defaults are the setting of HET, with traces of a tenth of its rows where that is said."""

    workers: int = 8
    samples: int = 128  # of a worker's batch
    features: int = 26  # ids of a sample in synthetic streams
    dim: int = 128
    rows: int = 10_000_000  # of the stream with the paper's skew
    grid_rows: int = 200_000  # of all other synthetic streams
    size: float = 0.1  # of the cache, as a share of the rows
    sizes: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    staleness: tuple[int, ...] = (0, 10, 100)
    policies: tuple[str, ...] = ("lru", "lfu", "light_lfu", "ahead")
    exponents: tuple[float, ...] = (0.9, 1.05, 1.2, 1.3)
    steps: int = 101  # that are counted: the updates after which a row in every batch is written back
    warm: tuple[tuple[int, int], ...] = ((12, 64), (16, 8), (24, 1))  # batches before, and the steps in each
    long_warm: tuple[tuple[int, int], ...] = ((80, 256), (16, 16), (24, 1))  # the same over the rows of the paper
    window: int = 4  # batches that policy "ahead" knows
    oracle_rows: int = 100_000  # of the traces that oracles know, which hold every step of one worker
    oracle_steps: int = 1_000
    cluster_rows: int = 100_000
    cluster_steps: int = 300  # that are timed, fewer over a slow link
    cluster_warm: int = 60  # before them in the same fit, with a cache; others skip 12
    rounds: int = 1
    gbps: tuple[float, ...] = (0.01, 1.0, 10.0)  # of each worker's link
    only: tuple[str, ...] = ()  # streams of part bytes; none: all
    epoch_policy: str = "lfu"
    epoch_samples: int = 1_000_000  # of an epoch in the table
    hit_rounds: int = 9
    hit_batches: int = 100
    seed: int = 0

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of all streams of part bytes."""
        return ("paper_skew", "paper_skew_grid", *map(zipf_name, self.exponents), *DATA_SETS)

    @property
    def paper_warm(self) -> tuple[tuple[int, int], ...]:
        """Batches before the counted ones of the stream with the paper's skew.

        Each updates its rows once, however many steps it stands for: more than smaller caches need would bring rows
        to the bound of staleness that real steps do not bring there.
        """
        (batches, steps), *rest = self.long_warm
        return ((batches if self.rows >= LONG_WARM_ROWS else max(1, batches // 4), steps), *rest)

    @property
    def ids(self) -> int:
        """Of a worker's batch, in synthetic streams."""
        return self.samples * self.features

    @property
    def global_samples(self) -> int:
        """Of one step."""
        return self.workers * self.samples

    def over_link(self, gbps: float) -> "CachePlan":
        """The same with as many timed steps as take about as long over a slow link as all of them over a fast one."""
        steps = min(self.cluster_steps, max(SLOW_LINK_STEPS, round(self.cluster_steps * gbps / SLOW_LINK_GBPS)))
        return replace(self, cluster_steps=steps)

    def capacity(self, rows: int, size: float | None = None) -> int:
        """Rows of a cache."""
        return max(1, round(rows * (self.size if size is None else size)))

    def check(self) -> None:
        """Refuse sizes of which nothing would be counted."""
        if strangers := [name for name in self.only if name not in self.streams]:
            raise ConfigError(f"--stream {strangers[0]}: must be of {', '.join(self.streams)}")
        for name in ("workers", "samples", "features", "dim", "steps", "cluster_steps", "rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: must be 1 or more")
        if min(self.gbps, default=0) <= 0:
            raise ConfigError(f"gbps={self.gbps}: every link must have a rate above 0")
        for name in ("rows", "grid_rows", "cluster_rows"):
            if getattr(self, name) < 10:
                raise ConfigError(f"{name}={getattr(self, name)}: must be 10 or more")

    def quick(self) -> "CachePlan":
        """The same in a minute; its figures say that everything works, and no more."""
        return replace(
            self,
            workers=2,
            samples=16,
            features=4,
            dim=8,
            rows=4_000,
            grid_rows=2_000,
            sizes=(0.05, 0.5),
            staleness=(0, 10),
            exponents=(1.05,),
            steps=22,
            warm=((2, 8), (4, 1)),
            long_warm=((2, 8), (4, 1)),
            oracle_rows=1_000,
            oracle_steps=30,
            cluster_rows=2_000,
            cluster_steps=10,
            cluster_warm=10,
            rounds=1,
            gbps=(1.0,),
            epoch_samples=10_000,
            hit_rounds=2,
        )
