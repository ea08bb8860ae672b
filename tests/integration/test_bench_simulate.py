"""`hotrow bench simulate` runs from end to end at small sizes, and what it compares does the same work."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hotrow.bench.simulate import PlainLoop, Simulated, training_batches
from hotrow.bench.simulate_plan import SimulatePlan
from hotrow.modes import MODES, Async

HOTROW = str(Path(sys.executable).with_name("hotrow"))


def test_the_command_writes_every_figure(tmp_path: Path) -> None:
    out = tmp_path / "simulate.json"
    command = [HOTROW, "bench", "simulate", "--quick", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    trained = [f"train_{name}" for name in ("plain_samples_per_s", "async_vs_plain", "gba_vs_plain")]
    for key in ("staleness_s", *trained, *(f"{name}_updates_per_s" for name in MODES)):
        assert found[key] > 0, key
    assert found["command"].startswith("hotrow bench simulate --quick")
    assert {"commit", "machine", "versions"} <= set(found)
    assert "beside the plain loop" in done.stdout


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    command = [HOTROW, "bench", "simulate", "--json", str(tmp_path / "missing" / "a.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "does not exist" in done.stderr


def test_one_asynchronous_worker_trains_as_the_plain_loop_does() -> None:
    plan = replace(SimulatePlan().quick(), training=1)
    batches = training_batches(plan)
    plain, simulated = PlainLoop(plan, batches), Simulated(plan, batches, Async())
    for turn in range(2):
        plain.train(turn)
        simulated.train(turn)
    assert (plain.step, plain.samples) == (simulated.step, simulated.samples) == (40, 1280)
    for one, other in zip(plain.model.server.parameters, simulated.model.server.parameters, strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())
    outputs = [each.model._predicted(batches[0]) for each in (plain, simulated)]
    assert outputs[0] == pytest.approx(outputs[1])
