"""Hosts, RAM, disk and network of a model of so many parameters, line by line. Pure.

The default is the largest model of PERSIA: Criteo-Syn 5, 100 trillion parameters in rows of 128 floats.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.optim.sparse import SGD, Adagrad, Adam, AnyOptimizer, RowwiseAdagrad
from hotrow.plan.capacity import RAM_SHARE
from hotrow.plan.hosts import HostCluster
from hotrow.plan.row_bytes import (
    DISK_READ_LEAST,
    FILE_FACTOR,
    FILE_SLOTS_MOST,
    RowLayout,
    bytes_per_row,
    file_bytes,
)
from hotrow.plan.traffic import row_traffic, vector_bytes
from hotrow.sizes import parse_bytes, size_text
from hotrow.store.tier_plan import SLOT_HEADER, index_bytes, memory_for
from hotrow.types import Values

PERSIA_HOSTS = 30  # embedding parameter servers, PERSIA section 6: m2-ultramem-416 with 12 TB of RAM each
PERSIA_HOST_RAM = "12TB"
PERSIA_NETWORK_GBPS = 100.0  # PERSIA section 6, of Kwai's own cluster; of the cloud hosts the paper does not say it
PERSIA_DENSE = 12_000_000  # parameters, PERSIA table 1
CRITEO_FEATURES = 26  # ids of a sample; PERSIA adds random ones and does not say how many: a lower bound
ASSUMED_DISK = "30TB"  # NVMe of each host: no paper states it
ASSUMED_DISK_READ = "10GB"  # a second of each host: no paper states it
ROWS_PER_SHARD_MOST = 32 * 1_600_000_000  # 32 partitions: docs/store.md
HOT_SHARE = 0.1  # of the rows that are kept in RAM where there is a disk tier

WHERE = {"memory": "in memory", "disk": "on disk"}  # as `disk_index="auto"` takes it

VARIANTS: tuple[tuple[Literal["float32", "float16"], AnyOptimizer], ...] = (
    ("float32", Adam()),
    ("float32", Adagrad()),
    ("float16", Adagrad()),
    ("float32", RowwiseAdagrad()),
    ("float16", RowwiseAdagrad()),
    ("float16", SGD()),
)

_COUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMBGT]?)\s*", re.IGNORECASE)
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of the arithmetic."""

    name: str
    value: str
    how: str


@dataclass(frozen=True, slots=True)
class TableVariant:
    """The same parameters with another type and optimizer, in RAM alone."""

    type: str
    optimizer: str
    bytes_per_row: float
    ram_bytes: int
    hosts: int


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """A model of so many parameters on hosts."""

    rows: int
    ram_only_bytes: int
    ram_only_hosts: int
    tiered_ram_bytes: int
    tiered_disk_bytes: int
    tiered_hosts: int
    lines: tuple[PlanLine, ...]
    variants: tuple[TableVariant, ...]  # the same parameters in other kinds of rows
    assumptions: tuple[str, ...]


def parse_count(text: str) -> int:
    """ "100T" parameters; ConfigError with a remedy where it is no number."""
    found = _COUNT.fullmatch(text)
    number = 0 if found is None else round(float(found[1]) * _FACTORS[found[2].upper()])
    if not 1 <= number <= 10**18:
        raise ConfigError(
            f"--parameters {text}: must be a number from 1 to 10^18, with K, M, B or T where it is large, as 100T"
        )
    return number


