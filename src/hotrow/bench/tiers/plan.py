"""What a run of `hotrow bench tiers` measures."""

import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from hotrow.bench.machine import available_bytes
from hotrow.bench.train_plan import FLOAT_BYTES, ROW_OVERHEAD_BYTES, WORK_BYTES, TrainPlan
from hotrow.errors import ConfigError

PARTS = ("speed", "options", "cluster", "capacity")
CLUSTER_MODES = ("sync", "hybrid")  # of the part `cluster`
SPARE = 1.6  # bytes of a table's file for each byte of its rows: superseded copies wait there for compaction
SLOT_OVERHEAD_BYTES = 32  # of a row in the file beyond value and state, at most
PARAMETERS = (6.25e12, 12.5e12, 25e12, 50e12, 100e12)  # of Criteo-Syn 1 to 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityJob:
    """Sizes of the part `capacity`; a stream has the same work in a batch at every size."""

    dim: int = 128
    parameters: tuple[float, ...] = PARAMETERS
    stored_rows: tuple[int, ...] = (2_000_000, 6_000_000, 20_000_000)  # on disk before training
    memory_bytes: int = 10**9  # of each table, everything counted
    hot_ids: int = 200_000  # that most of a batch is drawn from, by a Zipf law
    stored_share: float = 0.05  # of a batch's ids: drawn evenly from the rows on disk
    new_share: float = 0.05  # drawn evenly from the whole id space, so without a row
    zipf: float = 1.05
    steps: int = 12
    rounds: int = 5
    warm_up: int = 1
    spare: float = 1.25  # as SPARE; new rows are few beside those that are stored

    @property
    def spaces(self) -> tuple[int, ...]:
        """Ids of each space."""
        return tuple(int(number) // self.dim for number in self.parameters)

    @property
    def table_bytes(self) -> int:
        """The file of each table may grow to this, whatever its rows: its index then has the same room in memory."""
        return self._file_bytes(max(self.stored_rows))

    @property
    def all_bytes(self) -> int:
        """Of the files of all tables, which exist at once."""
        return sum(self._file_bytes(rows) for rows in self.stored_rows)

    def _file_bytes(self, rows: int) -> int:
        return int(self.spare * rows * (self.dim * FLOAT_BYTES + SLOT_OVERHEAD_BYTES)) + (64 << 20)

    def quick(self) -> "CapacityJob":
        """The same in seconds; its figures say that everything works, and no more."""
        small = replace(self, dim=8, parameters=self.parameters[:2], stored_rows=(3_000, 6_000))
        return replace(small, memory_bytes=32 << 20, hot_ids=1_000, steps=2, rounds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiersPlan:
    """Sizes of one run; the defaults are the job that the targets are set for."""

    rows: int = 4_000_000  # ids of all features together
    dims: tuple[int, ...] = (16, 128)
    rows_per_place: int = 10  # memory has a place for one row in so many
    hidden: tuple[int, ...] = (64, 32)
    rounds: int = 5
    warm_up: int = 1
    steps: int = 20  # of each contestant in a round
    threads: int = 2
    samples: int = 4096
    features: int = 26
    numbers: int = 13
    zipf: float = 1.05
    lr: float = 0.05
    depth: int = 32  # reads that the disk has at a time while its rate is measured
    disk_s: float = 2.0  # of each such measurement
    disk_file_bytes: int = 1 << 30
    lookups: int = 4  # batches of each contestant in a round beside a peer
    capacity: CapacityJob = CapacityJob()

    @property
    def memory_rows(self) -> int:
        """Rows that memory has room for."""
        return self.rows // self.rows_per_place

    @property
    def ids(self) -> int:
        """Ids of one batch."""
        return self.samples * self.features

    @property
    def train(self) -> TrainPlan:
        """The same job as `hotrow bench train` knows it, for the file and the network."""
        return TrainPlan(
            rows=self.rows,
            dims=self.dims,
            rounds=self.rounds + self.warm_up,
            steps=self.steps,
            threads=self.threads,
            samples=self.samples,
            features=self.features,
            numbers=self.numbers,
            zipf=self.zipf,
            lr=self.lr,
        )

    def table_bytes(self, dim: int) -> int:
        """Of the file of a table: value and state of each row, and room for superseded copies."""
        return int(SPARE * self.rows * (2 * dim * FLOAT_BYTES + SLOT_OVERHEAD_BYTES)) + (64 << 20)

    def quick(self) -> "TiersPlan":
        """The same in seconds; its figures say that everything works, and no more."""
        sizes = replace(self, rows=20_000, dims=(4,), hidden=(8,), rounds=1, steps=3, threads=1, samples=64)
        return replace(
            sizes, features=3, numbers=2, disk_s=0.3, disk_file_bytes=4 << 20, capacity=self.capacity.quick()
        )

    def check_room(self, folder: Path, parts: tuple[str, ...]) -> None:
        """Refuse a run for which memory or the disk of `folder` does not suffice, or that needs what is missing."""
        if "cluster" in parts and find_spec("ray") is None:
            raise ConfigError("--part cluster: needs Ray: pip install 'hotrow[ray]', or name the other parts")
        dim = max(self.dims)
        in_memory = self.rows * (2 * dim * FLOAT_BYTES + ROW_OVERHEAD_BYTES)
        memory, disk = [WORK_BYTES], [self.disk_file_bytes]
        if "speed" in parts:
            memory.append(int(in_memory * (1 + 2 / self.rows_per_place)) + WORK_BYTES)
            disk.append(2 * self.table_bytes(dim) + self.disk_file_bytes)
        if "options" in parts:
            memory.append(5 * in_memory // self.rows_per_place + WORK_BYTES)
            disk.append(5 * self.table_bytes(dim))
        if "capacity" in parts:
            disk.append(self.capacity.all_bytes)
        self._check("memory", max(memory), available_bytes())
        self._check(f"the disk of {folder}", max(disk), shutil.disk_usage(folder).free)

    def _check(self, what: str, needed: int, free: int) -> None:
        if needed > free:
            raise ConfigError(
                f"rows={self.rows:,} at dim {max(self.dims)}: needs {needed / 2**30:.1f} GiB of {what}, "
                f"{free / 2**30:.1f} GiB are free: take fewer --rows, a smaller --dim or fewer parts"
            )
