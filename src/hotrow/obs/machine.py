"""The machine a program runs on: processor, memory, versions. Works where there is no /proc, with less to tell."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")


def machine() -> dict[str, str | int | None]:
    """What machine.json of a run holds."""
    return {
        "cpu": cpu(),
        "cores": cores(),
        "memory_bytes": memory_bytes(),
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "hotrow": package_version("hotrow"),
        "platform": platform.platform(),
    }


def cpu() -> str:
    """The processor's name as the system tells it."""
    return proc_field(CPU_INFO, "model name") or platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int:
    """Memory that a new process could still have; 0 where the system does not tell."""
    found = proc_field(MEMORY_INFO, "MemAvailable")
    return int(found.split()[0]) * 1024 if found else 0


def package_version(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def proc_field(path: Path, field: str) -> str | None:
    """The value of a `field: value` line; None where the file or the line is missing."""
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return None
