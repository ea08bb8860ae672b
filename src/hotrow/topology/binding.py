"""Which threads of a run use which cores of a host. Pure: a topology and numbers of threads in, a plan out.

Of the rules of the hierarchical parameter server (section 3.1): data is read near the network interface, threads that
compute are near their GPU, and memory of the tables is interleaved over all nodes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hotrow.topology.machine import Core, Cpus, HostDevice, Topology, cpus_text

ThreadRole = Literal["reader", "trainer", "store"]


@dataclass(frozen=True, slots=True)
class ThreadCounts:
    """The threads of a run on one host."""

    trainers: int = 1
    store: int = 1  # that look up and update rows
    readers: int = 1  # that read and decode data


@dataclass(frozen=True, slots=True)
class Binding:
    """The processors of one thread, or of all threads of a process."""

    role: ThreadRole
    number: int
    cpus: Cpus
    node: int
    reason: str

    @property
    def name(self) -> str:
        """The role with its number."""
        return f"{self.role} {self.number}"


@dataclass(frozen=True, slots=True)
class BindingPlan:
    """What is bound where; nothing where all memory is equally near to all cores."""

    summary: str
    bindings: tuple[Binding, ...] = ()
    interleave: tuple[int, ...] = ()  # nodes that pages of the tables go to in turn
    unbound: tuple[str, ...] = ()  # what stays free, each with its reason

    def of(self, role: ThreadRole, number: int = 0) -> Binding | None:
        """The binding of a thread. Threads beyond the planned ones take those of the role in turn."""
        mine = [binding for binding in self.bindings if binding.role == role]
        return mine[number % len(mine)] if mine else None


def plan_binding(topology: Topology, threads: ThreadCounts) -> BindingPlan:
    """Bind every thread near its device, and spread the others over the nodes."""
    nodes = topology.usable_nodes
    if len(nodes) < 2:
        return BindingPlan(_one_node(topology, nodes))
    planner = _Planner(topology, nodes)
    bindings = (
        *planner.readers(threads.readers),
        *planner.trainers(threads.trainers),
        *planner.store(threads.store),
    )
    summary = (
        f"{len(nodes)} NUMA nodes: {len(bindings)} threads are bound, and memory of the tables is interleaved over "
        f"nodes {cpus_text(nodes)}"
    )
    return BindingPlan(summary, bindings, nodes, tuple(planner.unbound))


def _one_node(topology: Topology, nodes: Sequence[int]) -> str:
    if len(topology.nodes) > 1:
        having = f"only node {nodes[0]} has" if nodes else "no node has"
        return (
            f"{len(topology.nodes)} NUMA nodes, and {having} both memory and processors that this process may use "
            f"({cpus_text(topology.allowed) or 'none'}): nothing is bound"
        )
    return "one NUMA node: all memory and all devices are equally near to every core, so nothing is bound"


class _Planner:
    """The cores of each node that this process may use."""

    def __init__(self, topology: Topology, nodes: Sequence[int]) -> None:
        self._topology, self._nodes = topology, nodes
        self._cpus = {node: _cpus(topology.cores_of(node)) for node in nodes}
        self.unbound: list[str] = []

    def readers(self, threads: int) -> Iterator[Binding]:
        """All cores of the node of the network interface: decoding needs more than one."""
        nic = self._nic()
        node = None if nic is None else nic.node
        for number in range(threads):
            if nic is not None and node in self._cpus:
                reason = f"data arrives by {nic.name}, which is attached to node {node}"
                yield Binding("reader", number, self._cpus[node], node, reason)
            else:
                where = self._nodes[number % len(self._nodes)]
                reason = "no network interface names its node: readers are dealt to the nodes in turn"
                yield Binding("reader", number, self._cpus[where], where, reason)

    def trainers(self, threads: int) -> Iterator[Binding]:
        """All cores of the node of their GPU."""
        gpus = [gpu for gpu in self._topology.of_kind("GPU") if gpu.node in self._cpus]
        if not gpus:
            self.unbound += [
                f"GPU {gpu.name}: its node is unknown or has no processor for this process"
                for gpu in self._topology.of_kind("GPU")
            ]
        for number in range(threads):
            if gpus:
                gpu = gpus[number % len(gpus)]
                assert gpu.node is not None
                yield Binding(
                    "trainer",
                    number,
                    self._cpus[gpu.node],
                    gpu.node,
                    f"GPU {gpu.name} is attached to node {gpu.node}",
                )
            else:
                node = self._nodes[number % len(self._nodes)]
                yield Binding(
                    "trainer",
                    number,
                    self._cpus[node],
                    node,
                    "no GPU names its node: trainers are dealt to the nodes in turn",
                )

    def store(self, threads: int) -> Iterator[Binding]:
        """Spread over the nodes, as the rows are."""
        for number in range(threads):
            node = self._nodes[number % len(self._nodes)]
            reason = f"rows are interleaved over {len(self._nodes)} nodes, so threads are dealt to them in turn"
            yield Binding("store", number, self._cpus[node], node, reason)

    def _nic(self) -> HostDevice | None:
        """The fastest interface that is up and names its node."""
        known = [nic for nic in self._topology.of_kind("NIC") if nic.fast and nic.node in self._cpus]
        return max(known, key=_speed, default=None)


def _cpus(cores: Iterable[Core]) -> Cpus:
    return tuple(sorted(cpu for core in cores for cpu in core.cpus))


def _speed(nic: HostDevice) -> float:
    number = nic.detail.partition(" ")[0]
    return float(number) if number.replace(".", "", 1).isdecimal() else 0.0
