"""TensorBoard files, read back by their record framing: length, checksum, event, checksum."""

import math
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from hotrow.obs.tensorboard import TensorBoard, tag

CASTAGNOLI = 0x82F63B78


def masked_crc(data: bytes) -> int:
    """CRC-32C bit by bit, rotated and shifted as the record format asks."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (CASTAGNOLI if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path: Path) -> Iterator[bytes]:
    data, start = path.read_bytes(), 0
    while start < len(data):
        header = data[start : start + 8]
        (length,) = struct.unpack("<Q", header)
        (header_crc,) = struct.unpack_from("<I", data, start + 8)
        body = data[start + 12 : start + 12 + length]
        (body_crc,) = struct.unpack_from("<I", data, start + 12 + length)
        assert (header_crc, body_crc) == (masked_crc(header), masked_crc(body))
        yield body
        start += 16 + length
    assert start == len(data)


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    found = []
    for path in sorted(folder.iterdir()):
        for body in records(path):
            event = Event.FromString(body)
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return found


def test_values_are_found_at_their_samples_under_their_names(tmp_path: Path) -> None:
    with closing(TensorBoard(tmp_path)) as board:
        board.write(4096, {"train/loss": 0.5, "evaluation/auc{split=valid}": 0.75, "train/auc": None})
        board.write(2**40, {"train/loss": 0.25})
    assert scalars(tmp_path) == [
        (4096, "train/loss", 0.5),
        (4096, "evaluation/auc/valid", 0.75),
        (2**40, "train/loss", 0.25),
    ]


def test_numbers_that_are_not_finite_are_shown_as_such(tmp_path: Path) -> None:
    with closing(TensorBoard(tmp_path)) as board:
        board.write(1, {"train/loss": math.nan})
    ((_, _, value),) = scalars(tmp_path)
    assert math.isnan(value)


def test_a_resumed_run_adds_a_file_and_overwrites_none(tmp_path: Path) -> None:
    for samples in (1, 2):
        with closing(TensorBoard(tmp_path)) as board:
            board.write(samples, {"train/loss": 0.5})
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(samples for samples, _, _ in scalars(tmp_path)) == [1, 2]


@pytest.mark.parametrize(
    ("series", "expected"),
    [("a/b", "a/b"), ("a/b{x=1}", "a/b/1"), ("a/b{x=1,y=two}", "a/b/1/two"), ("a/b{table=x=y}", "a/b/x=y")],
)
def test_labels_become_parts_of_the_path(series: str, expected: str) -> None:
    assert tag(series) == expected