def plan_parameters(
    parameters: int, table: Table, cluster: HostCluster | None = None, values: Values = "fp16-scaled"
) -> ParameterPlan:
    """RAM alone, and RAM with disk, for rows of the settings of a table."""
    if parameters < table.dim:
        raise ConfigError(f"--parameters {parameters:,}: is less than one row of --dim {table.dim}: give more")
    said: list[str] = []
    hosts = _hosts(cluster or HostCluster(), said)
    layout, rows = RowLayout.of(table), -(-parameters // table.dim)
    one = PlanLine("rows", f"{rows:,}", f"{parameters:,} parameters / dim {table.dim}")
    ram_only, ram_hosts, ram_lines = _in_ram(rows, layout, hosts)
    tiered_ram, tiered_disk, tiered_hosts, tiered_lines = _in_tiers(rows, layout, hosts)
    network = _network(table.dim, values, tiered_hosts, hosts, layout)
    said.append(f"tables fill at most {100 * RAM_SHARE:.0f} % of a host's RAM")
    said.append(f"a sample has {CRITEO_FEATURES} ids, those of Criteo; PERSIA does not say how many it adds")
    said.append("ids are random: no two samples of a batch share one")
    if (parameters, table.dim) == (100 * 10**12, 128):
        said.append(
            f"PERSIA's own test used {PERSIA_HOSTS} hosts with {PERSIA_HOST_RAM} of RAM each, {PERSIA_HOSTS * 12} TB: "
            f"{PERSIA_HOSTS * 12e12 / rows:.0f} bytes a row"
        )
    variants = tuple(_variant(rows, table.dim, hosts.usable, *kind) for kind in VARIANTS)
    lines = (one, *ram_lines, *tiered_lines, *network)
    return ParameterPlan(rows, ram_only, ram_hosts, tiered_ram, tiered_disk, tiered_hosts, lines, variants, tuple(said))


@dataclass(frozen=True, slots=True)
class _Hosts:
    """One host."""

    ram: int
    disk: int
    disk_read: int
    network_gbps: float

    @property
    def usable(self) -> int:
        """RAM for tables."""
        return round(self.ram * RAM_SHARE)

    @property
    def usable_text(self) -> str:
        return f"({size_text(self.ram)} x {RAM_SHARE:g})"


def _hosts(given: HostCluster, said: list[str]) -> _Hosts:
    ram = _stated("ram", given.ram, PERSIA_HOST_RAM, "an embedding parameter server of PERSIA (section 6)", said)
    disk = _stated("disk", given.disk, ASSUMED_DISK, "assumed, no paper states it", said)
    read = _stated("disk_read", given.disk_read, ASSUMED_DISK_READ, "a second, assumed, no paper states it", said)
    if given.network_gbps is None:
        said.append(f"network_gbps = {PERSIA_NETWORK_GBPS:g}: of Kwai's cluster (PERSIA section 6)")
    return _Hosts(ram, disk, read, given.network_gbps or PERSIA_NETWORK_GBPS)


def _in_ram(rows: int, layout: RowLayout, hosts: _Hosts) -> tuple[int, int, list[PlanLine]]:
    per_row = bytes_per_row(layout)
    size, shards = round(rows * per_row), math.ceil(rows / ROWS_PER_SHARD_MOST)
    number = math.ceil(size / hosts.usable)
    lines = [
        PlanLine("bytes of a row in RAM", f"{per_row:.1f}", _row_arithmetic(layout, per_row)),
        PlanLine("RAM, all rows", size_text(size), f"{rows:,} x {per_row:.1f}"),
        PlanLine("hosts, RAM alone", f"{number:,}", f"{size_text(size)} / {hosts.usable_text}"),
        PlanLine(
            "shards at least, RAM alone",
            f"{shards:,}",
            f"{rows:,} rows / {ROWS_PER_SHARD_MOST:,} rows of a shard at most",
        ),
    ]
    return size, number, lines


def _in_tiers(rows: int, layout: RowLayout, hosts: _Hosts) -> tuple[int, int, int, list[PlanLine]]:
    per_row, hot = bytes_per_row(layout), math.ceil(rows * HOT_SHARE)
    disk, slots = file_bytes(layout, rows), FILE_FACTOR * rows
    shards = math.ceil(slots / (FILE_SLOTS_MOST - 1))
    of_shard, place = memory_for(math.ceil(hot * per_row / shards), math.ceil(slots / shards))
    ram = shards * of_shard.whole
    number = max(math.ceil(ram / hosts.usable), math.ceil(disk / hosts.disk))
    by_ram, by_disk = f"{size_text(ram)} / {hosts.usable_text}", f"{size_text(disk)} / {size_text(hosts.disk)}"
    buffers = shards * (of_shard.index_cache + of_shard.write_behind)
    index = (
        f"{index_bytes(place, 1)} bytes of index x {slots:,} slots of files, the index {WHERE[place]}, "
        f"+ {size_text(buffers)} of buffers"
    )
    copies = f"{FILE_FACTOR} x {rows:,} slots: rows in RAM keep copies on disk, newer copies supersede older ones"
    lines = [
        PlanLine("rows in RAM of the two tiers", f"{hot:,}", f"{HOT_SHARE:g} of all, assumed"),
        PlanLine("bytes of a row on disk", f"{layout.disk_bytes}", _slot_arithmetic(layout)),
        PlanLine("disk", size_text(disk), f"{copies}; x {layout.disk_bytes}"),
        PlanLine("RAM of the two tiers", size_text(ram), f"{hot:,} x {per_row:.1f} + {index}"),
        PlanLine("hosts, RAM and disk", f"{number:,}", f"the larger of {by_ram} and {by_disk}"),
        PlanLine(
            "shards at least, RAM and disk",
            f"{shards:,}",
            f"{FILE_FACTOR} x {rows:,} slots / fewer than 2^32 of a file",
        ),
    ]
    return ram, disk, number, lines


def _variant(
    rows: int, dim: int, usable: int, value_type: Literal["float32", "float16"], optimizer: AnyOptimizer
) -> TableVariant:
    per_row = bytes_per_row(RowLayout.of(Table(dim=dim, type=value_type, optimizer=optimizer)))
    size = round(rows * per_row)
    return TableVariant(value_type, optimizer.name, per_row, size, math.ceil(size / usable))


def _network(dim: int, values: Values, number: int, hosts: _Hosts, layout: RowLayout) -> list[PlanLine]:
    sample, vector = sum(row_traffic(CRITEO_FEATURES, dim, values)), vector_bytes(dim, values)
    gbps, slot = hosts.network_gbps, max(DISK_READ_LEAST, layout.disk_bytes)
    by_network = number * gbps * 1e9 / 8 / sample
    by_disk = number * hosts.disk_read / (CRITEO_FEATURES * (1 - HOT_SHARE) * slot)
    ids = f"{CRITEO_FEATURES} ids x (8 out + {vector} in + {8 + vector} out), {values}"
    missed = f"({CRITEO_FEATURES} ids x {1 - HOT_SHARE:g} on disk x {slot:,} B), where all ids are equally frequent"
    dense = f"2 x 4 B x {PERSIA_DENSE:,} parameters (PERSIA table 1) for each trainer"
    return [
        PlanLine("network of a sample", size_text(round(sample)), ids),
        PlanLine("samples/s, network", f"{by_network:,.0f}", f"{number:,} hosts x {gbps:g} Gb/s / 8 / {sample:,.0f} B"),
        PlanLine("samples/s, disk", f"{by_disk:,.0f}", f"{number:,} hosts x {size_text(hosts.disk_read)}/s / {missed}"),
        PlanLine("dense gradients of a step", size_text(2 * 4 * PERSIA_DENSE), dense),
    ]


def _stated(name: str, given: str | None, otherwise: str, source: str, said: list[str]) -> int:
    if given is None:
        said.append(f"{name} = {otherwise}: {source}")
    return parse_bytes(given or otherwise)


def _row_arithmetic(layout: RowLayout, per_row: float) -> str:
    parts = (
        f"8 key + 4 x {layout.fields + layout.links} fields + {layout.value_bytes} value + {layout.state_bytes} state"
    )
    return f"{parts}, rounded up to {layout.ram_bytes}, + {per_row - layout.ram_bytes:.1f} index"


def _slot_arithmetic(layout: RowLayout) -> str:
    parts = (
        f"{SLOT_HEADER} header + 4 x {layout.fields} fields + {layout.value_bytes} value + {layout.state_bytes} state"
    )
    return f"{parts}, rounded up to 8"
