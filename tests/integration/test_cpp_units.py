"""The C++ tests of single structures (native/tests/*_test.cpp): index, slab, eviction order, segment."""

import os
import subprocess
from pathlib import Path

import pytest

from native_build import ROOT, built


def check_units(folder: Path, *settings: str, seeds: int = 1) -> None:
    units = built("units", folder, "HOTROW_MODULE=OFF", "HOTROW_TESTS=ON", *settings) / "units"
    for seed in range(seeds):
        environment = {**os.environ, "HOTROW_SEED": str(seed)}
        run = subprocess.run([str(units)], env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert run.returncode == 0, f"seed {seed}\n{run.stdout}{run.stderr}"


def test_structures_of_the_store_keep_their_promises() -> None:
    # In a folder that stays: the first build takes 13 s of CPU time, and the next one compiles only what changed.
    check_units(ROOT / "build" / "units", "CMAKE_BUILD_TYPE=Release")


@pytest.mark.slow
def test_structures_of_the_store_keep_their_promises_with_other_seeds(tmp_path: Path) -> None:
    check_units(tmp_path, seeds=20)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_structures_of_the_store_keep_their_promises_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    check_units(tmp_path, f"HOTROW_SANITIZE={sanitizer}", seeds=3)
