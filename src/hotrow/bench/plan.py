"""What a run of `hotrow bench store` measures."""

from dataclasses import dataclass, replace

from hotrow.bench.limits import COPY_BYTES, FLOAT_BYTES
from hotrow.bench.machine import available_bytes
from hotrow.bench.rounds import BURST, WARM_UP_ROUNDS
from hotrow.errors import ConfigError

ROW_OVERHEAD_BYTES = 64  # beyond value and state, generously
CURVE_PARTS = (0.1, 0.2, 0.5, 1.0, 2.0)  # sizes of the curve, as parts of `rows`
CURVE_DIM = 16
EVICTION_ROUNDS_MAX = 60  # each of their turns has a batch of its own, which all lie in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlan:
    """Sizes of one run; the defaults are the job that the targets are set for."""

    rows: int = 10_000_000
    dims: tuple[int, ...] = (16, 64)
    rounds: int = 60
    threads: int = 2
    samples: int = 4096
    features: int = 26
    exponent: float = 1.05
    pool: int = 32  # different batches, taken in turn
    lr: float = 0.05
    copy_bytes: int = COPY_BYTES

    @property
    def ids(self) -> int:
        """Ids of one batch."""
        return self.samples * self.features

    @property
    def fill_batches(self) -> int:
        """Batches that create all rows."""
        return -(-self.rows // self.ids)

    @property
    def eviction_rounds(self) -> int:
        return min(self.rounds, EVICTION_ROUNDS_MAX)

    @property
    def eviction_batches(self) -> int:
        """A new batch for every turn."""
        return (WARM_UP_ROUNDS + self.eviction_rounds) * BURST

    @property
    def curve_rows(self) -> list[int]:
        return [max(int(self.rows * part), 1) for part in CURVE_PARTS]

    def quick(self) -> "StorePlan":
        """The same in seconds instead of minutes; its figures say that everything works, and no more."""
        return replace(self, rows=100_000, rounds=5, samples=256, pool=8, copy_bytes=16 << 20)

    def table_bytes(self, dim: int) -> int:
        """What one of our tables takes at most."""
        return self.rows * (2 * dim * FLOAT_BYTES + ROW_OVERHEAD_BYTES)

    def check_memory(self) -> None:
        """Refuse a run that would push the machine into its last bytes."""
        needed = max(self._needed_bytes(dim) for dim in self.dims)
        available = available_bytes()
        if needed > available:
            raise ConfigError(
                f"rows={self.rows:,} at dim {max(self.dims)}: ours and the peers need {needed / 2**30:.1f} GiB, "
                f"{available / 2**30:.1f} GiB are free: take fewer --rows or a smaller --dim"
            )

    def _needed_bytes(self, dim: int) -> int:
        peers = 2 * self.rows * 2 * dim * FLOAT_BYTES
        limits = self.rows * dim * FLOAT_BYTES + 2 * self.copy_bytes
        ids = self.rows * 4 * 8 + self.pool * self.ids * 16
        with_peers = self.table_bytes(dim) + peers + limits
        among_ours = 2 * self.table_bytes(dim) + self.eviction_batches * self.ids * 16
        return max(with_peers, among_ours) + ids
