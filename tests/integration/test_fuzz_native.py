"""No call of the native module, and no bytes in a segment, lead out of its memory: AddressSanitizer and UBSan watch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow import _native, errors
from native_build import ROOT, built_module, sanitizer_environment

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
    return built_module(tmp_path_factory.mktemp("build"), "HOTROW_SANITIZE=address")


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
def test_sanitizers_find_nothing_in_random_calls(sanitized: Path, tmp_path: Path, isa: str) -> None:
    for seed in SEEDS:
        fuzz(sanitized, tmp_path / str(seed), seed, calls=4000, HOTROW_ISA=isa, **sanitizer_environment())


@pytest.mark.slow
def test_sanitizers_find_nothing_where_indices_change_during_a_call(sanitized: Path) -> None:
    program = Path(__file__).with_name("hammer_indices.py")
    command = [sys.executable, str(program), str(sanitized), "0.5"]
    environment = {**os.environ, **sanitizer_environment()}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sanitizers_find_nothing_in_the_tests_of_the_store(sanitized: Path, tmp_path: Path) -> None:
    store = ROOT / "tests/unit/store"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "other_native", "-p", "no:cacheprovider", str(store)]
    command += [f"--basetemp={tmp_path / 'tests'}", "--capture=sys"]  # what a sanitizer writes is not captured
    command += [f"--ignore={store / 'test_verify.py'}"]  # reads all memory of the process: terabytes under a sanitizer
    variables = {"HOTROW_NATIVE": str(sanitized), "PYTHONPATH": str(ROOT / "tests"), **sanitizer_environment()}
    environment = {**os.environ, **variables}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=1800, check=False)
    said = run.stdout + run.stderr
    assert run.returncode == 0, said
    assert "Sanitizer" not in said
    assert "runtime error" not in said
