"""Reads the matrix that `nvidia-smi topo -m` prints: kinds of links between GPUs, and where GPUs are attached.

A pair with NVLink shows only that, so sockets come from the columns of affinity and switches from network interfaces.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hotrow.errors import InputError
from hotrow.routes.fabric import PCIE_GBPS, SOCKET_GBPS, Fabric, HostPaths

NVLINKS_MAX = 18  # of one GPU; a GPU whose row adds up to more is behind an NVSwitch
NVLINK_GBPS = 25.0  # of one link, per direction: V100, A100, H100; P100 has 20, Blackwell 50
NVLINK_KINDS = {f"NV{links}": links for links in range(1, NVLINKS_MAX + 1)}
SWITCHED = ("PIX", "PXB")  # over PCIe switches alone: a link at the rate of PCIe
OVER_HOST = ("PHB", "NODE", "SYS")  # through a processor: no link
SELF = "X"

_GPU = re.compile(r"GPU\d+")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")  # the header is underlined


@dataclass(frozen=True, slots=True)
class NvidiaTopology:
    """What the command printed, and what follows from it."""

    kinds: tuple[tuple[str, ...], ...]  # NV1 to NV18, PIX, PXB, PHB, NODE, SYS; X is the GPU itself
    sockets: tuple[int, ...]
    switches: tuple[int, ...]
    assumptions: tuple[str, ...] = ()

    @property
    def switched(self) -> bool:
        """Whether GPUs are connected by an NVSwitch: a GPU's links add up to more than it has."""
        return any(sum(NVLINK_KINDS.get(kind, 0) for kind in row) > NVLINKS_MAX for row in self.kinds)

    def fabric(
        self,
        nvlink_gbps: float = NVLINK_GBPS,
        pcie_gbps: float = PCIE_GBPS,
        socket_gbps: float = SOCKET_GBPS,
        *,
        staged: bool = True,
    ) -> Fabric:
        """Kinds as rates: links of a pair add up, PIX and PXB have the rate of PCIe, the others are no link."""
        rates = {kind: links * nvlink_gbps for kind, links in NVLINK_KINDS.items()}
        rates |= dict.fromkeys(SWITCHED, pcie_gbps) | dict.fromkeys((*OVER_HOST, SELF), 0.0)
        links = tuple(tuple(rates[kind] for kind in row) for row in self.kinds)
        port = max(max(row) for row in links) if self.switched else None
        return Fabric(links, HostPaths(self.sockets, self.switches, pcie_gbps, socket_gbps, staged), port)


def parse_nvidia_topology(text: str) -> NvidiaTopology:
    """Read the output of `nvidia-smi topo -m`, with or without network interfaces and affinities."""
    lines = [line.split() for line in _STYLE.sub("", text).splitlines()]
    start = next((number for number, line in enumerate(lines) if line and _GPU.fullmatch(line[0])), None)
    if start is None:
        raise InputError("topology: has no line that begins with GPU0: give the output of `nvidia-smi topo -m`")
    columns = lines[start]
    columns = columns[: columns.index("CPU")] if "CPU" in columns else columns  # then: CPU Affinity, NUMA Affinity
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    found = {line[0]: line[1:] for line in lines[start + 1 :] if line and _GPU.fullmatch(line[0])}
    if list(found) != gpus or columns[: len(gpus)] != gpus:
        raise InputError(f"topology: has columns of {_names(gpus)} and rows of {_names(found)}: give its whole output")
    kinds = tuple(tuple(_kinds(name, row, columns)) for name, row in found.items())
    _check_symmetric(gpus, kinds)
    assumptions: list[str] = []
    sockets = _sockets([row[len(columns) :] for row in found.values()], kinds, assumptions)
    switches = _switches(kinds, len(gpus), sockets, assumptions)
    return NvidiaTopology(tuple(row[: len(gpus)] for row in kinds), sockets, switches, tuple(assumptions))


def _kinds(name: str, row: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    if len(row) < len(columns):
        raise InputError(f"topology, row {name}: has {len(row)} of {len(columns)} columns: give the whole output")
    for column, kind in zip(columns, row, strict=False):
        known = kind in NVLINK_KINDS or kind in SWITCHED or kind in OVER_HOST
        if not known and not (kind == SELF and column == name):
            raise InputError(
                f"topology, row {name}, column {column}: {kind!r} is none of NV1 to NV{NVLINKS_MAX}, "
                f"{', '.join(SWITCHED + OVER_HOST)}: give a matrix of rates instead"
            )
        yield kind


def _check_symmetric(gpus: Sequence[str], kinds: Sequence[Sequence[str]]) -> None:
    for row, name in enumerate(gpus):
        if kinds[row][row] != SELF:
            raise InputError(f"topology, row {name}, column {name}: {kinds[row][row]!r} must be {SELF}")
        for column in range(row):
            there, back = kinds[row][column], kinds[column][row]
            if there != back:
                raise InputError(
                    f"topology: {name} to {gpus[column]} is {there} and back {back}: both must be the same, "
                    "give the output as it was printed"
                )


def _sockets(
    affinities: Sequence[Sequence[str]], kinds: Sequence[Sequence[str]], assumptions: list[str]
) -> tuple[int, ...]:
    """By NUMA affinity, else by CPU affinity, else by which pairs are SYS."""
    for column in (1, 0):
        labels = [row[column] if len(row) > column else "N/A" for row in affinities]
        if "N/A" not in labels:
            return tuple(_numbered(labels))
    assumptions.append("sockets: the text has no affinities, so GPUs are together where no pair of them is SYS")
    members: list[list[int]] = []
    for gpu, row in enumerate(kinds):
        near = (each for each in members if all(row[other] != "SYS" for other in each))
        if (home := next(near, None)) is None:
            members.append([gpu])
        else:
            home.append(gpu)
    return tuple(next(number for number, each in enumerate(members) if gpu in each) for gpu in range(len(kinds)))


def _switches(
    kinds: Sequence[Sequence[str]], gpus: int, sockets: Sequence[int], assumptions: list[str]
) -> tuple[int, ...]:
    """GPUs that are PIX or PXB to each other, or to the same network interface, share a switch."""
    switches = list(range(gpus))
    for column in range(len(kinds[0])):
        near = [gpu for gpu in range(gpus) if kinds[gpu][column] in (*SWITCHED, SELF)]
        together = {switches[gpu] for gpu in near}
        switches = [min(together) if switch in together else switch for switch in switches]
    if len(set(switches)) == gpus > 1:
        assumptions.append("switches: the text shows no GPUs that share one, so each has its own way to a processor")
    return tuple(_numbered(list(zip(switches, sockets, strict=True))))


def _numbered(labels: Sequence[object]) -> Iterator[int]:
    order = list(dict.fromkeys(labels))
    return (order.index(label) for label in labels)


def _names(names: Sequence[str] | dict[str, list[str]]) -> str:
    return ", ".join(names) or "nothing"
