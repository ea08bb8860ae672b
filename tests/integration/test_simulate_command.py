"""`hotrow simulate` as a process: it can be repeated, it trains, and Ctrl-C ends it with what is done."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

WAIT_S = 120
ENDLESS = """
[run]
seconds = 1e9
[cluster]
workers = 4
local_batch = 10
speeds = { sample_s = 0.1 }
[modes.sync]
[modes.gba]
"""


def hotrow(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from hotrow.cli import main; main()", "simulate", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes)  # type: ignore[call-overload, no-any-return]


def test_the_demo_trains_and_two_processes_agree_to_the_last_digit(tmp_path: Path) -> None:
    few = ["--set", "data.rows=4000", "--set", "data.test_rows=4000", "--mode", "gba", "--mode", "async"]
    names = ("first", "second")
    both = [hotrow(tmp_path, "demo", *few, "--json", f"{name}.json", "--picture", f"{name}.html") for name in names]
    for process in both:
        _, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, err
    first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    assert first == second
    assert (tmp_path / "first.html").read_bytes() == (tmp_path / "second.html").read_bytes()
    assert first["modes"]["gba"]["samples_applied"] == 4000
    assert 0.5 < first["modes"]["gba"]["metrics"]["auc"] < 0.9
    late = {label: mode["statistics"]["gradient"]["mean"] for label, mode in first["modes"].items()}
    assert late["async"] > late["gba"] > 0


def test_ctrl_c_ends_it_with_exit_code_130(tmp_path: Path) -> None:
    (tmp_path / "endless.toml").write_text(ENDLESS)
    process = hotrow(tmp_path, "endless.toml", "--json", "figures.json")
    assert process.stderr is not None
    assert "of virtual time" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert "interrupted: 0 of 2 modes are done" in err
    assert out == ""
    assert json.loads((tmp_path / "figures.json").read_text())["complete"] is False
