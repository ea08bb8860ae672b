"""No call of the native module, and no bytes in a segment, lead out of its memory: AddressSanitizer and UBSan watch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow import _native, errors

SEEDS = range(4)


def fuzz(module: Path, folder: Path, seed: int, calls: int, **variables: str) -> None:
    program = Path(__file__).with_name("fuzz_native.py")
    folder.mkdir()
    command = [sys.executable, str(program), str(module), errors.__file__, str(folder), str(seed), str(calls)]
    environment = {**os.environ, **variables}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout}{run.stderr}"
    assert "Sanitizer" not in run.stderr
    assert "runtime error" not in run.stderr


def test_random_calls_work_or_are_refused_by_an_exception(tmp_path: Path) -> None:
    fuzz(Path(str(_native.__file__)), tmp_path / "segments", seed=0, calls=1000)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module built with both sanitizers."""
    root, build = Path(__file__).parents[2], tmp_path_factory.mktemp("build")
    cmake = shutil.which("cmake") or str(Path(sys.executable).with_name("cmake"))
    configure = [cmake, "-S", str(root), "-B", str(build), "-DHOTROW_SANITIZE=address"]
    nanobind = output(sys.executable, "-m", "nanobind", "--cmake_dir")
    configure += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}"]
    subprocess.run(configure, check=True)
    subprocess.run([cmake, "--build", str(build), "--target", "_native", "--parallel", "2"], check=True)
    return next(build.glob("_native*.so"))


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def watched() -> dict[str, str]:
    """Variables under which Python loads a module with sanitizers."""
    compiler = os.environ.get("CXX", "c++")
    # AddressSanitizer has to come first, and exceptions need the C++ library beside it.
    preload = " ".join(output(compiler, f"-print-file-name={name}") for name in ("libasan.so", "libstdc++.so"))
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}  # Python's leaks are not ours
    return {"LD_PRELOAD": preload, "PYTHONMALLOC": "malloc", **options}


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
def test_sanitizers_find_nothing_in_random_calls(sanitized: Path, tmp_path: Path, isa: str) -> None:
    for seed in SEEDS:
        fuzz(sanitized, tmp_path / str(seed), seed, calls=4000, HOTROW_ISA=isa, **watched())


@pytest.mark.slow
def test_sanitizers_find_nothing_where_indices_change_during_a_call(sanitized: Path) -> None:
    program = Path(__file__).with_name("hammer_indices.py")
    command = [sys.executable, str(program), str(sanitized), "0.5"]
    environment = {**os.environ, **watched()}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
