"""Segments keep pieces for the next process, and a file that is not what it should be is refused with a sentence.

Damage of every kind stands in test_segment_damage.py, processes that die in tests/integration/test_segment_kill.py.
"""

import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hotrow._native import Segment
from hotrow.errors import SegmentError

IDENTITY = {"dim": "16", "optimizer": "adagrad", "seed": "0"}
MB = 2**20
FIRST_BLOCK = 2 * MB


def open_segment(path: Path, fields: dict[str, str] | None = None, *, keep: bool = True, huge: bool = False) -> Segment:
    return Segment(str(path), list({**IDENTITY, **(fields or {})}.items()), huge, keep)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hotrow-run-table.rows"


def test_a_new_segment_gives_zeroed_aligned_memory(path: Path) -> None:
    segment = open_segment(path)
    assert not segment.attached
    assert segment.bytes == path.stat().st_size == FIRST_BLOCK
    for size in (1, 63, 64, 65, 1000):
        memory = segment.allocate(0, 0, 1, size)
        assert memory.shape == (size,)
        assert memory.ctypes.data % 64 == 0
        assert not memory.any()
        memory[:] = 255  # no other piece may see it


def test_the_next_process_finds_every_piece_with_its_tag_and_its_bytes(path: Path) -> None:
    sizes = [1, 64, 100_000, MB, 3 * MB, 7, 20 * MB, 5 * MB, 64]  # across blocks, and one larger than any block
    first = open_segment(path)
    for number, size in enumerate(sizes):
        first.allocate(number, number * 10, 2**32 - 1 - number, size)[:] = number + 1
    size_at_end = first.bytes
    first.close()
    for _ in range(2):  # and the one after it
        second = open_segment(path)
        assert second.attached
        assert second.bytes == size_at_end
        assert second.pieces() == [(n, n * 10, 2**32 - 1 - n, size) for n, size in enumerate(sizes)]
        for number, size in enumerate(sizes):
            np.testing.assert_array_equal(second.piece(number), np.full(size, number + 1, np.uint8))
        second.close()


