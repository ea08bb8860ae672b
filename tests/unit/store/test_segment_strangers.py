"""Segments lie where everybody may make files: one that is not this user's alone is neither used nor removed."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hotrow import Segment, Table, _native
from hotrow.cli import app
from hotrow.errors import SegmentError
from hotrow.store import RamTier
from hotrow.store.segments import list_segments, remove_segment

STRANGER = 65_534  # nobody
KEYS = np.arange(100, dtype=np.uint64)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file that belongs to somebody else")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table's segment, closed and kept."""
    open_tier(tmp_path).close()
    return tmp_path / "hotrow-r-default.rows"


def open_tier(directory: Path) -> RamTier:
    tier = RamTier(Table(dim=4, segment=Segment(run="r", directory=directory, keep=True)))
    tier.find_or_init(KEYS)
    return tier


def refusal(path: Path) -> str:
    """The sentence; and nothing of the file has changed."""
    before, content = path.lstat(), path.read_bytes()
    with pytest.raises(SegmentError) as refused:
        open_tier(path.parent)
    after = path.lstat()
    assert (after.st_mode, after.st_uid, after.st_size) == (before.st_mode, before.st_uid, before.st_size)
    assert path.read_bytes() == content
    return str(refused.value)


def test_a_fresh_segment_is_for_its_owner_alone(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    open_tier(path.parent).close()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_file_that_gives_others_any_right_is_refused_with_its_mode(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert f"segment {path}: has mode 0{mode:o}, so others may read or change it" in refusal(path)
    (info,) = list_segments(path.parent)
    assert (info.state, f"has mode 0{mode:o}" in (info.damaged or "")) == ("damaged", True)
    path.chmod(0o600)
    open_tier(path.parent).close()


def test_an_empty_file_with_rights_for_others_is_not_made_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "hotrow-r-default.rows"
    path.touch()
    path.chmod(0o666)
    assert "has mode 0666" in refusal(path)


def test_a_file_with_a_second_name_is_refused(path: Path) -> None:
    os.link(path, path.with_name("other"))
    assert "has 2 names (hard links)" in refusal(path)
    path.with_name("other").unlink()
    open_tier(path.parent).close()


def test_links_are_not_followed(path: Path) -> None:
    target = path.rename(path.with_name("target"))
    path.symlink_to(target)
    before = target.read_bytes()
    with pytest.raises(SegmentError, match="cannot be opened"):
        open_tier(path.parent)
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))
    with pytest.raises(SegmentError, match="cannot be opened"):
        open_tier(path.parent)
    assert not path.with_name("nowhere").exists()
    assert target.read_bytes() == before


def test_a_directory_where_every_user_may_replace_files_is_refused(path: Path) -> None:
    folder = path.parent
    folder.chmod(0o777)
    assert f"its directory {folder} has mode 0777, so every user may remove or replace its files" in refusal(path)
    folder.chmod(0o1777)  # sticky, as /dev/shm is
    open_tier(folder).close()


@needs_root
def test_another_user_s_file_is_refused_listed_as_his_and_left(path: Path) -> None:
    os.chown(path, STRANGER, -1)
    assert f"is owned by uid {STRANGER} and this process runs as uid 0: choose another run" in refusal(path)
    (info,) = list_segments(path.parent)
    assert (info.state, info.uid, info.identity) == (f"owned by uid {STRANGER}", STRANGER, {})
    with pytest.raises(SegmentError, match=f"is owned by uid {STRANGER}"):
        remove_segment(path)
    listing = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["segments", "--directory", str(path.parent)])
    assert f"owned by uid {STRANGER}" in listing.stdout
    removing = ["segments", "remove", "--left-behind", "--directory", str(path.parent)]
    assert CliRunner().invoke(app, removing).stdout == "nothing was left behind\n"
    assert path.exists()


SQUATTER = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
native_file = spec.loader.exec_module(native)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
segment = native.Segment(sys.argv[2], [("table", "default")], False, True)
segment.close()
os.chmod(sys.argv[2], 0o666)
"""


@needs_root
def test_a_stranger_who_was_there_first_gets_no_rows(tmp_path: Path) -> None:
    """He makes the file in a sticky directory before us; his rights on it must not become rights on our rows."""
    folder = Path("/dev/shm") / f"hotrow-test-{os.getpid()}"
    folder.mkdir()
    try:
        folder.chmod(0o1777)
        path = folder / "hotrow-r-default.rows"
        subprocess.run([sys.executable, "-c", SQUATTER, str(_native.__file__), str(path)], check=True)
        assert path.stat().st_uid == STRANGER
        assert f"is owned by uid {STRANGER}" in refusal(path)
    finally:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
