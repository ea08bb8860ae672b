"""The capacity of a run: rows, bytes of tiers, shards and hosts, network, speed and mode. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hotrow.errors import ConfigError
from hotrow.plan.hosts import KnownHosts
from hotrow.plan.row_bytes import AHEAD_BYTES, FILE_FACTOR
from hotrow.plan.sample import DataSample, TableSample
from hotrow.plan.speed import BatchSeconds, ModeChoice, choose_mode
from hotrow.plan.tables import PlannedTable, TableForecast, forecast
from hotrow.plan.traffic import BatchTraffic, dense_traffic
from hotrow.sizes import size_text

RAM_SHARE = 0.8  # of a host's memory that tables may fill: the rest is for the system, buffers and the network
MEMORY_BETWEEN = "a row is in RAM or on disk, and the most frequent ids are in RAM"
FILE_ROOM = (
    f"a file has {FILE_FACTOR} slots for each id of its table: rows in RAM keep copies on disk, and newer copies "
    "supersede older ones"
)


@dataclass(frozen=True, slots=True)
class RunShape:
    """The parts of a run that a plan needs beside its tables."""

    trainers: int
    shards: int
    local_batch: int
    global_batch: int
    dense_parameters: int
    several_hosts: bool  # the engine runs on a cluster

    @property
    def parts(self) -> int:
        """Local batches of a global one."""
        return max(1, self.global_batch // self.local_batch)


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Everything that is predicted."""

    tables: tuple[TableForecast, ...]
    total_rows: int  # of the data
    sample_rows: int
    shape: RunShape
    hosts: KnownHosts
    traffic: BatchTraffic
    seconds: BatchSeconds
    choice: ModeChoice
    trainer_samples_per_s: float
    faults: tuple[str, ...]  # what does not fit, with the remedy
    assumptions: tuple[str, ...]

    @property
    def ram_bytes(self) -> int:
        """Of all tables."""
        return sum(each.ram_bytes for each in self.tables)

    @property
    def disk_bytes(self) -> int:
        """Of all tables."""
        return sum(each.disk_bytes for each in self.tables)

    @property
    def used_hosts(self) -> int:
        """Hosts that the engine of the run uses."""
        return self.hosts.hosts if self.shape.several_hosts else 1

    @property
    def step_bytes(self) -> float:
        """Between trainers and shards for one global batch."""
        return self.traffic.total * self.shape.parts


def plan_capacity(
    tables: Sequence[PlannedTable],
    sample: DataSample,
    total_rows: int,
    shape: RunShape,
    hosts: KnownHosts,
    trainer_samples_per_s: float,
    *,
    measured: bool = False,
) -> CapacityPlan:
    """Predict a run over `total_rows` rows of data. `measured`: the speed of a trainer is that of this machine."""
    found = tuple(forecast(each, _sampled(sample, each.name), total_rows, shape.shards) for each in tables)
    traffic = _traffic(found, shape)
    used = hosts.hosts if shape.several_hosts else 1
    seconds = _seconds(found, traffic, shape, hosts, used, trainer_samples_per_s)
    choice = choose_mode(
        seconds, local_batch=shape.local_batch, trainers=shape.trainers, parts=shape.parts, slowest=hosts.slowest
    )
    return CapacityPlan(
        found,
        total_rows,
        sample.rows,
        shape,
        hosts,
        traffic,
        seconds,
        choice,
        trainer_samples_per_s,
        (*_faults(found, hosts, used), *_core_faults(shape, hosts, used)),
        (*_assumptions(found, sample, total_rows, shape, used), *_speed(measured, hosts), *hosts.assumptions),
    )


def _speed(measured: bool, hosts: KnownHosts) -> list[str]:
    if not measured:
        return []
    said = ["a trainer is as fast as training on the first batches in this process, alone on this machine"]
    if hosts.gpus:
        said.append("GPUs are not measured: give cluster.trainer_samples_per_s of a trainer with one")
    return said


def _core_faults(shape: RunShape, hosts: KnownHosts, used: int) -> list[str]:
    """Each role computes with one core at least."""
    roles = math.ceil((shape.trainers + (shape.shards if shape.several_hosts else 0)) / used)
    if roles <= hosts.cores:
        return []
    what = "trainers and shards" if shape.several_hosts else "workers"
    return [
        f"cores: {roles:,} {what} of a host share {hosts.cores:,} cores, so each is slower than measured: take fewer"
    ]


