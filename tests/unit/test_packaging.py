"""What an installation asks for: ranges in pyproject.toml, exact versions in constraints.txt, a torch by choice."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from hotrow.doctor.findings import RAY_MIN, TORCH_MIN

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
CPU = "https://download.pytorch.org/whl/cpu"


def minimum(request: str) -> tuple[str, tuple[int, ...]]:
    """ "torch>=2.6" -> torch, (2, 6)."""
    name, _, version = request.partition(">=")
    return name.lower(), tuple(map(int, version.split(".")))


REQUESTS = dict(map(minimum, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["ray"]]))


def test_no_dependency_is_pinned() -> None:
    assert [each for each in PROJECT["dependencies"] if ">=" not in each or "==" in each or "<" in each] == []


def test_constraints_are_exact_and_satisfy_the_ranges() -> None:
    lines = [each for each in (ROOT / "constraints.txt").read_text().splitlines() if not each.startswith("#")]
    exact = {name.lower().replace("_", "-"): version for name, _, version in (each.partition("==") for each in lines)}
    for name, lowest in REQUESTS.items():
        assert tuple(map(int, exact[name].split(".")[: len(lowest)])) >= lowest, name


def test_make_test_installs_a_triton_that_the_extra_allows() -> None:
    (name, lowest), *others = map(minimum, PROJECT["optional-dependencies"]["gpu"])
    pinned = re.search(r"^TRITON \?= triton==([\d.]+)$", (ROOT / "Makefile").read_text(), re.M)
    assert (name, others) == ("triton", [])
    assert pinned is not None
    assert tuple(map(int, pinned[1].split("."))) >= lowest


def test_doctor_knows_the_oldest_torch_and_ray() -> None:
    assert (REQUESTS["torch"], REQUESTS["ray"]) == (TORCH_MIN, RAY_MIN)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize(
    ("given", "installed"),
    [
        ((), f"--constraint constraints.txt  '{PINNED}'"),
        ((f"TORCH_INDEX={CPU}",), f"--constraint constraints.txt --index-url {CPU} '{PINNED}'"),
        (("TORCH=torch",), "--constraint .venv/constraints.txt  'torch'"),
        (("TORCH=",), None),
    ],
)
def test_make_install_takes_the_torch_that_is_asked_for(given: tuple[str, ...], installed: str | None) -> None:
    arguments = ["make", "--dry-run", "--always-make", "--no-print-directory", ".venv/.tools", *given]
    ours = ("TORCH", "MAKE", "MFLAGS")  # of a make that runs this test, or of a workflow
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    torch = [line for line in done.stdout.splitlines() if "pip install" in line and "nanobind" not in line]
    assert [line.partition("pip-version-check ")[2] for line in torch] == ([] if installed is None else [installed])
    assert ("--system-site-packages" in done.stdout) == (installed is None)


def test_no_private_function_of_torch_is_called() -> None:
    private = re.compile(r"\btorch\._[a-zA-Z]|from torch\S* import _")
    found = [path.name for path in (ROOT / "src").rglob("*.py") if private.search(path.read_text())]
    assert found == []


def test_workflows_run_every_python_and_the_oldest_torch() -> None:
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    offered = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", each)]
    assert sorted(set(re.findall(r'python: "([\d.]+)"', workflow))) == sorted(offered)
    assert f"torch=={'.'.join(map(str, TORCH_MIN))}." in workflow
    assert PINNED in workflow


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
