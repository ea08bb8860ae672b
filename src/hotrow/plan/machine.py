"""This machine as one host of a plan: what a `[cluster]` section leaves out."""

import shutil
from pathlib import Path

from hotrow.obs.machine import cores, memory_bytes
from hotrow.plan.hosts import HostCluster, KnownHosts
from hotrow.sizes import parse_bytes, size_text
from hotrow.topology.machine import Topology
from hotrow.topology.sysfs import read_topology

NETWORK_GBPS = 10.0  # assumed where no interface tells its speed
DISK_READ = 2_000_000_000  # bytes a second of random direct reads, assumed: the order of one NVMe disk on PCIe 3
BITS = 8


def known_hosts(given: HostCluster, folder: Path = Path()) -> KnownHosts:
    """Fill in what is left out, and say where each value comes from."""
    said: list[str] = []
    topology = read_topology()
    return KnownHosts(
        hosts=given.hosts,
        ram_bytes=_size(given.ram, memory_bytes(), "cluster.ram", "memory of this machine", said),
        disk_bytes=_size(given.disk, shutil.disk_usage(folder).free, "cluster.disk", "free on the disk here", said),
        disk_read_bytes=_size(given.disk_read, DISK_READ, "cluster.disk_read", "a second, assumed, not measured", said),
        cores=_number(given.cores, cores(), "cluster.cores", said),
        gpus=_number(given.gpus, len(topology.of_kind("GPU")), "cluster.gpus", said),
        network_bytes=_network(given, topology, said) * 1e9 / BITS,
        slowest=given.slowest,
        assumptions=tuple(said),
    )


def _size(given: str | None, here: int, name: str, source: str, said: list[str]) -> int:
    if given is not None:
        return parse_bytes(given)
    said.append(f"{name} is left out: {size_text(here)}, {source}")
    return here


def _number(given: int | None, here: int, name: str, said: list[str]) -> int:
    if given is not None:
        return given
    said.append(f"{name} is left out: {here}, as this machine has")
    return here


def _network(given: HostCluster, topology: Topology, said: list[str]) -> float:
    if given.network_gbps is not None:
        return given.network_gbps
    speeds = [float(nic.detail.split()[0]) for nic in topology.of_kind("NIC") if nic.detail.endswith("Gb/s")]
    source = "the fastest interface of this machine" if speeds else "assumed: no interface here tells its speed"
    found = max(speeds, default=NETWORK_GBPS)
    said.append(f"cluster.network_gbps is left out: {found:g} Gb/s, {source}")
    return found
