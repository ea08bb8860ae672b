"""Trees as /sys has them, of several kinds of hosts."""

from dataclasses import dataclass, field
from pathlib import Path

from hotrow.topology.machine import cpus_text


@dataclass
class MadeHost:
    """`nodes` has the cores of each NUMA node, each core with its processors; devices name their node."""

    nodes: list[list[tuple[int, ...]]]
    gpus: list[int] = field(default_factory=list)
    disks: dict[str, int] = field(default_factory=dict)
    nics: dict[str, tuple[int, str]] = field(default_factory=dict)  # node and speed in Mb/s
    memory_kb: dict[int, int] = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        cpus = [cpu for cores in self.nodes for core in cores for cpu in core]
        put(root / "devices/system/cpu/online", cpus_text(cpus))
        for node, cores in enumerate(self.nodes):
            mine = [cpu for core in cores for cpu in core]
            folder = root / f"devices/system/node/node{node}"
            put(folder / "cpulist", cpus_text(mine))
            put(
                folder / "meminfo",
                f"Node {node} MemTotal: {self.memory_kb.get(node, 64 << 20)} kB\nNode {node} MemFree: 1 kB",
            )
            put(folder / "distance", " ".join("10" if other == node else "21" for other in range(len(self.nodes))))
            for core in cores:
                for cpu in core:
                    put_cpu(root / f"devices/system/cpu/cpu{cpu}", node, core, mine)
        for place, node in enumerate(self.gpus):
            device = pci(root, f"0000:{place + 16:02x}:00.0", node, "0x030200", "0x10de")
            link(root / "bus/pci/devices" / device.name, device)
        display = pci(root, "0000:03:00.0", 0, "0x030000", "0x1a03")  # the display of a server's own controller
        link(root / "bus/pci/devices" / display.name, display)
        for place, (name, node) in enumerate(self.disks.items()):
            self._disk(root, place, name, node)
        for place, (name, (node, speed)) in enumerate(self.nics.items()):
            device = pci(root, f"0000:{place + 96:02x}:00.0", node, "0x020000", "0x15b3")
            put(device / f"net/{name}/speed", speed)
            put(device / f"net/{name}/operstate", "up" if int(speed) > 0 else "down")
            link(device / f"net/{name}/device", device)
            link(root / "class/net" / name, device / "net" / name)
        put(root / "class/net/lo/operstate", "unknown")  # no device behind it
        return root

    def _disk(self, root: Path, place: int, name: str, node: int) -> None:
        device = pci(root, f"0000:{place + 64:02x}:00.0", node, "0x010802", "0x144d")
        disk = device / f"nvme/nvme{place}/{name}"
        put(disk / "size", str(2 * 10**12 // 512))
        link(disk / "device", device / f"nvme/nvme{place}")
        link(root / "block" / name, disk)
        put(disk / f"{name}p1/partition", "1")
        link(root / f"dev/block/259:{2 * place}", disk)
        link(root / f"dev/block/259:{2 * place + 1}", disk / f"{name}p1")


def put_cpu(folder: Path, node: int, core: tuple[int, ...], of_node: list[int]) -> None:
    put(folder / "topology/physical_package_id", str(node))
    put(folder / "topology/thread_siblings_list", cpus_text(core))
    for index, (level, kind, size, shared) in enumerate(
        [("1", "Data", "32K", core), ("2", "Unified", "1024K", core), ("3", "Unified", "32M", of_node)]
    ):
        cache = folder / f"cache/index{index}"
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", cpus_text(shared))):
            put(cache / name, text)


def pci(root: Path, address: str, node: int, kind: str, vendor: str) -> Path:
    device = root / "devices/pci0000:00" / address
    put(device / "numa_node", str(node))
    put(device / "class", kind)
    put(device / "vendor", vendor)
    return device


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target.absolute())


def smt(first: int, cores: int, total: int) -> list[tuple[int, ...]]:
    """Cores with two processors each, numbered as Linux does: first all cores, then their siblings."""
    return [(cpu, cpu + total) for cpu in range(first, first + cores)]


ONE_NODE = MadeHost([[(0,), (1,)]], disks={"nvme0n1": 0}, nics={"eth0": (0, "10000")})
TWO_SOCKETS = MadeHost(
    [smt(0, 8, 16), smt(8, 8, 16)],
    gpus=[0, 1],
    disks={"nvme0n1": 1, "nvme1n1": 1},
    nics={"eth0": (0, "25000"), "eth1": (1, "-1")},
)
# The host of the paper's figure 1: four sockets, 8 GPUs on the first two, NVMe disks on the other two.
FOUR_SOCKETS = MadeHost(
    [smt(12 * node, 12, 48) for node in range(4)],
    gpus=[0, 0, 0, 0, 1, 1, 1, 1],
    disks={f"nvme{place}n1": 2 + place // 4 for place in range(8)},
    nics={"eth0": (0, "100000")},
)
TWO_CORES = MadeHost([[(0,)], [(1,)]], gpus=[1], nics={"eth0": (0, "1000")})  # a node for each core of a small machine
