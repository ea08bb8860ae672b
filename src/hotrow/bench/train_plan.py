"""What a run of `hotrow bench train` measures."""

from dataclasses import dataclass, field, replace

from hotrow.bench.machine import available_bytes
from hotrow.errors import ConfigError

FLOAT_BYTES = 4
ROW_OVERHEAD_BYTES = 64  # of ours, beyond value and state, generously
WORK_BYTES = 3 << 30  # everything beside the tables: torch, batches, the network's activations


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """Sizes of one run; the defaults are the job that the targets are set for."""

    rows: int = 10_000_000  # ids of all features together
    dims: tuple[int, ...] = (16, 64)
    networks: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"wide": (400, 400, 400), "narrow": (64, 32)})
    rounds: int = 9
    steps: int = 24  # of each contestant in a round
    threads: int = 2
    samples: int = 4096  # per step
    row_group: int = 16_384  # of the file: a stretch has several, so reading goes on while it is trained
    features: int = 26
    numbers: int = 13
    zipf: float = 0.95  # as many distinct ids in a batch as in `hotrow bench store`, 37 of 100; Criteo has 21
    lr: float = 0.05
    dense_lr: float = 0.001

    @property
    def segment(self) -> int:
        """Samples that each contestant trains on in a round."""
        return self.steps * self.samples

    def quick(self) -> "TrainPlan":
        """The same in seconds; its figures say that everything works, and no more."""
        networks = {"wide": (32, 32, 32), "narrow": (8, 4)}
        return replace(self, rows=5_000, rounds=1, steps=2, samples=128, networks=networks)

    def check_memory(self) -> None:
        """Refuse a run that would push the machine into its last bytes."""
        dim = max(self.dims)
        ours = self.rows * (2 * dim * FLOAT_BYTES + ROW_OVERHEAD_BYTES)
        needed = ours + 2 * self.rows * 2 * dim * FLOAT_BYTES + WORK_BYTES
        if needed > (available := available_bytes()):
            raise ConfigError(
                f"rows={self.rows:,} at dim {dim}: ours and the peers need {needed / 2**30:.1f} GiB, "
                f"{available / 2**30:.1f} GiB are free: take fewer --rows or a smaller --dim"
            )
