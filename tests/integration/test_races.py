"""Arrays of indices that change while native code reads them give any result, and never an access out of bounds."""

import subprocess
import sys
from pathlib import Path

from hotrow import _native


def test_indices_that_change_during_a_call_never_end_the_process() -> None:
    program = Path(__file__).with_name("hammer_indices.py")
    command = [sys.executable, str(program), str(_native.__file__), "0.1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stdout.splitlines()[-1:]) == (0, ["all lived"]), run.stdout + run.stderr
