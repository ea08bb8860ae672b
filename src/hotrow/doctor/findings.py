"""What readings mean: for each part what is there, what it costs where it is missing, and how to mend it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hotrow.doctor.readings import Readings
from hotrow.sizes import size_text

TORCH_MIN = (2, 6)
RAY_MIN = (2, 52)  # the first with tokens
SHARED_MEMORY_MIN = 1 << 30  # less holds no table worth keeping; Docker gives 64 MB
OPEN_FILES_MIN = 4096  # a login shell has 1,024; the cluster files that come with Ray set 65,536
AVX2 = {"avx2", "fma", "bmi2", "f16c"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"  # an optional part is missing
    SLOW = "slow"  # works, below what the machine could do
    FAULT = "fault"  # Hotrow cannot be used


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    part: str
    level: Level
    found: str
    cost: str = ""  # empty where the level is ok
    remedy: str = ""


def findings(readings: Readings) -> list[Finding]:
    """Everything, in the order of the report."""
    parts = (_packages, _processor, _threads, _nodes, _memory, _huge_pages, _shared_memory, _limits, _ray, _gpu)
    return [finding for part in parts for finding in part(readings)]


def usable(found: list[Finding]) -> bool:
    """Whether Hotrow runs here."""
    return all(finding.level is not Level.FAULT for finding in found)


def _packages(readings: Readings) -> Iterator[Finding]:
    for name in ("python", "hotrow", "torch", "numpy", "pyarrow"):
        module = "hotrow._native" if name == "hotrow" else name
        yield _package(name, readings.versions.get(name), readings.import_errors.get(module))


def _package(name: str, version: str | None, error: str | None) -> Finding:
    nothing_runs = "Hotrow does not run"
    if version is None:
        return Finding(name, Level.FAULT, "not installed", nothing_runs, f"pip install {name}")
    if error is not None:
        remedy = "pip install --force-reinstall --no-deps " + name
        if "HOTROW_ISA" in error:
            remedy = "unset HOTROW_ISA, or set it to plain, avx2 or avx512"
        return Finding(name, Level.FAULT, f"{version}, does not load: {error}", nothing_runs, remedy)
    if name == "torch" and _release(version) < TORCH_MIN:
        oldest = ".".join(map(str, TORCH_MIN))
        return Finding(
            name, Level.FAULT, version, f"older than {oldest}: not supported", f"pip install 'torch>={oldest}'"
        )
    return Finding(name, Level.OK, version)


def _processor(readings: Readings) -> Iterator[Finding]:
    if readings.isa is None:
        return
    best = best_isa(readings.architecture, readings.cpu_flags)
    found = f"{readings.cpu}, kernels use {readings.isa}"
    if best == readings.isa or best is None:
        plain = readings.isa == "plain"
        cost = "kernels are not vectorised by hand: slower, same results" if plain else ""
        remedy = "none: vector kernels exist for x86-64 with AVX2 or AVX-512" if plain else ""
        yield Finding("processor", Level.SLOW if plain else Level.OK, found, cost, remedy)
    else:
        cost = f"the processor has {best}: slower, same results"
        yield Finding("processor", Level.SLOW, found, cost, "unset HOTROW_ISA")


def best_isa(architecture: str, flags: frozenset[str]) -> str | None:
    """The best set of kernels for a processor; None where its flags are unknown."""
    if architecture not in ("x86_64", "AMD64"):
        return "plain"
    if not flags:
        return None
    return "avx512" if flags >= AVX512 else "avx2" if flags >= AVX2 else "plain"


def _threads(readings: Readings) -> Iterator[Finding]:
    found = f"{readings.cores} of {readings.cores_present} cores"
    if readings.threads is None:
        yield Finding("threads", Level.OK, found)
        return
    found += f", {readings.threads} threads of torch"
    if readings.threads > readings.cores:
        cost = "more threads than cores: they wait for each other"
        yield Finding("threads", Level.SLOW, found, cost, f"export OMP_NUM_THREADS={readings.cores}")
    elif readings.threads > 1 and readings.load is not None and readings.load >= readings.cores_present:
        found += f", load average {readings.load:.1f}"
        cost = "other programs use the cores: threads of torch wait for each other and may train many times slower"
        yield Finding("threads", Level.NOTE, found, cost, "run.torch_threads = 1 in the config while they run")
    else:
        yield Finding("threads", Level.OK, found)


def _nodes(readings: Readings) -> Iterator[Finding]:
    if readings.nodes == 0:
        return
    nodes = f"{readings.nodes} NUMA node{'' if readings.nodes == 1 else 's'}"
    found = f"{nodes}, {readings.sockets} socket{'' if readings.sockets == 1 else 's'}"
    if readings.nodes == 1:
        yield Finding("topology", Level.OK, f"{found}: nothing to bind")
        return
    cost = "threads that move between nodes read rows and devices of another node, which is farther away"
    remedy = "run.engine.bind_cores = true in the config; `hotrow plan topology` shows what it binds"
    yield Finding("topology", Level.NOTE, found, cost, remedy)


def _memory(readings: Readings) -> Iterator[Finding]:
    available = f", {size_text(readings.memory_available)} available" if readings.memory_available else ""
    yield Finding("memory", Level.OK, f"{size_text(readings.memory_bytes)}{available}")


def _huge_pages(readings: Readings) -> Iterator[Finding]:
    if readings.huge_pages in ("always", "madvise"):
        yield Finding("huge pages", Level.OK, f"transparent, {readings.huge_pages}")
    else:
        cost = "tables have 4 KB pages: lookups in large tables pay for page walks"
        remedy = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        if readings.huge_pages is None:
            remedy = "a Linux kernel with transparent huge pages"
        yield Finding("huge pages", Level.SLOW, f"transparent, {readings.huge_pages or 'not there'}", cost, remedy)
    yield _shared_huge_pages(readings)


def _shared_huge_pages(readings: Readings) -> Finding:
    part = "huge pages, shared"
    if readings.shared_huge_pages in ("always", "within_size", "advise", "force"):
        return Finding(part, Level.OK, f"shmem_enabled, {readings.shared_huge_pages}")
    if readings.huge_mounts and readings.huge_pages_free:
        return Finding(part, Level.OK, f"{readings.huge_pages_free:,} free in {', '.join(readings.huge_mounts)}")
    mounted = "hugetlbfs without free pages" if readings.huge_mounts else "no hugetlbfs"
    found = f"shmem_enabled, {readings.shared_huge_pages or 'not there'}; {mounted}"
    cost = "segments have 4 KB pages: a step has 0.7 to 0.9 of the speed of own memory"
    return Finding(
        part, Level.NOTE, found, cost, "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"
    )


def _shared_memory(readings: Readings) -> Iterator[Finding]:
    if readings.shared_memory_bytes is None:
        cost = "tables in segments need a directory of their own choice"
        yield Finding("shared memory", Level.NOTE, "no /dev/shm", cost, "name a directory: Segment(directory=...)")
        return
    total, free = size_text(readings.shared_memory_bytes), size_text(readings.shared_memory_free)
    found = f"/dev/shm, {free} of {total} free"
    if readings.shared_memory_free >= SHARED_MEMORY_MIN:
        yield Finding("shared memory", Level.OK, found)
        return
    full = readings.shared_memory_bytes >= SHARED_MEMORY_MIN
    remedy = "hotrow segments lists tables that lie there" if full else "docker run --shm-size=8g, or a larger tmpfs"
    cost = "tables in segments have no room, and Ray keeps objects on disk"
    yield Finding("shared memory", Level.NOTE, found, cost, remedy)


def _limits(readings: Readings) -> Iterator[Finding]:
    if readings.open_files is None or readings.open_files >= OPEN_FILES_MIN:
        limit = "unlimited" if readings.open_files is None else f"{readings.open_files:,}"
        yield Finding("open files", Level.OK, limit)
    else:
        cost = "a Ray with many roles runs out of them"
        yield Finding("open files", Level.NOTE, f"{readings.open_files:,}", cost, "ulimit -n 65536")
    locked = "unlimited" if readings.locked_bytes is None else size_text(readings.locked_bytes)
    yield Finding("locked memory", Level.OK, f"{locked}; the store locks none")


def _ray(readings: Readings) -> Iterator[Finding]:
    version, install = readings.versions.get("ray"), "pip install 'hotrow[ray]'"
    cost = "no training on a cluster (--engine ray)"
    missing = [name for name in ("ray", "pyzmq", "msgspec") if readings.versions.get(name) is None]
    if version is None or missing:
        yield Finding("ray", Level.NOTE, f"not installed: {', '.join(missing)}", cost, install)
    elif (error := readings.import_errors.get("ray")) is not None:
        yield Finding("ray", Level.NOTE, f"{version}, does not load: {error}", cost, install)
    elif _release(version) < RAY_MIN or not readings.ray_tokens:
        yield Finding("ray", Level.NOTE, f"{version}, no token authentication", cost, "pip install 'ray>=2.52'")
    else:
        yield Finding("ray", Level.OK, f"{version}, with token authentication")


def _gpu(readings: Readings) -> Iterator[Finding]:
    for gpu in readings.gpus:
        yield Finding("GPU", Level.OK, f"{gpu.name}, {size_text(gpu.memory_bytes)}, CUDA {readings.torch_cuda}")
    cost = "networks are computed on the CPU"
    if readings.gpus:
        if not readings.triton:
            one_process = f"in one process {cost}, and rows are in host memory"
            yield Finding("Triton", Level.SLOW, "not installed", one_process, "pip install 'hotrow[gpu]'")
        return
    if not readings.nvidia_driver:
        yield Finding("GPU", Level.NOTE, "none", cost, "none needed: rows are in host memory")
    elif readings.torch_cuda is None:
        remedy = "install the CUDA build of torch: docs/install.md"
        yield Finding("GPU", Level.SLOW, "a driver, but torch is the CPU build", cost, remedy)
    else:
        remedy = "compare nvidia-smi with torch.version.cuda, and look at CUDA_VISIBLE_DEVICES"
        yield Finding("GPU", Level.SLOW, f"a driver, but torch for CUDA {readings.torch_cuda} finds none", cost, remedy)


def _release(version: str) -> tuple[int, int]:
    """ "2.13.0+cpu" -> (2, 13)."""
    major, minor, *_ = version.partition("+")[0].split(".")
    return int(major), int("".join(each for each in minor if each.isdigit()) or 0)
