"""The stub of the native module, generated from its bindings: `python tests/native_stub.py FILE` writes it."""

import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen  # type: ignore[import-untyped]

from hotrow import _native
from native_build import ROOT

HEADER = "# Generated from native/bind by `make stub`. Arrays are C-contiguous, aligned and in host memory.\n"


def native_stub() -> str:
    """What _native.pyi must be."""
    stub = StubGen(_native, quiet=True)
    stub.put(_native)
    return _ruff("format", _ruff("check", HEADER + stub.get(), "--select=I", "--fix", "--quiet"))


def _ruff(command: str, text: str, *options: str) -> str:
    arguments = [sys.executable, "-m", "ruff", command, *options, "--stdin-filename=src/hotrow/_native.pyi", "-"]
    run = subprocess.run(arguments, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(native_stub())
