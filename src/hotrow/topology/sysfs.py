"""Read the topology of a host from /sys, or from a copy of it. A file that is missing makes the answer shorter."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hotrow.errors import InputError
from hotrow.sizes import size_text
from hotrow.topology.machine import CacheLevel, Core, Cpus, HostDevice, NumaNode, Topology, parse_cpus

SYS = Path("/sys")
SECTOR = 512  # bytes, in which the kernel counts the size of every disk
DISPLAY = "0x03"  # the PCI class of GPUs, and of the plain display controllers of servers
GPU_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}


def read_topology(root: Path | None = None, allowed: Cpus | None = None) -> Topology:
    """The host of this process; of a copy of /sys under `root`, every processor there counts as allowed."""
    where = SYS if root is None else root
    if not (where / "devices/system/cpu").is_dir():
        raise InputError(
            f"{where}: there is no devices/system/cpu in it: give /sys of a Linux machine, or a copy of it"
        )
    cores = _cores(where)
    nodes = _nodes(where) or (NumaNode(0, tuple(sorted(cpu for core in cores for cpu in core.cpus)), 0),)
    of_cpu = {cpu: node.number for node in nodes for cpu in node.cpus}
    placed = tuple(Core(core.socket, of_cpu.get(core.cpus[0], 0), core.cpus) for core in cores)
    there = {cpu for core in cores for cpu in core.cpus}
    if allowed is None:
        allowed = tuple(sorted(there if root is not None else there & os.sched_getaffinity(0)))
    devices = (*_gpus(where), *_disks(where), *_nics(where))
    return Topology(nodes, placed, _caches(where), devices, allowed)


def _cores(root: Path) -> list[Core]:
    """Physical cores; their node is set later."""
    folder = root / "devices/system/cpu"
    online = _text(folder / "online")
    numbers = parse_cpus(online) if online else tuple(sorted(int(each.name[3:]) for each in folder.glob("cpu[0-9]*")))
    found: dict[Cpus, Core] = {}
    for cpu in numbers:
        about = folder / f"cpu{cpu}/topology"
        siblings = parse_cpus(_text(about / "thread_siblings_list") or str(cpu))
        siblings = tuple(each for each in siblings if each in numbers) or (cpu,)
        socket = max(0, int(_text(about / "physical_package_id") or 0))  # -1 where a virtual machine has none
        found.setdefault(siblings, Core(socket, 0, siblings))
    return sorted(found.values(), key=lambda core: core.cpus)


def _nodes(root: Path) -> tuple[NumaNode, ...]:
    found = []
    for folder in (root / "devices/system/node").glob("node[0-9]*"):
        cpus = parse_cpus(_text(folder / "cpulist") or "")
        distances = tuple(map(int, (_text(folder / "distance") or "").split()))
        found.append(NumaNode(int(folder.name[4:]), cpus, _memory(folder / "meminfo"), distances))
    return tuple(sorted(found, key=lambda node: node.number))


def _memory(path: Path) -> int:
    for line in (_text(path) or "").splitlines():
        if "MemTotal:" in line:
            return int(line.split()[-2]) * 1024
    return 0


def _caches(root: Path) -> tuple[CacheLevel, ...]:
    seen = set()
    for index in (root / "devices/system/cpu").glob("cpu[0-9]*/cache/index[0-9]*"):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        if level and kind and size:
            seen.add((int(level), kind, _cache_bytes(size), parse_cpus(_text(index / "shared_cpu_list") or "")))
    counted = Counter((level, kind, size, len(shared)) for level, kind, size, shared in seen)
    return tuple(
        CacheLevel(level, kind, size, instances, shared)
        for (level, kind, size, shared), instances in sorted(counted.items())
    )


def _cache_bytes(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    return int(text.rstrip("KM")) * factor


def _gpus(root: Path) -> Iterator[HostDevice]:
    """Display controllers of vendors that make accelerators: a server's own display is of another vendor."""
    folder = root / "bus/pci/devices"
    for device in sorted(folder.iterdir()) if folder.is_dir() else ():
        vendor = GPU_VENDORS.get(_text(device / "vendor") or "")
        if vendor is not None and (_text(device / "class") or "").startswith(DISPLAY):
            yield HostDevice("GPU", device.name, _node_of(device, root), vendor)


def _disks(root: Path) -> Iterator[HostDevice]:
    folder = root / "block"
    for disk in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (disk / "device").exists():  # others are made of disks, or of memory
            size = size_text(int(_text(disk / "size") or 0) * SECTOR)
            yield HostDevice("disk", disk.name, _node_of(disk, root), size, fast=disk.name.startswith("nvme"))


def _nics(root: Path) -> Iterator[HostDevice]:
    folder = root / "class/net"
    for nic in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (nic / "device").exists():
            speed = _text(nic / "speed") or ""  # in Mb/s; -1 or an error where there is no link
            known = speed.isdecimal() and int(speed) > 0
            up = (_text(nic / "operstate") or "unknown") != "down"
            detail = f"{int(speed) / 1000:g} Gb/s" if known else ("up" if up else "down")
            yield HostDevice("NIC", nic.name, _node_of(nic, root), detail, fast=up)


def _node_of(device: Path, root: Path) -> int | None:
    """The `numa_node` of the nearest part of the path to it, as of the PCI card; -1 there is unknown."""
    place, top = device.resolve(), root.resolve()
    while place != top and place != place.parent:
        if (found := _text(place / "numa_node")) is not None:
            return int(found) if int(found) >= 0 else None
        if (found := _text(place / "device/numa_node")) is not None:
            return int(found) if int(found) >= 0 else None
        place = place.parent
    return None


def _text(path: Path) -> str | None:
    """None where there is no such file, or where the driver refuses to read it."""
    with suppress(OSError):
        return path.read_text().strip()
    return None
