"""Whatever bytes a segment's file has: a sentence, or an attach whose pieces lie inside the file. Never a signal."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow._native import Segment
from hotrow.errors import SegmentError

HEADER = 4096
PUSHES = 65_536 * 8
PIECES_AT = HEADER + PUSHES
IDENTITY = [("dim", "16"), ("optimizer", "adagrad")]
SIZES = (100, 700_000, 1_500_000, 64)  # the third needs a second block


def attach(path: Path) -> Segment:
    return Segment(str(path), IDENTITY, huge=False, keep=True)


def piece_places() -> list[int]:
    """Where the headers of the pieces lie; the gap at the end of the first block among them."""
    second = PIECES_AT + 64 + 128
    gap = second + 64 + 700_032
    block = 2 * 2**20
    return [PIECES_AT, second, gap, block, block + 64 + 1_500_032]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A sound file with four pieces, filled with 0xff, and three pushes."""
    path = tmp_path_factory.mktemp("image") / "a.rows"
    segment = attach(path)
    for number, size in enumerate(SIZES):
        segment.allocate(number, 0, 1, size)[:] = 255
    for grant in (1, 2, 70_000):
        segment.push_begin(grant)
    segment.push_finish(2)
    segment.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage") / "a.rows"


def attaches(path: Path, content: bytes) -> str:
    """The sentence of the refusal; or empty, after every piece was written to its last byte."""
    path.write_bytes(content)
    path.chmod(0o600)
    try:
        segment = attach(path)
    except SegmentError as error:
        assert path.read_bytes() == content, "a refusal must leave the file alone"
        return str(error)
    for number, (_, _, _, size) in enumerate(segment.pieces()):
        piece = segment.piece(number)
        assert len(piece) == size
        piece[:] = 1
    assert not segment.allocate(0, 0, 1, 3_000_000).any()
    segment.close()
    return ""


def patched(image: bytes, offset: int, change: bytes) -> bytes:
    return image[:offset] + change + image[offset + len(change) :]


def test_the_image_is_sound_and_lies_as_described(image: bytes, path: Path) -> None:
    magic, version, header, pieces_at, entries, identity_bytes = struct.unpack_from("<8sIIQII", image)
    assert (magic, version, header, pieces_at, entries) == (b"hotrowsg", 1, HEADER, PIECES_AT, 65_536)
    assert image[56 : 56 + identity_bytes] == b"dim=16\noptimizer=adagrad\n"
    magics = [image[place : place + 8] for place in piece_places()]
    assert magics == [b"hotrowpc", b"hotrowpc", b"hotrowgp", b"hotrowpc", b"hotrowpc"]
    assert attaches(path, image) == ""


@pytest.mark.parametrize("cut", [1, 7, 8, 55, 4095, 4096, PIECES_AT - 1, PIECES_AT, PIECES_AT + 63])
def test_a_file_cut_near_its_start_is_called_truncated(image: bytes, path: Path, cut: int) -> None:
    assert "truncated" in attaches(path, image[:cut])


def test_a_file_cut_at_or_near_any_piece_is_called_truncated(image: bytes, path: Path) -> None:
    for place in piece_places():
        for cut in (place - 64, place - 1, place, place + 1, place + 63, place + 64, place + 65):
            assert f"truncated, it has {cut} bytes" in attaches(path, image[:cut])
    assert "truncated" in attaches(path, image[:-1])


def test_a_file_cut_where_the_header_does_not_know_is_still_called_truncated(image: bytes, path: Path) -> None:
    short = patched(image, 40, struct.pack("<Q", 0))  # as after a lost page
    assert "truncated" in attaches(path, short[: piece_places()[3] + 1000])
    for number, place in ((2, piece_places()[1]), (4, piece_places()[4])):
        assert f"damaged at byte {place} (piece {number} of 4 is gone)" in attaches(path, short[:place])


def test_longer_files_serve_and_their_rest_must_be_zero(image: bytes, path: Path) -> None:
    assert attaches(path, image + bytes(100)) == ""
    assert attaches(path, image + bytes(3_000_000)) == ""
    assert f"damaged at byte {len(image) + 99} (something lies behind" in attaches(path, image + bytes(99) + b"x")


