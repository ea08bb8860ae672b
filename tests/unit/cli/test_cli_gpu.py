"""`hotrow train` with a device: the rows of the run are used in GPU memory, and its report says so."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import Result

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.runtime.device import Device

ROWS = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CONFIG = """
[data]
format = "synthetic"
rows = 96
test_rows = 16
features = 3
numbers = 1
ids = 300

[model]
name = "deepfm"
hidden = [4]

[tables.default]
dim = 4
hbm = 256

[run]
engine = { name = "local", device = "cuda" }
global_batch = 16
autocast = "off"
tensorboard = false
threads = 1
"""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes


def test_a_run_on_a_gpu_ends_with_what_its_memory_had(
    hotrow: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.runtime.open_backend.device_of", lambda _: Device(str(ROWS), ROWS, 10**9))
    (tmp_path / "small.toml").write_text(CONFIG)
    result = hotrow("train", "small.toml")
    assert result.exit_code == 0, result.stderr
    assert f"note: table 'default': {ROWS} has room for 256 rows" in result.stderr
    found = re.search(r"GPU memory of table default: (\d+) of 256 rows, ([\d.]+)% of lookups were hits", result.output)
    assert found is not None, result.output
    assert int(found[1]) > 0
    page = (tmp_path / "runs" / "small" / "report.html").read_text()
    assert "rows in GPU memory" in page
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert hotrow("evaluate").exit_code == 0  # where there may be no such device


def test_a_device_that_is_not_there_is_one_sentence(hotrow: Callable[..., Result], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "small.toml").write_text(CONFIG)
    result = hotrow("train", "small.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith("hotrow: engine.device='cuda': torch ")
    assert result.stderr.count("\n") == 1
