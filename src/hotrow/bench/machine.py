"""Where a result was measured: processor, memory, kernel, versions, commit."""

import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hotrow import _native
from hotrow.bench.commit import commit
from hotrow.obs.machine import available_bytes, cores, cpu, memory_bytes, package_version

__all__ = ["available_bytes", "provenance"]

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SHARED_HUGE_PAGES = HUGE_PAGES.with_name("shmem_enabled")


def provenance(program: str, peers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What every file of figures says of where they come from.

    `program` stands before the command's arguments; `peers` are further distributions, by their key in `versions`.
    """
    return {
        "command": shlex.join([*program.split(), *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "isa": isa(),
        "versions": versions(peers or {}),
    }


def machine() -> dict[str, str | int | float]:
    """What the figures depend on, in words that a table can show."""
    return {
        "cpu": cpu(),
        "cores": cores(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        "kernel": platform.release(),
        "huge_pages": HUGE_PAGES.read_text().strip() if HUGE_PAGES.exists() else "none",
        "shared_huge_pages": SHARED_HUGE_PAGES.read_text().strip() if SHARED_HUGE_PAGES.exists() else "none",
        "architecture": platform.machine(),
    }


def versions(peers: Mapping[str, str]) -> dict[str, str | None]:
    """The software that took part; None where a package is missing."""
    packages = {name: name for name in ("hotrow", "torch", "numpy")} | dict(peers)
    found = {name: package_version(package) for name, package in packages.items()}
    return {"python": platform.python_version(), **found}


def isa() -> str:
    """The instruction set our kernels use here."""
    return _native.isa()
