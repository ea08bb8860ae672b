"""Threads of torch that wait sleep soon, unless the user or an earlier import of torch has decided it."""

import os
import subprocess
import sys

import pytest

from hotrow.openmp import CHOICES, SPIN_COUNT

FOUND = "GOMP_SPINCOUNT = "


def spin_count(program: str, **choices: str) -> str | None:
    """As libgomp has read it; None: torch is built with another OpenMP."""
    kept = {name: value for name, value in os.environ.items() if name not in CHOICES}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, **choices, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.partition(FOUND)[2].strip(" '") for line in done.stderr.splitlines() if FOUND in line]
    return lines[0] if lines else None


def test_torch_spins_briefly_where_hotrow_is_imported_first_and_nobody_has_chosen() -> None:
    default = spin_count("import torch, hotrow")
    if default is None:
        pytest.skip("torch has no libgomp here")
    assert spin_count("import hotrow, torch") == SPIN_COUNT
    assert int(default) > 10 * int(SPIN_COUNT), "torch was loaded already"
    assert spin_count("import hotrow, torch", GOMP_SPINCOUNT="77") == "77"
    assert spin_count("import hotrow, torch", OMP_WAIT_POLICY="passive") == "0"
