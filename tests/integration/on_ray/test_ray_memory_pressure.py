"""A host that runs out of memory: Ray's monitor ends a role, and the run ends with a sentence and exit code 2."""

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from small_run import CONFIG, write_data

ROOM = 3 << 30  # bytes that the run may use before the monitor acts
PIECE = 1 << 28


def memory_bytes() -> tuple[int, int]:
    """All and what is used, as Ray counts them: of the cgroup where that has a limit, else of the machine."""
    utils = import_module("ray._private.utils")
    return int(utils.get_system_memory()), int(utils.get_used_memory())


def grow_until_ended(run: subprocess.Popen[bytes], checkpoint: Path) -> int:
    """Take memory piece by piece once a run has a checkpoint; give how much when the run ended, or all was taken."""
    until = time.monotonic() + 240
    taken: list[bytes] = []
    while run.poll() is None and time.monotonic() < until:
        if checkpoint.exists() and len(taken) * PIECE < 2 * ROOM:
            taken.append(b"\1" * PIECE)  # Ray ends its own actors, whoever has taken the memory
        time.sleep(0.5)
    return len(taken) * PIECE


@pytest.mark.slow
def test_a_role_that_the_memory_monitor_ends_is_named_with_its_host_and_the_figures(tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG.replace("epochs = 2", "epochs = 20000\ncheckpoint_every = 1000"))
    total, used = memory_bytes()
    if total - used < 3 * ROOM:
        pytest.skip("needs 9 GiB of free memory")
    threshold = str((used + ROOM) / total)
    watched = {"RAY_memory_usage_threshold": threshold, "RAY_memory_monitor_refresh_ms": "100"}
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    command = [hotrow, "train", str(config), "--engine", "ray"]
    log = tmp_path / "told"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stderr=errors, cwd=tmp_path, env=os.environ | watched) as run,
    ):
        try:
            taken = grow_until_ended(run, tmp_path / "runs/small/checkpoint")
        finally:
            run.kill()
    told = log.read_text()
    assert taken, f"it ended before it had a checkpoint: {told[-3000:]}"
    assert run.returncode == 2, told[-3000:]
    assert "Traceback" not in told
    assert "a role of the cluster is lost, resume from the last checkpoint with: hotrow train" in told
    last = told.splitlines()[-1]
    assert " is gone: Ray ended it because its host 127.0.0.1 ran out of memory (" in last, told[-3000:]
    assert any(name in last for name in ("shard 0", "trainer 0"))