def test_pieces_can_be_added_after_an_attach(path: Path) -> None:
    for round_ in range(5):
        segment = open_segment(path)
        assert len(segment.pieces()) == 4 * round_
        for number in range(4):
            memory = segment.allocate(round_, number, 1, 700_000)
            assert not memory.any()
            memory[:] = round_ + 1
        segment.close()
    segment = open_segment(path)
    assert [int(segment.piece(n).min()) for n in range(20)] == [n // 4 + 1 for n in range(20)]


def test_memory_outlives_close_as_long_as_an_array_shows_it(path: Path) -> None:
    segment = open_segment(path, keep=False)
    memory = segment.allocate(0, 0, 1, 100)
    segment.close()
    assert not path.exists()
    with pytest.raises(SegmentError, match="is closed"):
        segment.allocate(0, 0, 1, 100)
    del segment
    gc.collect()
    memory[:] = 7
    assert memory.sum() == 700


@pytest.mark.parametrize("keep", [False, True])
def test_the_file_stays_only_where_it_is_to_be_kept(path: Path, keep: bool) -> None:
    segment = open_segment(path, keep=keep)
    assert path.exists()
    del segment
    gc.collect()
    assert path.exists() == keep


def test_a_segment_that_could_not_be_used_is_left_even_where_it_was_not_to_be_kept(path: Path) -> None:
    open_segment(path).close()
    segment = open_segment(path, keep=False)
    segment.leave()
    segment.close()
    assert path.exists()
    assert open_segment(path, keep=False).attached


def test_a_file_put_in_its_place_by_somebody_else_is_not_removed(path: Path) -> None:
    segment = open_segment(path, keep=False)
    path.unlink()
    path.write_text("mine")
    segment.close()
    assert path.read_text() == "mine"


def test_a_segment_in_use_is_refused_with_its_owner(path: Path) -> None:
    segment = open_segment(path)
    with pytest.raises(SegmentError, match="in use by this process"):
        open_segment(path)
    segment.close()
    open_segment(path)


@pytest.mark.parametrize(("field", "value"), [("dim", "32"), ("optimizer", "adam"), ("seed", "")])
def test_a_field_that_differs_is_named_with_both_values(path: Path, field: str, value: str) -> None:
    open_segment(path).close()
    with pytest.raises(SegmentError) as refused:
        open_segment(path, {field: value}, keep=False)
    assert f"{field} is {IDENTITY[field]} there and {value} here" in str(refused.value)
    assert f"hotrow segments remove {path}" in str(refused.value)
    assert path.exists()  # a refusal leaves the rows alone


def test_fields_that_one_side_lacks_are_named_too(path: Path) -> None:
    open_segment(path, {"clock": "yes"}).close()
    with pytest.raises(SegmentError, match="clock is yes there and not given here"):
        open_segment(path)
    with pytest.raises(SegmentError, match="type is not given there and float16 here"):
        open_segment(path, {"clock": "yes", "type": "float16"})


def test_an_identity_that_cannot_be_written_down_leaves_no_file(path: Path) -> None:
    for fields, sentence in (({"a": "x\ny"}, "'a'"), ({"b": "x" * 5000}, "room for")):
        with pytest.raises(SegmentError, match=sentence):
            open_segment(path, fields)
        assert not path.exists()
    open_segment(path, {"equals": "a=b=c"}).close()
    assert open_segment(path, {"equals": "a=b=c"}).attached


def test_what_cannot_be_a_segment_is_told(tmp_path: Path) -> None:
    with pytest.raises(SegmentError, match="make its directory first"):
        open_segment(tmp_path / "missing" / "x.rows")
    with pytest.raises(SegmentError, match="directory"):
        open_segment(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SegmentError, match="not a plain file"):
        open_segment(tmp_path / "pipe")
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(SegmentError, match="cannot be opened"):
        open_segment(tmp_path / "link")


def test_impossible_pieces_are_refused(path: Path) -> None:
    segment = open_segment(path)
    for size in (0, 2**46 + 1, 2**64 - 1):
        with pytest.raises(SegmentError, match="cannot be"):
            segment.allocate(0, 0, 1, size)
    with pytest.raises(IndexError):
        segment.piece(0)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_no_room_is_a_sentence_and_what_was_there_stays(mounted: Path) -> None:
    path = mounted / "a.rows"
    segment = open_segment(path)
    memory = segment.allocate(1, 0, 1, 3 * MB)
    memory[:] = 1
    before = segment.bytes
    for _ in range(2):
        with pytest.raises(SegmentError, match=r"no room for 4096 KiB more, .* left .*: make room"):
            segment.allocate(2, 0, 1, 4 * MB - 64)
    assert segment.bytes == path.stat().st_size == before
    segment.allocate(3, 0, 1, MB - 64)[:] = 3  # the rest of the block still serves, to its last byte
    with pytest.raises(SegmentError, match="no room"):
        open_segment(mounted / "b.rows")
    assert not (mounted / "b.rows").exists()
    segment.close()
    assert [tag[0] for tag in open_segment(path).pieces()] == [1, 3]


def test_holes_are_filled_before_memory_is_given_out(mounted: Path) -> None:
    path = mounted / "a.rows"
    segment = open_segment(path)
    segment.allocate(0, 0, 1, 3 * MB)
    segment.close()
    image = path.read_bytes()
    with path.open("r+b") as file:  # as a copy that leaves zeros out
        file.truncate(0)
        file.write(image[: 2 * MB + 64])  # to the header of the piece
        file.truncate(len(image))
    (mounted / "other").write_bytes(b"x" * (5 * MB))
    with pytest.raises(SegmentError, match="no room"):
        open_segment(path)
    (mounted / "other").unlink()
    open_segment(path).piece(0)[:] = 1


@pytest.fixture
def huge_pages(tmp_path: Path) -> Iterator[Path]:
    """A mount of hugetlbfs with four free pages of 2 MB."""
    reserved = Path("/proc/sys/vm/nr_hugepages")
    folder = tmp_path / "huge"
    folder.mkdir()
    before = int(reserved.read_text()) if reserved.exists() else 0
    mounting = ["mount", "-t", "hugetlbfs", "-o", "pagesize=2M,size=8M", "none", str(folder)]
    if not os.access(reserved, os.W_OK) or subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount hugetlbfs and to reserve pages")
    try:
        reserved.write_text(str(before + 4))
        if int(reserved.read_text()) < before + 4:
            pytest.skip("the system has no four huge pages left")
        yield folder
    finally:
        gc.collect()
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        reserved.write_text(str(before))


def test_segments_live_on_huge_pages(huge_pages: Path) -> None:
    path = huge_pages / "a.rows"
    segment = open_segment(path, huge=True)
    segment.allocate(1, 0, 1, MB)[:] = 1
    segment.allocate(2, 0, 1, MB)[:] = 2  # a second block
    assert segment.bytes % (2 * MB) == 0
    with pytest.raises(SegmentError, match=r"no free huge pages .* /proc/sys/vm/nr_hugepages"):
        segment.allocate(3, 0, 1, 20 * MB)
    segment.close()
    again = open_segment(path, huge=True, keep=False)
    assert [int(again.piece(n).min()) for n in range(2)] == [1, 2]
    again.close()
    assert not path.exists()


def test_huge_without_hugetlbfs_is_refused_and_leaves_no_file(path: Path) -> None:
    with pytest.raises(SegmentError, match=r"huge=True, .* not on hugetlbfs: mount one"):
        open_segment(path, huge=True)
    assert not path.exists()
