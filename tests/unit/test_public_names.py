"""`import hotrow` offers every public name and imports what is behind it on first use."""

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hotrow

ROOT = Path(__file__).parents[2]
HEAVY = {"jinja2", "numpy", "pandas", "plotly", "prometheus_client", "pyarrow", "ray", "torch"}


def heavy_modules(program: str) -> tuple[set[str], str]:
    """Heavy packages that a program has imported in a process of its own, and what it printed."""
    told = f"{program}\nimport sys\nprint('imported:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    shown, _, names = done.stdout.rpartition("imported:")
    return HEAVY & {name.partition(".")[0] for name in names.split()}, shown


def command(*arguments: str) -> str:
    return (
        f"import sys\nfrom hotrow.cli import main\nsys.argv = ['hotrow', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code"
    )


def test_import_hotrow_imports_nothing_heavy() -> None:
    assert heavy_modules("import hotrow\nhotrow.__version__\nhotrow.ConfigError") == (set(), "")


@pytest.mark.parametrize(("option", "shown"), [("--help", "train"), ("--version", "hotrow ")])
def test_help_and_version_import_nothing_heavy(option: str, shown: str) -> None:
    heavy, text = heavy_modules(command(option))
    assert shown in text
    assert heavy == set()


def test_the_guard_sees_a_heavy_import() -> None:
    assert "numpy" in heavy_modules("import numpy")[0]


@pytest.mark.parametrize("name", hotrow.__all__)
def test_every_public_name_is_what_its_module_holds(name: str) -> None:
    value = getattr(hotrow, name)
    sources = [module for module, names in hotrow.SOURCES.items() if name in names.split()]
    if name in hotrow.SUBMODULES:
        assert value is importlib.import_module(f"hotrow.{name}")
    elif name != "__version__":
        assert value is getattr(importlib.import_module(*sources), name)
    assert vars(hotrow)[name] is value, "kept for the next time"


def test_type_checkers_and_the_interpreter_read_the_same_names() -> None:
    tree = ast.parse(Path(hotrow.__file__).read_text())
    found = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    imports = {node.module: {alias.name for alias in node.names} for node in found if isinstance(node, ast.ImportFrom)}
    submodules = imports.pop("hotrow")
    assert imports == {module: set(names.split()) for module, names in hotrow.SOURCES.items()}
    assert {*submodules, *(name for names in imports.values() for name in names), "__version__"} == set(hotrow.__all__)
    assert submodules <= hotrow.SUBMODULES


def test_submodules_are_attributes_and_dir_lists_them() -> None:
    program = "import hotrow as hr\nassert hr.optim.sparse.SGD is hr.SGD and hr.store and {'nn', 'Table'} <= {*dir(hr)}"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'hotrow' has no attribute 'Trainr'"):
        hotrow.Trainr  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Trainr'"):
        exec("from hotrow import Trainr")


def test_the_version_is_that_of_pyproject() -> None:
    assert hotrow.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
