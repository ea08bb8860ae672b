"""Every bound of `hotrow doctor`, from both sides: findings are a pure function of readings."""

from dataclasses import replace
from typing import Any

import pytest

from hotrow.doctor import Finding, Gpu, Level, Readings, findings, usable
from hotrow.doctor.findings import AVX2, AVX512, OPEN_FILES_MIN, SHARED_MEMORY_MIN, best_isa

VERSIONS: dict[str, str | None] = {
    "python": "3.11.7", "hotrow": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6", "pyarrow": "26.0.1",
    "ray": "2.60.0", "pyzmq": "27.3.0", "msgspec": "0.22.0",
}  # fmt: skip
GOOD = Readings(
    versions=VERSIONS,
    import_errors={},
    cpu="a processor",
    isa="avx512",
    cpu_flags=frozenset(AVX512),
    architecture="x86_64",
    cores=8,
    cores_present=8,
    sockets=1,
    nodes=1,
    threads=8,
    load=0.5,
    memory_bytes=64 << 30,
    memory_available=60 << 30,
    huge_pages="madvise",
    shared_huge_pages="advise",
    huge_mounts=(),
    huge_pages_free=0,
    shared_memory_bytes=32 << 30,
    shared_memory_free=32 << 30,
    open_files=65_536,
    locked_bytes=None,
    ray_tokens=True,
    nvidia_driver=True,
    torch_cuda="13.0",
    gpus=(Gpu("a device", 80 << 30),),
    triton=True,
)


def of(part: str, **changes: Any) -> Finding:
    (finding,) = [each for each in findings(replace(GOOD, **changes)) if each.part == part]
    return finding


def test_a_busy_machine_is_to_train_with_one_thread() -> None:
    assert of("threads", load=7.9).level is Level.OK
    busy = of("threads", load=8.0)
    assert busy.level is Level.NOTE
    assert busy.found == "8 of 8 cores, 8 threads of torch, load average 8.0"
    assert busy.remedy == "run.torch_threads = 1 in the config while they run"
    assert of("threads", load=8.0, threads=1).level is Level.OK
    assert of("threads", load=8.0, cores_present=16).level is Level.OK, "the load is that of the whole machine"
    assert of("threads", load=None).level is Level.OK


def test_several_nodes_are_to_be_bound_and_one_is_not() -> None:
    assert of("topology").found == "1 NUMA node, 1 socket: nothing to bind"
    several = of("topology", nodes=2, sockets=2)
    assert (several.level, several.found) == (Level.NOTE, "2 NUMA nodes, 2 sockets")
    assert "run.engine.bind_cores = true" in several.remedy
    assert not [each for each in findings(replace(GOOD, nodes=0)) if each.part == "topology"], "no /sys"


def test_a_machine_that_has_everything_needs_no_mending() -> None:
    found = findings(GOOD)
    assert {each.level for each in found} == {Level.OK}
    assert not [each for each in found if each.cost or each.remedy]
    assert usable(found)