def test_an_empty_or_zeroed_file_is_a_making_that_was_cut_off(image: bytes, path: Path) -> None:
    for content in (b"", bytes(10), bytes(4096), bytes(2**21), patched(image[:HEADER], 0, bytes(8))):
        assert attaches(path, content) == ""
    assert "not a segment" in attaches(path, bytes(5000) + b"x")
    assert "not a segment" in attaches(path, patched(image, 0, bytes(8)))  # it was used, so it is not made anew


def test_other_files_are_not_taken_for_segments(path: Path) -> None:
    for content in (b"x", b"hotrows!", b"PK\x03\x04" * 5000):
        assert "not a segment" in attaches(path, content)


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_format_version_is_named(image: bytes, path: Path, version: int) -> None:
    sentence = attaches(path, patched(image, 8, struct.pack("<I", version)))
    assert f"has format version {version}, this Hotrow knows version 1" in sentence


@given(data=st.data())
def test_any_change_of_the_header_is_refused_or_harmless(image: bytes, path: Path, data: st.DataObject) -> None:
    used = 56 + len(b"dim=16\noptimizer=adagrad\n")
    offset = data.draw(st.integers(0, used - 1))
    change = data.draw(st.binary(min_size=1, max_size=min(16, used - offset)))
    changed = patched(image, offset, change)
    sentence = attaches(path, changed)
    if changed[:40] + changed[56:] != image[:40] + image[56:]:  # all but what was reached so far, and the owner
        assert sentence


@given(data=st.data())
def test_any_change_of_a_piece_header_is_refused_at_its_byte(image: bytes, path: Path, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(piece_places()))
    offset = data.draw(st.integers(0, 39))  # magic, tag, size, checksum
    change = data.draw(st.binary(min_size=1, max_size=40 - offset))
    changed = patched(image, place + offset, change)
    sentence = attaches(path, changed)
    hole = slice(place + 20, place + 24)  # unused
    if changed[: hole.start] + changed[hole.stop :] == image[: hole.start] + image[hole.stop :]:
        assert sentence == ""
    elif changed[place : place + 8] == bytes(8):  # the end of the pieces, as it were
        assert f"damaged at byte {place} (" in sentence
    else:
        assert f"damaged at byte {place} (the header of a piece)" in sentence


@given(size=st.integers(0, 2**64 - 1))
def test_sizes_are_checked_even_under_a_right_checksum(image: bytes, path: Path, size: int) -> None:
    place = piece_places()[3]
    magic, *tag = struct.unpack_from("<QIII", image, place)
    header = struct.pack("<QIIIIQQ", magic, *tag, 0, size, checksum(place, magic, *tag, size))
    sentence = attaches(path, patched(image, place, header))
    if size > len(image) - place - 64:
        assert "truncated" in sentence


def checksum(*words: int) -> int:
    """The twin of the native checksum of a piece header."""
    most = 2**64 - 1
    total = words[0]
    for word in words[1:]:
        mixed = total ^ word
        for _ in range(2):
            mixed = ((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93) & most
        total = ((mixed ^ mixed >> 32) + 0x9E3779B97F4A7C15) & most
    return total


@given(
    slot=st.integers(0, 65_535),
    entry=st.one_of(
        st.integers(0, 2**64 - 1), st.builds(lambda n, m: n * 2**18 + m, st.integers(0, 9), st.integers(0, 9))
    ),
)
def test_entries_of_the_push_log_are_checked(image: bytes, path: Path, slot: int, entry: int) -> None:
    sentence = attaches(path, patched(image, HEADER + 8 * slot, struct.pack("<Q", entry)))
    grant = entry // 4
    sound = entry == 0 or (grant > 0 and grant % 65_536 == slot)
    assert sentence == "" if sound else f"damaged at byte {HEADER + 8 * slot}" in sentence


@given(content=st.binary(max_size=9000), magic=st.booleans(), version=st.booleans())
def test_random_files_are_refused(path: Path, content: bytes, magic: bool, version: bool) -> None:
    start = b"hotrowsg" * magic + struct.pack("<I", 1) * (magic and version)
    sentence = attaches(path, start + content)
    assert sentence or not any(start + content[:8])


@given(data=st.data())
def test_changes_anywhere_never_lead_outside_the_file(image: bytes, path: Path, data: st.DataObject) -> None:
    changed = bytearray(image)
    for _ in range(data.draw(st.integers(1, 5))):
        offset = data.draw(st.integers(0, len(image) - 1))
        changed[offset] ^= data.draw(st.integers(1, 255))
    attaches(path, bytes(changed))
