"""hotrow.kernels, hotrow.store.hbm and their measurement import on a machine that has torch and Triton alone."""

import pkgutil
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow.bench.gpu
import hotrow.kernels
import hotrow.store.hbm

# The program first refuses what such a machine does not have, then imports what the arguments name.
PROGRAM = """
import sys
from importlib import import_module

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing} or name == "hotrow._native":
            raise ModuleNotFoundError(f"{{name}} is not on such a machine")

sys.meta_path.insert(0, Missing())
for name in sys.argv[1:]:
    import_module(name)
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "hotrow"))
"""
MISSING = {"pydantic", "pydantic_core", "pyarrow", "typer", "rich", "msgspec", "zmq", "plotly", "safetensors", "xxhash"}
PACKAGES = (hotrow.kernels, hotrow.store.hbm, hotrow.bench.gpu)
OWN = (
    "hotrow", "hotrow.errors", "hotrow.openmp", "hotrow.bench", "hotrow.bench.commit", "hotrow.store",
    "hotrow.store.applied", "hotrow.store.streams", "hotrow.models", "hotrow.models.interactions",
)  # fmt: skip


def modules() -> list[str]:
    return [
        module.name
        for package in PACKAGES
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]


def imported(*names: str, missing: set[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(missing=sorted(missing)), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_module_imports_with_torch_and_triton_alone() -> None:
    done = imported(*modules(), missing=MISSING)
    assert done.returncode == 0, done.stderr
    inside = tuple(f"{package.__name__}" for package in PACKAGES)
    assert [name for name in done.stdout.split() if name not in OWN and not name.startswith(inside)] == []


def test_what_is_missing_is_refused_indeed() -> None:
    done = imported("hotrow.config", missing=MISSING)
    assert "pydantic is not on such a machine" in done.stderr


def test_without_triton_a_sentence_says_what_to_install() -> None:
    hidden = "import importlib.util as u; u.find_spec = lambda name: None; import hotrow.kernels"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert "hotrow.kernels needs Triton, which is not installed: pip install 'hotrow[gpu]'" in done.stderr
