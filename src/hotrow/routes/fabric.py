"""The links between the GPUs of a node, and the way over its host. Rates are in GB/s (1e9 bytes) per direction."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hotrow.errors import ConfigError, InputError

Pair: TypeAlias = tuple[int, int]  # source and target
Sends: TypeAlias = Mapping[Pair, int]  # bytes by pair

GB = 1e9
PCIE_GBPS = 15.75  # PCIe 3.0 x16
SOCKET_GBPS = 19.2  # one QPI link of 9.6 GT/s
MOST_GPUS = 32  # the search for middlemen is for the GPUs of one host


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The way of bytes over PCIe switches and processors: which switch and socket each GPU is attached to.

    A switch has one uplink of the rate of a GPU's own lanes. GPUs of one switch exchange bytes without the uplink.
    """

    sockets: tuple[int, ...]
    switches: tuple[int, ...]
    pcie_gbps: float = PCIE_GBPS
    socket_gbps: float = SOCKET_GBPS
    staged: bool = True  # whole copies in memory of the host, one after the other; False: in pieces, all at once

    def __post_init__(self) -> None:
        for name in ("pcie_gbps", "socket_gbps"):
            check_rate(f"HostPaths.{name}", getattr(self, name))
        if len(self.sockets) != len(self.switches):
            raise InputError(
                f"HostPaths.switches: has {len(self.switches)} GPUs and sockets {len(self.sockets)}: give both for all"
            )
        homes: dict[int, int] = {}
        for switch, socket in zip(self.switches, self.sockets, strict=True):
            if homes.setdefault(switch, socket) != socket:
                raise InputError(
                    f"HostPaths.switches: switch {switch} is on sockets {homes[switch]} and {socket}: "
                    "number the switches of all sockets apart"
                )

    def seconds(self, sends: Sends) -> float:
        """An exchange of these bytes, all pairs at once."""
        up: Counter[str] = Counter()
        across: Counter[Pair] = Counter()
        down: Counter[str] = Counter()
        for (source, target), size in sends.items():
            up[f"GPU {source}"] += size
            down[f"GPU {target}"] += size
            if self.switches[source] != self.switches[target]:
                up[f"switch {self.switches[source]}"] += size
                down[f"switch {self.switches[target]}"] += size
            if self.sockets[source] != self.sockets[target]:
                across[self.sockets[source], self.sockets[target]] += size
        lanes, link = self.pcie_gbps * GB, self.socket_gbps * GB
        parts = _most(up.values()) / lanes, _most(across.values()) / link, _most(down.values()) / lanes
        return sum(parts) if self.staged else max(parts)


@dataclass(frozen=True, slots=True)
class Fabric:
    """GPUs and the links between them; 0 is no link. Links are independent and have their rate in both directions."""

    links: tuple[tuple[float, ...], ...]  # [source][target]
    host: HostPaths | None = None
    port_gbps: float | None = None  # what a GPU sends, or receives, over all its links: NVSwitch

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", tuple(tuple(row) for row in self.links))
        _check_links(self.links)
        if self.port_gbps is not None:
            check_rate("Fabric.port_gbps", self.port_gbps)
        if self.host is not None and len(self.host.sockets) != self.gpus:
            raise InputError(
                f"Fabric.host: has sockets of {len(self.host.sockets)} GPUs and links have {self.gpus}: give one each"
            )

    @property
    def gpus(self) -> int:
        """How many there are."""
        return len(self.links)

    def linked(self, pair: Pair) -> bool:
        """Whether a source has a link to a target."""
        return self.links[pair[0]][pair[1]] > 0

    def candidates(self, pair: Pair) -> tuple[int, ...]:
        """GPUs with a link from the source and one to the target."""
        source, target = pair
        return tuple(
            gpu for gpu in range(self.gpus) if self.links[source][gpu] > 0 and self.links[gpu][target] > 0
        )  # neither end is one: no GPU has a link to itself

    def places(self, pair: Pair) -> tuple[int, ...]:
        """What a copy uses, as numbers into `rates`: its link, and a port at either end."""
        source, target = pair
        link, ports = source * self.gpus + target, self.gpus * self.gpus
        return (link,) if self.port_gbps is None else (link, ports + source, ports + self.gpus + target)

    def rates(self) -> list[float]:
        """Bytes a second of each link, of what each GPU sends, and of what it receives."""
        ports = [] if self.port_gbps is None else [self.port_gbps] * (2 * self.gpus)
        return [rate * GB for rate in (*(rate for row in self.links for rate in row), *ports)]

    def seconds(self, hops: Iterable[tuple[Pair, int]]) -> float:
        """Copies over links, all at once; each pair has a link."""
        loads: Counter[int] = Counter()
        for pair, size in hops:
            loads.update(dict.fromkeys(self.places(pair), size))
        rates = self.rates()
        return max((size / rates[place] for place, size in loads.items()), default=0.0)


def check_rate(field: str, value: float) -> None:
    """A rate that divides bytes."""
    if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
        raise ConfigError(f"{field}={value!r}: must be above 0, in GB/s")


def _check_links(links: tuple[tuple[float, ...], ...]) -> None:
    gpus = len(links)
    if not 1 <= gpus <= MOST_GPUS:
        raise InputError(f"links: has {gpus} rows: give one for each GPU of a host, 1 to {MOST_GPUS}")
    for source, row in enumerate(links):
        if len(row) != gpus:
            raise InputError(f"links[{source}]: has {len(row)} rates and the matrix {gpus} rows: it must be square")
        for target, rate in enumerate(row):
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not math.isfinite(rate) or rate < 0:
                raise InputError(
                    f"links[{source}][{target}]={rate!r}: must be a rate in GB/s, 0 where there is no link"
                )
        if row[source]:
            raise InputError(f"links[{source}][{source}]={row[source]:g}: a GPU has no link to itself: write 0")


def _most(sizes: Iterable[int]) -> int:
    return max(sizes, default=0)
