"""Segments by name: the path of a table's file, what a listing tells, and what may be removed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow import _native
from hotrow.errors import ConfigError, SegmentError
from hotrow.store import segments
from hotrow.store.segments import list_segments, remove_segment, segment_path

# A process that has a segment, and says so.
HOLDER = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
segment = native.Segment(sys.argv[2], [("table", "held")], False, False)
print("ready", flush=True)
time.sleep(60)
"""


def make(path: Path, *, kept: bool = True, **identity: str) -> Path:
    """A file as a clean exit leaves it, or as a death does."""
    segment = _native.Segment(str(path), list(identity.items()), huge=False, keep=True)
    if kept:
        segment.close()
        return path
    dead = path.read_bytes()
    segment.close()
    path.write_bytes(dead)
    return path


def hold(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, _native.__file__, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def test_a_path_is_made_of_run_and_table(tmp_path: Path) -> None:
    assert segment_path("r1", "item") == Path("/dev/shm/hotrow-r1-item.rows")
    assert segment_path("r1", "item", tmp_path) == tmp_path / "hotrow-r1-item.rows"
    assert segment_path("r1", "item", tmp_path, huge=True) == tmp_path / "hotrow-r1-item.rows"


@pytest.mark.parametrize("name", ["", "a/b", "..\n", "x" * 65, "a b"])
def test_names_that_fit_no_file_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="run="):
        segment_path(name, "item")
    with pytest.raises(ConfigError, match="table="):
        segment_path("r1", name)


def test_huge_segments_go_to_the_first_mount_of_hugetlbfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MOUNTS", tmp_path / "mounts")
    with pytest.raises(ConfigError, match="hugetlbfs is not mounted"):
        segment_path("r1", "item", huge=True)
    (tmp_path / "mounts").write_text(
        "tmpfs /dev/shm tmpfs rw 0 0\nnone /mnt/huge\\040pages hugetlbfs rw 0 0\nnone /mnt/second hugetlbfs rw 0 0\n"
    )
    assert segment_path("r1", "item", huge=True) == Path("/mnt/huge pages/hotrow-r1-item.rows")
    assert segments.default_directories() == [Path("/dev/shm"), Path("/mnt/huge pages"), Path("/mnt/second")]


def test_a_listing_tells_what_each_file_is(tmp_path: Path) -> None:
    kept = make(tmp_path / "hotrow-a-kept.rows", dim="16")
    dead = make(tmp_path / "hotrow-b-x-dead.rows", kept=False, table="x-dead")
    (tmp_path / "hotrow-c-cut.rows").write_bytes(dead.read_bytes()[:5000])
    (tmp_path / "hotrow-c-cut.rows").chmod(0o600)
    (tmp_path / "hotrow-d-empty.rows").touch(0o600)  # its making was cut off
    (tmp_path / "other.rows").touch()
    process = hold(tmp_path / "hotrow-e-held.rows")
    found = {info.path.name: info for info in list_segments(tmp_path)}
    process.kill()
    process.wait()
    assert [(info.run, info.table, info.state) for info in found.values()] == [
        ("a", "kept", "kept"),
        ("b", "x-dead", "left behind"),
        ("c", "cut", "damaged"),
        ("d", "empty", "left behind"),
        ("e", "held", f"in use by {process.pid}"),
    ]
    assert found[kept.name].identity == {"dim": "16"}
    assert found[kept.name].bytes == kept.stat().st_size
    assert 0 <= found[kept.name].age_s < 60
    assert [info.owner for info in found.values()] == [None] * 4 + [process.pid]
    assert "truncated" in (found["hotrow-c-cut.rows"].damaged or "")
    assert {info.path.name: info.state for info in list_segments(tmp_path)}["hotrow-e-held.rows"] == "left behind"


def test_a_listing_does_not_disturb_who_wants_to_attach(tmp_path: Path) -> None:
    path = make(tmp_path / "hotrow-a-b.rows")
    before = path.read_bytes()
    list_segments(tmp_path)
    assert path.read_bytes() == before
    segment = _native.Segment(str(path), [], huge=False, keep=False)
    assert [info.owner for info in list_segments(tmp_path)] == [os.getpid()]
    assert segment.attached


def test_damage_behind_the_header_is_listed_too(tmp_path: Path) -> None:
    path = tmp_path / "hotrow-a-b.rows"
    segment = _native.Segment(str(path), [], huge=False, keep=True)
    segment.allocate(0, 0, 1, 100)
    segment.close()
    image = bytearray(path.read_bytes())
    place = image.index(b"hotrowpc")
    image[place + 8] ^= 1
    path.write_bytes(image)
    (info,) = list_segments(tmp_path)
    assert f"damaged at byte {place}" in (info.damaged or "")


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a directory"):
        list_segments(tmp_path / "missing")


def test_a_segment_in_use_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "hotrow-a-b.rows"
    process = hold(path)
    with pytest.raises(SegmentError, match=f"in use by {process.pid}; end that process first"):
        remove_segment(path)
    assert path.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    remove_segment(path)
    assert not path.exists()


def test_only_files_with_a_segment_s_name_are_removed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SegmentError, match="is not named hotrow-RUN-TABLE"):
        remove_segment(tmp_path / "notes.txt")
    with pytest.raises(SegmentError, match="cannot be opened"):
        remove_segment(tmp_path / "hotrow-a-b.rows")
    assert (tmp_path / "notes.txt").exists()
