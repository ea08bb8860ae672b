"""Where a result was measured: processor, memory, kernel, versions, commit."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hotrow import _native

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SHARED_HUGE_PAGES = HUGE_PAGES.with_name("shmem_enabled")


def machine() -> dict[str, str | int | float]:
    """What the figures depend on, in words that a table can show."""
    return {
        "cpu": _proc_field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_memory_kib("MemTotal") / 2**20, 1),
        "kernel": platform.release(),
        "huge_pages": HUGE_PAGES.read_text().strip() if HUGE_PAGES.exists() else "none",
        "shared_huge_pages": SHARED_HUGE_PAGES.read_text().strip() if SHARED_HUGE_PAGES.exists() else "none",
        "architecture": platform.machine(),
    }


def versions() -> dict[str, str | None]:
    """The software that took part; None where a package is missing."""
    packages = {"hotrow": "hotrow", "torch": "torch", "fbgemm": "fbgemm-gpu-cpu", "numpy": "numpy"}
    return {"python": platform.python_version(), **{name: _version(package) for name, package in packages.items()}}


def isa() -> str:
    """The instruction set our kernels use here."""
    return _native.isa()


def commit() -> str | None:
    """The commit of the sources that run, marked -dirty if they differ from it; None outside a checkout."""
    here = Path(__file__)
    tracked = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    return (
        None if tracked is None else _git(here.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    )


def available_bytes() -> int:
    """Memory that a new process could still have."""
    return _memory_kib("MemAvailable") * 1024


def _memory_kib(field: str) -> int:
    found = _proc_field("/proc/meminfo", field)
    return int(found.split()[0]) if found else 0


def _proc_field(path: str, field: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
