"""A new run never begins with the rows of another by chance: segments that hold some are refused, or told loudly."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.errors import SegmentError
from hotrow.nn.inputs import InputShape
from hotrow.run import Run, load_config
from hotrow.store import RamTier
from hotrow.trainer import Remark
from small_run import CONFIG, write_data

RUN = "dead"
WITH_SEGMENT = CONFIG.replace("dim = 1\n", f'dim = 1\nsegment = {{ run = "{RUN}", directory = "PLACE" }}\n')
KILLED = """
import os, sys
from pathlib import Path
from hotrow.run import Run, load_config
from hotrow.trainer import Progress
with Run(load_config(Path(sys.argv[1]), [f"run.folder={sys.argv[2]}", "run.checkpoint_every=1"])) as run:
    for report in run:
        if isinstance(report, Progress) and report.epoch == int(sys.argv[3]):
            run._recorder._take_saved(wait=True)
            run._recorder._start_saving = lambda every: None  # no further checkpoints
        if isinstance(report, Progress) and report.epoch == 2:
            os._exit(9)
"""


def config_of(folder: Path) -> Path:
    return write_data(folder, WITH_SEGMENT.replace("PLACE", str(folder)).replace("epochs = 2", "epochs = 4"))


def left_behind(folder: Path) -> Path:
    """A segment with a row that nobody owns."""
    table = hr.Table(name="default", dim=1, segment=hr.Segment(run=RUN, directory=folder))
    tier = RamTier(table)
    tier.put(np.array([7]), np.ones((1, 1), np.float32))
    tier.close(leave=True)
    return folder / f"hotrow-{RUN}-default.rows"


def finished(run: Run) -> list[str]:
    """The remarks of a whole run."""
    with run:
        return [report.sentence for report in run if isinstance(report, Remark)]


def test_a_new_run_refuses_the_rows_of_another_and_leaves_them(tmp_path: Path) -> None:
    path = left_behind(tmp_path)
    before = path.read_bytes()
    config = load_config(config_of(tmp_path), [f"run.folder={tmp_path / 'runs'}"])
    with pytest.raises(
        SegmentError, match=rf"{path}: holds .* of rows .*--resume.*--attach.*hotrow segments remove {path}"
    ):
        Run(config)
    assert path.read_bytes() == before
    assert not (tmp_path / "runs").exists()
    assert len(RamTier(hr.Table(dim=1, segment=hr.Segment(run=RUN, directory=tmp_path)))) == 1  # one floor below


def test_a_trainer_refuses_them_too_unless_it_is_to_attach(tmp_path: Path) -> None:
    left_behind(tmp_path)
    table = hr.Table(dim=1, segment=hr.Segment(run=RUN, directory=tmp_path))
    model = hr.models.build("lr", InputShape(0, {"a": 1}, {}))
    with pytest.raises(SegmentError, match="attach=True"):
        hr.Trainer(model, table)
    trainer = hr.Trainer(model, table, attach=True)
    assert len(trainer.tables.tiers["default"]) == 1
    trainer.close()


def test_rows_that_come_after_the_check_are_refused_when_the_table_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left_behind(tmp_path)
    monkeypatch.setattr("hotrow.runtime.open_backend.check_no_rows", lambda _: None)  # it saw nothing yet
    segment = hr.Segment(run=RUN, directory=tmp_path)
    tables = {"a": hr.Table(dim=1, segment=segment), "default": hr.Table(dim=1, segment=segment)}
    model = hr.models.build("lr", InputShape(0, {"a": 1, "default": 1}, {}))
    with pytest.raises(SegmentError, match=rf"{path}: holds .* this run is new.*hotrow segments remove {path}"):
        hr.Trainer(model, tables)
    assert [left.name for left in tmp_path.iterdir()] == [path.name]  # the new one of table "a" is gone
    with contextlib.closing(RamTier(tables["default"])) as tier:
        found = np.empty((1, 1), np.float32)
        tier.find(np.array([7]), found)
        assert found.item() == 1.0


def test_rows_that_were_asked_for_are_told(tmp_path: Path) -> None:
    config = load_config(config_of(tmp_path), [f"run.folder={tmp_path / 'runs'}"])
    default = config.tables["default"]  # with expiry a table keeps the clock of samples in its segment
    tables = {"default": default.model_copy(update={"segment": keeping(default.segment), "expiry": 100_000})}
    kept = config.model_copy(update={"tables": tables})
    assert finished(Run(kept)) == []
    (told,) = finished(Run(kept, attach=True))
    assert told.startswith("training starts with 70 rows of table 'default' that segments of an earlier run held")
    assert re.search(r", trained up to about 1[12],\d{3} samples; the network starts anew$", told), told


def keeping(segment: hr.Segment | None) -> hr.Segment:
    assert segment is not None
    return hr.Segment(run=segment.run, directory=segment.directory, keep=True)


def rows_of(run: Run) -> list[tuple[int, float]]:
    found = []
    with run:
        for _ in run:
            pass
        for chunk in run.trainer.tables.tiers["default"].export():
            found += list(zip(chunk.keys.tolist(), chunk.values[:, 0].tolist(), strict=True))
    return sorted(found)


def test_a_resumed_run_goes_on_from_its_checkpoint_and_says_what_is_trained_again(tmp_path: Path) -> None:
    """Killed after epoch 3 with a checkpoint of epoch 1: rows and network must be of the same step."""
    torch.manual_seed(0)
    config = config_of(tmp_path)
    runs = tmp_path / "runs"
    given = [sys.executable, "-c", KILLED, str(config), str(runs), "0"]
    assert subprocess.run(given, check=False, capture_output=True).returncode == 9
    assert (tmp_path / f"hotrow-{RUN}-default.rows").exists()
    settings = load_config(config, [f"run.folder={runs}"])
    with pytest.raises(SegmentError, match="this run is new"):
        Run(settings)
    resumed = Run(settings, resume=True)
    remarks: list[str] = []
    found = []
    with resumed:
        for report in resumed:
            remarks += [report.sentence] if isinstance(report, Remark) else []
        for chunk in resumed.trainer.tables.tiers["default"].export():
            found += list(zip(chunk.keys.tolist(), chunk.values[:, 0].tolist(), strict=True))
    again = "the checkpoint holds 3,000 samples, and the run had trained more when it ended: at least 6,000 samples are"
    rows = "the checkpoint of 3,000 samples took the place of 70 rows of table 'default' in segments"
    assert remarks == [f"{again} trained again", rows]
    whole = rows_of(Run(load_config(config, [f"run.folder={runs}", "run.name=whole"])))
    assert sorted(found) == whole  # bit for bit: nothing of the dead run's later steps is left
