"""Ask the system. Every question has an answer on every machine: None where a part or a file is missing."""

import os
import platform
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hotrow.errors import InputError
from hotrow.obs.machine import available_bytes, cores, cpu, memory_bytes, package_version, proc_field
from hotrow.topology.sysfs import read_topology

PACKAGES = ("hotrow", "torch", "numpy", "pyarrow", "ray", "pyzmq", "msgspec")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
SHARED_HUGE_PAGES = HUGE_PAGES.with_name("shmem_enabled")
CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")
SHARED_MEMORY = Path("/dev/shm")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
UNLIMITED = None  # of a limit of the process


@dataclass(frozen=True)
class Gpu:
    """One device that torch can use."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Readings:
    """Everything that a finding is made from."""

    versions: dict[str, str | None]  # python and PACKAGES; None where one is not installed
    import_errors: dict[str, str]  # package -> why its import failed; only those that are installed
    cpu: str
    isa: str | None  # that the kernels use; None where the native module does not load
    cpu_flags: frozenset[str]  # empty where the system has none
    architecture: str
    cores: int  # that this process may use
    cores_present: int
    sockets: int
    nodes: int  # NUMA nodes with memory and cores that this process may use; 0 where the system has no /sys
    threads: int | None  # of torch
    load: float | None  # processes of the whole machine that run or wait for a core, mean of a minute
    memory_bytes: int
    memory_available: int
    huge_pages: str | None  # always, madvise or never; None where the kernel has none
    shared_huge_pages: str | None
    huge_mounts: tuple[str, ...]  # of hugetlbfs
    huge_pages_free: int
    shared_memory_bytes: int | None  # None: there is no such directory
    shared_memory_free: int
    open_files: int | None  # None: no limit
    locked_bytes: int | None
    ray_tokens: bool | None  # None: Ray is not installed or does not load
    nvidia_driver: bool
    torch_cuda: str | None  # that torch was built for
    gpus: tuple[Gpu, ...]
    triton: bool  # is installed


def read() -> Readings:
    """Ask everything. Imports torch, pyarrow and Ray: one that is installed and does not load is a finding."""
    errors: dict[str, str] = {}
    versions = {"python": platform.python_version()} | {name: package_version(name) for name in PACKAGES}
    loaded = {
        name: versions[name] is not None and _loads(name, errors) for name in ("numpy", "pyarrow", "torch", "ray")
    }
    _loads("hotrow._native", errors)
    shared = shutil.disk_usage(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
    return Readings(
        versions=versions,
        import_errors=errors,
        cpu=cpu(),
        isa=None if "hotrow._native" in errors else _isa(errors),
        cpu_flags=frozenset((proc_field(CPU_INFO, "flags") or "").split()),
        architecture=platform.machine(),
        cores=cores(),
        cores_present=os.cpu_count() or 1,
        **_topology(),
        threads=_torch(lambda torch: torch.get_num_threads()) if loaded["torch"] else None,
        load=_load(),
        memory_bytes=memory_bytes(),
        memory_available=available_bytes(),
        huge_pages=_chosen(HUGE_PAGES),
        shared_huge_pages=_chosen(SHARED_HUGE_PAGES),
        huge_mounts=() if errors else _huge_mounts(),
        huge_pages_free=int(proc_field(MEMORY_INFO, "HugePages_Free") or 0),
        shared_memory_bytes=None if shared is None else shared.total,
        shared_memory_free=0 if shared is None else shared.free,
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        ray_tokens=_has_tokens() if loaded["ray"] else None,
        nvidia_driver=NVIDIA_DRIVER.exists(),
        torch_cuda=_torch(lambda torch: torch.version.cuda) if loaded["torch"] else None,
        gpus=_gpus() if loaded["torch"] else (),
        triton=find_spec("triton") is not None,
    )


def _topology() -> dict[str, int]:
    try:
        found = read_topology()
    except InputError:
        return {"sockets": 1, "nodes": 0}
    return {"sockets": found.sockets, "nodes": len(found.usable_nodes)}


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _loads(module: str, errors: dict[str, str]) -> bool:
    try:
        import_module(module)
    except Exception as error:  # whatever a broken installation raises is what the user has to read
        errors[module] = f"{type(error).__name__}: {error}"
        return False
    return True


def _isa(errors: dict[str, str]) -> str | None:
    try:
        return str(import_module("hotrow._native").isa())
    except ValueError as error:  # HOTROW_ISA names none
        errors["hotrow._native"] = str(error)
        return None


def _huge_mounts() -> tuple[str, ...]:
    segments = import_module("hotrow.store.segments")  # not above: it fails with the native module
    return tuple(map(str, segments.huge_mounts()))


def _torch(ask: Callable[..., Any]) -> Any:
    return ask(import_module("torch"))


def _gpus() -> tuple[Gpu, ...]:
    cuda = import_module("torch").cuda
    if not cuda.is_available():
        return ()
    found = [cuda.get_device_properties(place) for place in range(cuda.device_count())]
    return tuple(Gpu(each.name, each.total_memory) for each in found)


def _has_tokens() -> bool:
    return hasattr(import_module("ray._raylet"), "AuthenticationTokenLoader")


def _chosen(path: Path) -> str | None:
    """ "always [madvise] never" -> madvise."""
    if not path.exists():
        return None
    return path.read_text().partition("[")[2].partition("]")[0] or None


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft
