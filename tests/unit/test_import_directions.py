"""The import layers of docs/ARCHITECTURE.md. The rules are data; the imports are read from the files, not run.

A module belongs to the package with the longest matching name. A package may import packages of its own layer and of
the layers before it. Pure packages may not import a clock, a socket, threads, random numbers or tensors, neither
directly nor through a module that they import.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PACKAGE = "hotrow"

LAYERS = (
    (
        "types",
        "errors",
        "spec",
        "sizes",
        "printable",
        "disk",
        "admission",
        "config",
        "metrics",
        "openmp",
        "optim.sparse",
        "_native",
    ),
    ("modes", "staleness", "switching", "routes", "cache.clocks", "topology.machine", "topology.binding", "plan.hosts"),
    ("store", "kernels", "optim", "data", "topology"),
    ("nn", "models", "cache", "client"),
    ("server.core", "server.dense", "worker.core", "worker.losses"),
    ("transport", "checkpoint", "obs"),
    (
        "server",
        "loading",
        "worker",
        "client.sharded",
        "client.shard_table",
        "client.row_hints",
        "client.pooled",
        "cache.client",
        "cache.requests",
        "cache.ordered_exchanges",
        "cache.shard_requests",
    ),
    ("sim", "runtime"),
    ("trainer",),
    ("run",),
    ("sim.study",),
    ("reproduce",),
    ("bench", "chaos", "doctor", "plan"),
    ("cli",),
    ("",),  # hotrow/__init__.py, the public names
)
PURE = (
    "types",
    "errors",
    "spec",
    "sizes",
    "admission",
    "config",
    "modes",
    "staleness",
    "switching",
    "routes",
    "cache.clocks",
    "topology.machine",
    "topology.binding",
    "plan.hosts",
)
IMPURE = (
    "asyncio", "multiprocessing", "numpy", "random", "ray", "secrets", "socket", "threading", "time", "torch", "zmq",
)  # fmt: skip


def faults(source: Path) -> list[str]:
    """Every import that goes the wrong way, as a sentence."""
    imports = {name: set(imported_by(path, name)) for name, path in modules(source).items()}
    known = set(imports)
    return [*_wrong_layers(imports), *_impure(imports, known)]


def modules(source: Path) -> dict[str, Path]:
    """All modules of the package by dotted name, stubs left out."""
    found = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_by(path: Path, module: str) -> Iterator[str]:
    """Dotted names of all imports in a file, inside functions too; `from a import b` gives a.b, module or not."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def package_of(module: str) -> str | None:
    """The package of LAYERS that a module belongs to; None for modules of other projects."""
    if module.split(".")[0] != PACKAGE:
        return None
    inside = module[len(PACKAGE) + 1 :]
    found = [name for layer in LAYERS for name in layer if inside == name or inside.startswith(f"{name}.")]
    return max(found, key=len, default="")


def layer_of(package: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if package in layer)


def _wrong_layers(imports: dict[str, set[str]]) -> Iterator[str]:
    for module, targets in sorted(imports.items()):
        package = package_of(module)
        if package is None or (package == "" and module != PACKAGE):
            yield f"{module} belongs to no layer: name it in LAYERS"
            continue
        for target in sorted(targets):
            other = package_of(target)
            if other is not None and layer_of(other) > layer_of(package):
                what = other or f"the public names of {PACKAGE}"
                yield f"{module} imports {target}: {package} is below {what}"


def _impure(imports: dict[str, set[str]], known: set[str]) -> Iterator[str]:
    for module in sorted(imports):
        if package_of(module) not in PURE:
            continue
        for reached, way in _reached(module, imports, known):
            if reached.split(".")[0] in IMPURE:
                yield f"{' -> '.join(way)} imports {reached}: {module} must stay pure"


def _reached(module: str, imports: dict[str, set[str]], known: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Whatever a module imports, directly or through our own modules, with the way there."""
    seen, ahead = {module}, [[module]]
    while ahead:
        way = ahead.pop()
        for target in sorted(imports[way[-1]]):
            yield target, way
            ours = next((name for name in (target, target.rpartition(".")[0]) if name in known), None)
            if ours is not None and ours != PACKAGE and ours not in seen:
                seen.add(ours)
                ahead.append([*way, ours])


def test_no_module_imports_a_higher_layer_and_pure_modules_stay_pure() -> None:
    assert faults(SOURCE) == []


def test_the_check_reads_the_real_package() -> None:
    assert {"hotrow", "hotrow.config", "hotrow.nn.embedding_bag", "hotrow.store.ram"} <= set(modules(SOURCE))


INVENTED = {
    "up": ({"store/ram.py": "from hotrow.nn import EmbeddingBag"}, "hotrow.store.ram imports hotrow.nn.EmbeddingBag"),
    "up, in a function": ({"nn/bag.py": "def f():\n    import hotrow.cli.main"}, "nn is below cli"),
    "up, relative": ({"nn/bag.py": "from ..runtime import local"}, "hotrow.nn.bag imports hotrow.runtime.local"),
    "up, from a package": ({"store/__init__.py": "from .. import bench"}, "hotrow.store imports hotrow.bench"),
    "bench from below the command line": ({"runtime/local.py": "import hotrow.bench"}, "runtime is below bench"),
    "the public names from inside": ({"store/ram.py": "import hotrow as hr"}, "store is below the public names"),
    "a clock": ({"modes/gba.py": "import time"}, "hotrow.modes.gba imports time: hotrow.modes.gba must stay pure"),
    "a part of torch": ({"cache/clocks.py": "from torch import nn"}, "hotrow.cache.clocks imports torch.nn"),
    "chance": ({"switching.py": "from numpy import random"}, "hotrow.switching imports numpy.random"),
    "a socket, through another": (
        {"config.py": "import socket", "routes.py": "from hotrow.config import Table"},
        "hotrow.routes -> hotrow.config imports socket: hotrow.routes must stay pure",
    ),
    "a module without a layer": ({"misc.py": ""}, "hotrow.misc belongs to no layer"),
}  # fmt: skip


@pytest.mark.parametrize(("files", "sentence"), INVENTED.values(), ids=INVENTED)
def test_an_invented_violation_is_found(files: dict[str, str], sentence: str, tmp_path: Path) -> None:
    write(tmp_path, files)
    assert any(sentence in fault for fault in faults(tmp_path)), faults(tmp_path)


def test_invented_files_that_keep_the_rules_pass(tmp_path: Path) -> None:
    files = {
        "__init__.py": "from hotrow import nn",
        "config.py": "from pydantic import Field\nfrom hotrow.errors import ConfigError",
        "modes/gba.py": "from dataclasses import dataclass\nfrom hotrow.config import Table\nfrom .base import Event",
        "cache/cache.py": "import numpy\nfrom hotrow.cache import clocks\nfrom hotrow.store import RamTier",
        "store/ram.py": "import numpy\nfrom hotrow import _native",
        "cli/bench.py": "from hotrow.bench import store",
    }
    write(tmp_path, files)
    assert faults(tmp_path) == []


def write(source: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = source / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
