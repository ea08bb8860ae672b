"""Memory pages of this process: how much is resident, how much of it in 2 MB pages, and how peers get those too.

Random rows in 4 kB pages cost a miss of the address cache each. Our store asks the kernel for 2 MB pages; for what
torch and FBGEMM allocate, the C library asks, but only when told so before the process starts.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

TUNABLES = "GLIBC_TUNABLES"
HUGE_MALLOC = "glibc.malloc.hugetlb=1"
REGION = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ")


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes in memory, and those among them that lie in 2 MB pages."""

    bytes: int
    huge_bytes: int

    def __sub__(self, before: "Resident") -> "Resident":
        return Resident(self.bytes - before.bytes, self.huge_bytes - before.huge_bytes)

    def __add__(self, other: "Resident") -> "Resident":
        return Resident(self.bytes + other.bytes, self.huge_bytes + other.huge_bytes)

    @property
    def huge_share(self) -> float | None:
        return min(self.huge_bytes / self.bytes, 1.0) if self.bytes > 0 else None


def peers_get_huge_pages() -> bool:
    """Whether this process was started so that the C library asks for 2 MB pages."""
    return HUGE_MALLOC in os.environ.get(TUNABLES, "").split(":")


def restart_with_huge_pages() -> None:
    """Run the same command again in place of this one, with 2 MB pages for everyone. Does not return."""
    tunables = [part for part in os.environ.get(TUNABLES, "").split(":") if part]
    environment = {**os.environ, TUNABLES: ":".join([*tunables, HUGE_MALLOC])}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def resident() -> Resident:
    """The whole process, now."""
    return _total(Path("/proc/self/smaps_rollup").read_text().splitlines())


def huge_share(*tensors: Tensor) -> float | None:
    """Which part of the memory that holds these tensors lies in 2 MB pages."""
    return sum(map(resident_of, tensors), Resident(0, 0)).huge_share


def resident_of(tensor: Tensor) -> Resident:
    """The regions of memory that hold this tensor (neighbours in the same region are counted with it)."""
    start = tensor.data_ptr()
    end = start + tensor.numel() * tensor.element_size()
    lines: list[str] = []
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if region := REGION.match(line):
            inside = int(region[1], 16) < end and int(region[2], 16) > start
        elif inside:
            lines.append(line)
    return _total(lines)


def _total(lines: list[str]) -> Resident:
    return Resident(_sum("Rss:", lines), _sum("AnonHugePages:", lines))


def _sum(field: str, lines: list[str]) -> int:
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
