"""What a run of `hotrow bench checkpoint` measures."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from hotrow.bench.machine import available_bytes
from hotrow.bench.train_plan import FLOAT_BYTES, ROW_OVERHEAD_BYTES, TrainPlan
from hotrow.errors import ConfigError

WORK_BYTES = 1 << 30  # everything beside tables and files: torch, batches
FILES_AT_ONCE = 5  # two checkpoints of the same rows, two raw files, and a full one with a delta


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlan:
    """Sizes of one run; the defaults are the job that the targets are set for."""

    rows: int = 2_000_000
    dim: int = 16
    rounds: int = 9
    threads: int = 1  # of training; the thread that writes has another core
    samples: int = 1024  # per step
    features: int = 26
    hidden: tuple[int, ...] = (64, 32)
    zipf: float = 1.05
    pool: int = 16  # batches that training repeats
    changed: float = 0.01  # of the rows, before a delta
    lr: float = 0.05

    @property
    def file_bytes(self) -> int:
        """About the bytes of a full checkpoint: value, state, key and version of each row."""
        return self.rows * (2 * self.dim * FLOAT_BYTES + 12)

    @property
    def training(self) -> TrainPlan:
        """What the dense network is made from."""
        return TrainPlan(features=self.features, numbers=0, samples=self.samples)

    def quick(self) -> "CheckpointPlan":
        """The same in seconds; its figures say that everything works, and no more."""
        return replace(self, rows=20_000, rounds=1, samples=64, features=3, hidden=(8,), pool=4)

    def check_room(self, folder: Path) -> None:
        """Refuse a run for which memory or the disk of `folder` does not suffice."""
        tables = 2 * self.rows * (2 * self.dim * FLOAT_BYTES + ROW_OVERHEAD_BYTES)  # one that trains, one that loads
        self._check("memory", tables + self.file_bytes + WORK_BYTES, available_bytes())
        self._check(f"the disk of {folder}", FILES_AT_ONCE * self.file_bytes, shutil.disk_usage(folder).free)

    def _check(self, what: str, needed: int, free: int) -> None:
        if needed > free:
            raise ConfigError(
                f"rows={self.rows:,} at dim {self.dim}: needs {needed / 2**30:.1f} GiB of {what}, "
                f"{free / 2**30:.1f} GiB are free: take fewer --rows or a smaller --dim"
            )
