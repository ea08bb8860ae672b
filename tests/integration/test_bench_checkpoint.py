"""`hotrow bench checkpoint` runs from end to end at small sizes, and what it writes is whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow.bench.checkpoint_plan import CheckpointPlan
from hotrow.bench.checkpoint_report import LINES, TABLES, cold, summary
from hotrow.bench.raw_files import RawFiles, bytes_from_disk, drop_cache, read
from hotrow.errors import ConfigError


def test_the_command_writes_every_figure_and_leaves_no_file(tmp_path: Path) -> None:
    out, folder = tmp_path / "checkpoint.json", tmp_path / "disk"
    folder.mkdir()
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    command = [hotrow, "bench", "checkpoint", "--quick", "--rows", "3000", "--dim", "4"]
    command += ["--folder", str(folder), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    for table in TABLES:
        for key, _, _ in LINES:
            assert found[f"{table}_{key}"] is not None
        assert found[f"{table}_bytes"] > 3000 * 0.8 * (8 + 4 * 8)
        assert 0.01 <= found[f"{table}_delta_share"] < 0.2
        assert found[f"{table}_save_s"] > 0
        assert 0 <= found[f"{table}_load_system_s"] <= found[f"{table}_load_processor_s"]
    assert found["command"].startswith("hotrow bench checkpoint --quick")
    assert found["job"]["rows"] == 3000
    assert "save / raw write" in done.stdout
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_missing_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    command = [hotrow, "bench", "checkpoint", "--folder", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no such folder, make it first" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_too_large_for_memory_or_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows=1,000,000,000,000 at dim 16: needs .* GiB of memory, .* take fewer"):
        CheckpointPlan(rows=10**12).check_room(tmp_path)


def test_raw_files_have_the_lengths_asked_for_and_the_set_before_goes(tmp_path: Path) -> None:
    raw = RawFiles(tmp_path)
    raw.prepare([5000, 7])
    raw.write([5000, 7])
    raw.write([6, 4000])
    assert sorted(path.stat().st_size for path in tmp_path.iterdir()) == [6, 4000]
    files = list(tmp_path.iterdir())
    drop_cache(files)
    before = bytes_from_disk()
    read(files)
    assert bytes_from_disk() >= before
    raw.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_report_says_whether_reads_came_from_the_disk() -> None:
    figures: dict[str, float | None] = {f"{table}_{key}": 1.0 for table in TABLES for key, _, _ in LINES}
    figures |= {f"{table}_read_from_disk": 1.0 for table in TABLES}
    assert cold(figures)
    figures["lru_read_from_disk"] = 0.0
    assert not cold(figures)
    *_, words = summary(CheckpointPlan(), figures).renderables
    assert str(words) == "files that are read were in memory before: the system did not drop them"
