"""What a host is made of: nodes, cores, caches and devices, as plain values. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hotrow.errors import InputError

Cpus: TypeAlias = tuple[int, ...]  # logical processors, in rising order
DeviceKind = Literal["GPU", "disk", "NIC"]


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core. Its processors are SMT siblings."""

    socket: int
    node: int
    cpus: Cpus


@dataclass(frozen=True, slots=True)
class NumaNode:
    """Processors and memory that are near to each other."""

    number: int
    cpus: Cpus
    memory_bytes: int
    distances: tuple[int, ...] = ()  # to the nodes in their order; 10 is its own memory


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """Processor caches of one level and size."""

    level: int
    kind: str  # Data, Instruction or Unified
    size_bytes: int
    instances: int
    shared_by: int  # processors


@dataclass(frozen=True, slots=True)
class HostDevice:
    """A GPU, a disk or a network interface."""

    kind: DeviceKind
    name: str  # 0000:3b:00.0, nvme0n1, eth0
    node: int | None  # None: the system does not say
    detail: str = ""
    fast: bool = True  # a disk: NVMe; a network interface: its link is up


@dataclass(frozen=True, slots=True)
class Topology:
    """One host."""

    nodes: tuple[NumaNode, ...]
    cores: tuple[Core, ...]
    caches: tuple[CacheLevel, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    allowed: Cpus = ()  # processors that this process may use

    @property
    def sockets(self) -> int:
        """How many there are."""
        return len({core.socket for core in self.cores})

    def of_kind(self, kind: DeviceKind) -> tuple[HostDevice, ...]:
        """Devices of a kind, in the order of the system."""
        return tuple(device for device in self.devices if device.kind == kind)

    def cores_of(self, node: int) -> tuple[Core, ...]:
        """Cores of a node that this process may use, with the processors it may use."""
        allowed = frozenset(self.allowed)
        mine = ((core, tuple(cpu for cpu in core.cpus if cpu in allowed)) for core in self.cores if core.node == node)
        return tuple(Core(core.socket, core.node, cpus) for core, cpus in mine if cpus)

    @property
    def usable_nodes(self) -> tuple[int, ...]:
        """Nodes with memory and with processors that this process may use. A single node has all memory."""
        with_memory = [node for node in self.nodes if node.memory_bytes or len(self.nodes) == 1]
        return tuple(node.number for node in with_memory if self.cores_of(node.number))


def parse_cpus(text: str) -> Cpus:
    """ "0-3,8" as the kernel writes sets of processors and nodes."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"{text.strip()!r}: is no list of processors as the kernel writes them (0-3,8)")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def cpus_text(cpus: Iterable[int]) -> str:
    """The same way back."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