CASES: list[tuple[str, dict[str, Any], Level, str]] = [
    ("torch", {"versions": VERSIONS | {"torch": "2.5.1"}}, Level.FAULT, "pip install 'torch>=2.6'"),
    ("torch", {"versions": VERSIONS | {"torch": "2.6.0"}}, Level.OK, ""),
    ("torch", {"versions": VERSIONS | {"torch": "2.15.0a0+git1"}}, Level.OK, ""),
    ("torch", {"versions": VERSIONS | {"torch": None}}, Level.FAULT, "pip install torch"),
    ("numpy", {"import_errors": {"numpy": "ImportError: no"}}, Level.FAULT, "reinstall"),
    ("hotrow", {"import_errors": {"hotrow._native": "ImportError: no"}, "isa": None}, Level.FAULT, "reinstall"),
    ("hotrow", {"import_errors": {"hotrow._native": "HOTROW_ISA=sse: must be"}}, Level.FAULT, "unset HOTROW_ISA"),
    ("processor", {"isa": "avx2"}, Level.SLOW, "unset HOTROW_ISA"),
    ("processor", {"isa": "avx2", "cpu_flags": frozenset(AVX2)}, Level.OK, ""),
    ("processor", {"isa": "plain", "architecture": "aarch64", "cpu_flags": frozenset()}, Level.SLOW, "none"),
    ("processor", {"cpu_flags": frozenset()}, Level.OK, ""),
    ("threads", {"threads": 9}, Level.SLOW, "OMP_NUM_THREADS=8"),
    ("threads", {"threads": 1}, Level.OK, ""),
    ("threads", {"threads": None}, Level.OK, ""),
    ("huge pages", {"huge_pages": "never"}, Level.SLOW, "echo madvise"),
    ("huge pages", {"huge_pages": None}, Level.SLOW, "kernel"),
    ("huge pages", {"huge_pages": "always"}, Level.OK, ""),
    ("huge pages, shared", {"shared_huge_pages": "never"}, Level.NOTE, "echo advise"),
    (
        "huge pages, shared",
        {"shared_huge_pages": "never", "huge_mounts": ("/mnt/huge",), "huge_pages_free": 1},
        Level.OK,
        "",
    ),
    ("huge pages, shared", {"shared_huge_pages": None, "huge_mounts": ("/mnt/huge",)}, Level.NOTE, "echo advise"),
    ("shared memory", {"shared_memory_free": SHARED_MEMORY_MIN}, Level.OK, ""),
    ("shared memory", {"shared_memory_free": SHARED_MEMORY_MIN - 1}, Level.NOTE, "hotrow segments"),
    ("shared memory", {"shared_memory_bytes": 64 << 20, "shared_memory_free": 64 << 20}, Level.NOTE, "--shm-size"),
    ("shared memory", {"shared_memory_bytes": None}, Level.NOTE, "directory"),
    ("open files", {"open_files": OPEN_FILES_MIN}, Level.OK, ""),
    ("open files", {"open_files": OPEN_FILES_MIN - 1}, Level.NOTE, "ulimit -n"),
    ("open files", {"open_files": None}, Level.OK, ""),
    ("ray", {"versions": VERSIONS | {"ray": None}}, Level.NOTE, "hotrow[ray]"),
    ("ray", {"versions": VERSIONS | {"pyzmq": None}}, Level.NOTE, "hotrow[ray]"),
    ("ray", {"import_errors": {"ray": "ImportError: no"}}, Level.NOTE, "hotrow[ray]"),
    ("ray", {"versions": VERSIONS | {"ray": "2.51.9"}}, Level.NOTE, "ray>=2.52"),
    ("ray", {"versions": VERSIONS | {"ray": "2.52.0"}}, Level.OK, ""),
    ("ray", {"ray_tokens": False}, Level.NOTE, "ray>=2.52"),
    ("GPU", {"gpus": (), "nvidia_driver": False}, Level.NOTE, "none needed"),
    ("GPU", {"gpus": (), "torch_cuda": None}, Level.SLOW, "CUDA build"),
    ("GPU", {"gpus": ()}, Level.SLOW, "nvidia-smi"),
    ("Triton", {"triton": False}, Level.SLOW, "hotrow[gpu]"),
]


@pytest.mark.parametrize(("part", "changes", "level", "remedy"), CASES)
def test_a_finding_tells_level_cost_and_remedy(part: str, changes: dict[str, Any], level: Level, remedy: str) -> None:
    finding = of(part, **changes)
    assert finding.level is level
    assert remedy in finding.remedy
    assert (finding.cost == "") == (finding.remedy == "") == (level is Level.OK)


@pytest.mark.parametrize(("level", "runs"), [(Level.FAULT, False), (Level.SLOW, True), (Level.NOTE, True)])
def test_only_a_fault_makes_it_unusable(level: Level, runs: bool) -> None:
    assert usable([Finding("a part", Level.OK, ""), Finding("another", level, "")]) is runs


@pytest.mark.parametrize("missing", sorted(AVX512))
def test_an_instruction_set_needs_all_of_its_flags(missing: str) -> None:
    best = best_isa("x86_64", frozenset(AVX512 - {missing}))
    assert best == ("plain" if missing in AVX2 else "avx2")
