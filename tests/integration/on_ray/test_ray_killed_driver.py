"""A run that is killed: its processes end, and the next start removes what it could not remove itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from hotrow.run.cluster_file import read_cluster
from integration.on_ray.test_ray_token import children
from small_run import CONFIG, write_data

ROLES_S, ALL_S = 60.0, 240.0  # generous: measured 2 s for roles, 62 s for Ray's agents

pytestmark = pytest.mark.slow


def wait(what: str, done: Callable[[], bool], within_s: float) -> None:
    until = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < until, f"{what}: not within {within_s:.0f} s"
        time.sleep(0.1)


def alive(pids: set[int]) -> dict[int, str]:
    """With the name of each; one that nobody has waited for is dead all the same."""
    found = {}
    for pid in pids:
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue
        if rest.split()[0] != "Z":
            found[pid] = name.partition("(")[2]
    return found


@pytest.mark.parametrize("next_run", [["--resume"], ["--set", "run.name=other"]], ids=["resumed", "another"])
def test_all_processes_of_a_killed_run_end_and_the_next_start_sweeps(tmp_path: Path, next_run: list[str]) -> None:
    config = write_data(tmp_path, CONFIG.replace("epochs = 2", "epochs = 20000\ncheckpoint_every = 1000"))
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    left = tmp_path / "runs/small"
    with TemporaryDirectory(dir="/tmp") as short:
        private = Path(short) / f"hotrow-ray-{os.geteuid()}"
        about: dict[str, Any] = {
            "cwd": tmp_path,
            "env": os.environ | {"RAY_TMPDIR": short},
            "stderr": subprocess.DEVNULL,
        }
        command = [hotrow, "train", str(config), "--engine", "ray"]
        with subprocess.Popen(command, **about) as run:
            wait("a checkpoint", lambda: (left / "checkpoint").exists(), 120)
            pids = children(run.pid)
            roles = {place.pid for place in read_cluster(left).facts.roles.values()}
            assert roles <= pids
            os.kill(run.pid, signal.SIGKILL)
        wait("roles and Ray itself end", lambda: not alive(roles), ROLES_S)
        wait("all end", lambda: not alive(pids), ALL_S)
        assert (left / "cluster.key").exists()
        assert len(list(private.iterdir())) == 2  # the lock and one directory of Ray

        config.write_text(config.read_text().replace("epochs = 20000", "epochs = 1"))  # a resumed run has done more
        again = [hotrow, "train", str(config), "--engine", "ray", *next_run]
        done = subprocess.run(again, timeout=200, **about | {"stderr": subprocess.PIPE}, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert [path.name for path in private.iterdir()] == ["lock"]
        assert not (left / "cluster.json").exists()
        assert not (left / "cluster.key").exists()
        assert (left / "checkpoint").exists()
