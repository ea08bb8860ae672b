"""A disk that is full: the last checkpoint stays whole, nothing is left half-written, a sentence says what to do."""

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from torch import nn
from typer.testing import CliRunner

from hotrow import checkpoint
from hotrow.cli import app
from hotrow.data.schema import Schema
from hotrow.disk import write_text
from hotrow.errors import FileError
from hotrow.obs.events import EventLog, read_events
from hotrow.obs.tensorboard import TensorBoard
from hotrow.run import Run, load_config
from hotrow.run.folder import discard_unfinished
from hotrow.run.predictions import Predicted, PredictionFile
from hotrow.trainer import Remark, TrainingEnded
from small_run import CONFIG, trained, write_data

LIMITED = Path(__file__).with_name("full_disk.py")
MOUNT_BYTES = 12 * 2**20  # the page of a run takes 5


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB; skips where this user may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES}", "none", str(folder)]
    if shutil.which("mount") is None or (done := subprocess.run(mount, capture_output=True, text=True)).returncode:
        why = "there is no mount" if shutil.which("mount") is None else done.stderr.strip()
        pytest.skip(f"needs a file system of its own to fill: {why}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Leave so many bytes free."""
    free = os.statvfs(folder)
    (folder / "filler").write_bytes(bytes(free.f_bfree * free.f_frsize - leave))
    return folder / "filler"


def test_a_run_ends_with_one_sentence_and_its_checkpoint_serves_after_room_was_made(
    small_disk: Path, tmp_path: Path
) -> None:
    config = write_data(tmp_path)
    folder = trained(config, f"run.folder={small_disk}", "run.epochs=1")
    before = checkpoint.peek(folder / "checkpoint").counters
    (folder / "checkpoint" / "000007").mkdir()
    (folder / "checkpoint" / "000007" / "left").write_text("by a run that was killed")
    filler = fill(small_disk, leave=8192)
    given = ["train", str(config), "--set", f"run.folder={small_disk}", "--resume"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2, done.stderr
    told = r"hotrow: \S+/checkpoint: a checkpoint as it is now \([\d.]+ kB\) cannot be written: [\d.]+ kB are free"
    assert re.search(told, done.stderr), done.stderr
    assert checkpoint.peek(folder / "checkpoint").counters == before
    assert [each.name for each in (folder / "checkpoint").iterdir()] == ["000001"]
    filler.unlink()
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.stderr
    assert checkpoint.peek(folder / "checkpoint").counters["samples"] == 2 * before["samples"]


def test_a_checkpoint_on_the_way_that_finds_no_room_is_told_and_training_goes_on(
    small_disk: Path, tmp_path: Path
) -> None:
    config = load_config(write_data(tmp_path), [f"run.folder={small_disk}", "run.checkpoint_every=1", "run.epochs=3"])
    remarks, filler = [], small_disk / "filler"
    with Run(config) as run:
        for report in run:
            if isinstance(report, Remark):
                remarks.append(report.sentence)
                filler.unlink(missing_ok=True)
            elif not remarks and run.saved and not filler.exists():
                fill(small_disk, leave=12 * 1024)
    assert run.summary["stopped"] == "epochs done"
    (told,) = [each for each in remarks if "the checkpoint (" in each]
    assert "training continues, the next attempt is 1 samples later" in told
    assert run.unsaved is None
    assert checkpoint.peek(run.folder / "checkpoint").counters["samples"] == 9000
    assert any(told == event.get("text") for event in read_events(run.folder / "events.jsonl").events)


def test_files_that_may_not_grow_end_the_run_with_a_sentence_and_the_command_to_go_on(tmp_path: Path) -> None:
    """For those who may not mount: the first checkpoint is whole, the second is cut in the middle of its tensors."""
    config = write_data(tmp_path, CONFIG.replace("epochs = 2", "epochs = 2\ncheckpoint_every = 1\n"))
    given = ["train", str(config), "--set", f"run.folder={tmp_path}"]
    done = subprocess.run([sys.executable, str(LIMITED), "3000", *given], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "note: " in done.stderr, "a checkpoint on the way failed too"
    told = r"hotrow: \S+/small/checkpoint: the checkpoint \([\d.]+ [kM]B\) cannot be written: .*"
    assert re.search(told + r"resume from it with: hotrow train .* --resume$", done.stderr, re.M), done.stderr
    folder = tmp_path / "small"
    assert not [each.name for each in folder.iterdir() if each.name.endswith(".part")]
    again = trained_on(config, tmp_path)
    assert again == 6000


def trained_on(config: Path, folder: Path) -> int:
    """Samples of a run that goes on from what the full disk left."""
    with Run(load_config(config, [f"run.folder={folder}"]), resume=True) as run:
        for report in run:
            if isinstance(report, TrainingEnded):
                return report.samples
    raise AssertionError("it did not end")


def test_a_run_that_cannot_write_its_config_leaves_no_folder(small_disk: Path, tmp_path: Path) -> None:
    config = load_config(write_data(tmp_path), [f"run.folder={small_disk}"])
    run = Run(config)
    fill(small_disk, leave=0)
    with pytest.raises(FileError, match="cannot be written"), run:
        next(iter(run))
    assert [each.name for each in small_disk.iterdir()] == ["filler"]


def test_events_that_find_no_room_are_counted_and_the_log_stays_readable(small_disk: Path) -> None:
    log = EventLog(small_disk)
    log.write("start", run="x")
    filler = fill(small_disk, leave=0)
    for _ in range(3):
        log.write("progress", pad="x" * 5000)
    assert "No space left on device" in str(log.fault)
    filler.unlink()
    log.write("end")
    log.close()
    found = read_events(log.path)
    assert [event["kind"] for event in found.events] == ["start", "warning", "end"]
    assert found.unreadable == 0
    assert "3 events before this one are missing" in found.events[1]["text"]


def test_curves_that_find_no_room_stop_nobody(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    board = TensorBoard(small_disk / "tensorboard")
    fill(small_disk, leave=0)
    for samples in range(200):  # more than the queue of the thread that writes holds
        board.write(samples, {"train/loss": 0.5})
    board.close()
    assert "No space left on device" in str(board.fault)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_that_find_no_room_leave_nothing(suffix: str, small_disk: Path) -> None:
    fill(small_disk, leave=0)
    some = Predicted(np.arange(200_000), np.zeros((200_000, 1), np.float32))
    with (
        pytest.raises(FileError, match=r"out\.\w+: predictions .* cannot be written: .*No space left.* free: make"),
        PredictionFile(small_disk / f"out{suffix}", Schema(label="y", ids=["a"])) as file,
    ):
        file.write(some)
    assert [each.name for each in small_disk.iterdir()] == ["filler"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(small_disk: Path) -> None:
    path = small_disk / "report.html"
    path.write_text("before")
    fill(small_disk, leave=0)
    with pytest.raises(FileError, match=r"report\.html: the report \(100\.0 kB\) cannot be written: No space left"):
        write_text(path, "x" * 100_000, "the report")
    assert path.read_text() == "before"
    assert sorted(each.name for each in small_disk.iterdir()) == ["filler", "report.html"]


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that says it is full, for those who may not mount one."""
    real = os.statvfs

    def full(path: str | Path) -> os.statvfs_result:
        return os.statvfs_result([0 if place in (3, 4) else value for place, value in enumerate(real(path))])

    monkeypatch.setattr(os, "statvfs", full)


@pytest.mark.usefixtures("no_room")
def test_a_run_without_room_for_a_checkpoint_writes_nothing_and_names_no_folder(tmp_path: Path) -> None:
    config = write_data(tmp_path)
    done = CliRunner().invoke(app, ["train", str(config), "--set", f"run.folder={tmp_path / 'runs'}"])
    assert done.exit_code == 2
    assert re.search(r"a checkpoint as it is now \([\d.]+ kB\) cannot be written: 0 B are free: make room", done.stderr)
    assert not re.search(r"^run \S", done.stderr, re.M), done.stderr
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.usefixtures("no_room")
def test_a_checkpoint_without_room_writes_nothing(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(FileError, match=r"the checkpoint \([\d.]+ kB\) cannot be written: 0 B are free"):
        checkpoint.save(tmp_path / "c", model, None, {}, checkpoint.Saved({}, None, {}))
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_whose_predecessor_cannot_be_removed_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = tmp_path / "c", nn.Linear(2, 1)
    checkpoint.save(folder, model, None, {}, checkpoint.Saved({"samples": 1}, None, {}))
    real = os.rmdir

    def kept(path: str, **where: int) -> None:
        if Path(path).name.startswith("c"):
            raise PermissionError(13, "Permission denied")
        real(path, **where)

    monkeypatch.setattr(os, "rmdir", kept)
    checkpoint.save(folder, model, None, {}, checkpoint.Saved({"samples": 2}, None, {}))
    assert checkpoint.peek(folder).counters == {"samples": 2}


def test_a_resumed_run_leaves_the_unfinished_files_of_other_commands(tmp_path: Path) -> None:
    predictions, own = tmp_path / ".out.csv.4711.part", tmp_path / "report.html.part"
    for path in (predictions, own):
        path.touch()
    discard_unfinished(tmp_path)
    assert predictions.exists()
    assert not own.exists()


def test_a_file_behind_a_link_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    inode = target.stat().st_ino
    write_text(link, "after", "the report")
    assert link.is_symlink()
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("after", 0o640)
    assert target.stat().st_ino != inode  # not written in place, where a full disk would cut it
