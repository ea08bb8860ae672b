"""Rows as frames: what was packed comes back, in place where it can; what does not fit is told before it is read."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hotrow.errors import InputError
from hotrow.store.kernels import decode_rows, encode_rows
from hotrow.transport.frames import RowBlock, Volume, frames_of, pack, unpack
from hotrow.transport.messages import RowBlockHeader
from hotrow.types import Values

DIMS = {"item": 3, "user": 2}


def rows(count: int, dim: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def keys(count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.arange(count, dtype=np.uint64) + np.uint64(2**63)


def full_block(count: int = 5) -> RowBlock:
    return RowBlock("item", keys(count), rows(count, 3), np.arange(count, dtype=np.uint32))


@pytest.mark.parametrize("values", ["fp32", "fp16-scaled"])
@given(data=st.data())
def test_what_was_packed_comes_back(values: Values, data: st.DataObject) -> None:
    blocks = []
    for name, dim in DIMS.items():
        count = data.draw(st.integers(0, 9))
        has = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any))
        blocks.append(
            RowBlock(
                name,
                keys(count) if has[0] else None,
                rows(count, dim) if has[1] else None,
                np.arange(count, dtype=np.uint32) if has[2] else None,
                dim=dim,
            )
        )
    heads, frames = pack(blocks, values)
    assert len(frames) == frames_of(heads)
    sent = [memoryview(bytes(frame)) for frame in frames]  # as on the other side
    for given_block, head, back in zip(blocks, heads, unpack(heads, sent, DIMS), strict=True):
        assert (back.table, back.dim, head.dim) == (given_block.table, DIMS[back.table], DIMS[back.table])
        assert same(back.keys, given_block.keys)
        assert same(back.versions, given_block.versions)
        if given_block.values is None or values == "fp32":
            assert same(back.values, given_block.values)
        else:
            assert same(back.values, decode_rows(*encode_rows(given_block.values)))
    total = sum(len(frame) for frame in sent)
    assert Volume.of_sent(heads).sent == Volume.of_received(heads).received == total


def same(one: Any, other: Any) -> bool:
    return (one is None and other is None) or np.array_equal(one, other)


def test_float32_keys_and_versions_are_neither_copied_out_nor_in() -> None:
    block = full_block()
    heads, frames = pack([block], "fp32")
    for frame, column in zip(frames, (block.keys, block.values, block.versions), strict=True):
        assert np.shares_memory(frame, column)
    (back,) = unpack(heads, frames, DIMS)
    assert np.shares_memory(back.keys, frames[0])
    assert np.shares_memory(back.values, frames[1])
    assert np.shares_memory(back.versions, frames[2])


def test_tensors_are_taken_as_arrays_are() -> None:
    ids, values = torch.arange(4), torch.randn(4, 3)
    heads, frames = pack([RowBlock("item", ids, values)], "fp32")
    (back,) = unpack(heads, frames, DIMS)
    assert same(back.keys, ids.numpy().view(np.uint64))
    assert same(back.values, values.numpy())


def test_a_frame_that_lies_crooked_is_straightened() -> None:
    heads, frames = pack([full_block()], "fp32")
    crooked = [memoryview(b"x" + bytes(frame))[1:] for frame in frames]
    (back,) = unpack(heads, crooked, DIMS)
    assert all(np.asarray(column).flags.aligned for column in (back.keys, back.values, back.versions))
    assert same(back.values, full_block().values)


@pytest.mark.parametrize("values", ["fp32", "fp16-scaled"])
def test_rows_are_put_into_given_slices(values: Values) -> None:
    heads, frames = pack([full_block(), RowBlock("user", keys(1), dim=2)], values)
    room = np.zeros((9, 3), np.float32)
    first, second = unpack(heads, frames, DIMS, out=[room[2:7], None])
    assert np.shares_memory(first.values, room)
    assert same(room[2:7], unpack(heads, frames, DIMS)[0].values)
    assert not room[:2].any()
    assert not room[7:].any()
    assert second.values is None
    with pytest.raises(InputError, match=r"out is \(4, 3\), expected \(5, 3\)"):
        unpack(heads, frames, DIMS, out=[room[:4], None])
    with pytest.raises(InputError, match="1 buffers for 2 blocks"):
        unpack(heads, frames, DIMS, out=[room])


@pytest.mark.parametrize("values", ["fp32", "fp16-scaled"])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_frame_too_short_or_too_long_is_refused(values: Values, change: int) -> None:
    heads, frames = pack([full_block()], values)
    for place in range(len(frames)):
        wrong = [bytes(frame) for frame in frames]
        wrong[place] = wrong[place][:-1] if change < 0 else wrong[place] + b"x"
        with pytest.raises(InputError, match=r"of 5 rows are \d+ bytes, \d+ came"):
            unpack(heads, wrong, DIMS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rows": 2**31}, "of 2,147,483,648 rows"),
        ({"rows": 4}, "of 4 rows are 32 bytes, 40 came"),
        ({"dim": 65_536}, "rows came 65536 wide, they are 3 wide"),
        ({"dim": 2}, "rows came 2 wide, they are 3 wide"),
        ({"table": "items"}, "no such table; there are: item, user"),
        ({"versions": False}, "3 frames came for blocks that have 2"),
        ({"values": "fp16-scaled"}, "3 frames came for blocks that have 4"),
        ({"values": None}, "3 frames came for blocks that have 2"),
    ],
)
def test_a_header_that_does_not_fit_its_frames_is_refused(change: dict[str, Any], sentence: str) -> None:
    (head,), frames = pack([full_block()], "fp32")
    with pytest.raises(InputError, match=sentence):
        unpack([replace(head, **change)], frames, DIMS)


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        (RowBlock("item", keys(2), rows(3, 3)), r"columns of \[2, 3\] rows"),
        (RowBlock("item", keys(2)), "dim None"),
        (RowBlock("item", dim=3), r"columns of \[\] rows"),
        (RowBlock("item", keys(2), rows(2, 3), dim=4), "values are 3 wide, dim says 4"),
        (RowBlock("item", keys(2), rows(2, 3).astype(np.float64)), "float64: must be float32"),
        (RowBlock("item", keys(2), rows(2, 6)[:, ::2]), "not contiguous"),
        (RowBlock("item", np.arange(2, dtype=np.int32), dim=3), "int32: must be uint64"),
    ],
)
def test_what_cannot_be_packed_is_told(block: RowBlock, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        pack([block], "fp32")


def test_volume_counts_both_ways_and_plain_ids_by_occurrence() -> None:
    block = RowBlockHeader("item", 10, 16, True, "fp16-scaled", True)
    sent = Volume.of_sent([block], ids=35)
    assert sent == Volume(10 * 8 + 10 * 32 + 10 * 4 + 10 * 4, 10 * 64 + 10 * 4 + 35 * 8)
    assert sent + Volume.of_received([block]) == Volume(480, 960, 480, 680)