def _sampled(sample: DataSample, name: str) -> TableSample:
    if name not in sample.tables:
        raise ConfigError(f"tables.{name}: no feature of the sample has ids for this table, so no rows are predicted")
    return sample.tables[name]


def _traffic(found: Sequence[TableForecast], shape: RunShape) -> BatchTraffic:
    ids, rows, gradients = (sum(each) for each in zip(*(table.traffic for table in found), strict=True))
    dense = dense_traffic(shape.dense_parameters, shape.trainers)
    return BatchTraffic(ids, rows, gradients, dense, dense)


def _seconds(
    found: Sequence[TableForecast],
    traffic: BatchTraffic,
    shape: RunShape,
    hosts: KnownHosts,
    used: int,
    samples_per_s: float,
) -> BatchSeconds:
    """Trainers and shards share the hosts evenly; what stays on its own host does not use the network."""
    beside = shape.trainers / used  # trainers whose batches go through the network and the disks of one host
    away = 1 - 1 / used
    read = sum(each.disk_read_bytes for each in found)
    return BatchSeconds(
        compute=shape.local_batch / samples_per_s,
        rows=beside * traffic.rows * away / hosts.network_bytes,
        disk=beside * read / hosts.disk_read_bytes,
        dense=(traffic.dense_out if used > 1 else 0.0) * math.ceil(beside) / hosts.network_bytes,
    )


def _faults(found: Sequence[TableForecast], hosts: KnownHosts, used: int) -> list[str]:
    faults = []
    ram, usable = sum(each.ram_bytes for each in found), hosts.ram_bytes * RAM_SHARE
    if ram > usable * used:
        needed = math.ceil(ram / usable)
        remedy = f"{needed:,} such hosts hold it; or give tables a capacity, a 16-bit type, or a disk"
        faults.append(
            f"RAM: the tables need {size_text(ram)} and {used:,} host{'s' if used > 1 else ''} with "
            f"{size_text(round(usable))} for tables have {size_text(round(usable * used))}: {remedy}"
        )
    disk = sum(each.disk_bytes for each in found)
    if disk > hosts.disk_bytes * used:
        faults.append(
            f"disk: the tables need {size_text(disk)} and the hosts have {size_text(hosts.disk_bytes * used)}: "
            f"{math.ceil(disk / hosts.disk_bytes):,} such hosts hold it"
        )
    for each in found:
        if each.lost_rows >= 1:
            share = f"{100 * each.lost_rows / each.distinct:.0f} % of the ids of table {each.table.name!r}"
            faults.append(f"{share} find no room in its capacity: rows are evicted for good; give it more, or a disk")
        if each.file_overflows:
            faults.append(
                f"table {each.table.name!r}: {each.file_rows:,.0f} rows, copies of those in RAM included, do not fit "
                f"in its disk of {size_text(each.table.disk_bytes or 0)}, which holds {each.table.file_rows_most:,}: "
                f"the run ends when the file is full; give it {size_text(each.disk_bytes)}"
            )
    return faults


def _assumptions(
    found: Sequence[TableForecast], sample: DataSample, total: int, shape: RunShape, used: int
) -> list[str]:
    said = [
        f"all {sample.rows:,} rows were read: the numbers of ids are counted"
        if total <= sample.rows
        else f"{sample.rows:,} of {total:,} rows were read: ids of each feature grow by Heaps' law, with an "
        "exponent that falls as over the last doublings of the sample",
        f"tables fill at most {100 * RAM_SHARE:.0f} % of a host's RAM",
        f"room that tables allocate ahead of their growth is not counted: at most {size_text(AHEAD_BYTES)} of each "
        "table and shard, without pages until it is used",
        "trainers and shards are spread evenly over the hosts, and shards hold equal numbers of rows",
    ]
    if any(each.disk_rows for each in found):
        said += [MEMORY_BETWEEN, FILE_ROOM]
    said += [
        f"table {each.table.name!r}: {each.table.upper_bound} can only make it smaller: its rows are an upper bound"
        for each in found
        if each.table.upper_bound
    ]
    if used == 1 and shape.trainers > 1:
        said.append("one host: messages between its processes use no network")
    return said
