"""Every kernel compiles for the H200 (sm_90), on machines without a GPU too."""

import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow.kernels

TESTS = Path(__file__).parents[2]


def compiled(module: str, *calls: str, cache: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, str(TESTS / "kernel_compile.py"), module, *calls]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def kernels_of(package: ModuleType) -> set[str]:
    """Names of functions that are launched: _NAME_kernel."""
    modules = [import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)]
    return {name for module in modules for name in vars(module) if name.startswith("_") and name.endswith("_kernel")}


def test_every_kernel_compiles_in_all_its_variants(tmp_path: Path) -> None:
    lines = compiled("kernel_calls", cache=tmp_path).splitlines()
    assert {line.split()[0] for line in lines} == kernels_of(hotrow.kernels)
    assert all(int(line.split()[1]) > 1_000 for line in lines)  # bytes of a program


def test_the_table_in_gpu_memory_compiles(tmp_path: Path) -> None:
    lines = compiled("hbm_calls", cache=tmp_path).splitlines()
    assert {line.split()[0] for line in lines} == {
        "find_rows", "claim_slots", "fill_slots", "lock_slots", "write_keys", "erase_rows", "unlock_slots",
        "move_rows", "fresh_rows", "copy_values", "first_values", "clamp_ages", "pinned_rows",
    }  # fmt: skip
