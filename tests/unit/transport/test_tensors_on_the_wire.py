"""Dense tensors in frames: whatever the longest frame is, they come back as they were, or are refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from hotrow.errors import InputError
from hotrow.transport.tensors import cut, joined, tensors_of

KINDS = [torch.float32, torch.float64, torch.int64, torch.bool, torch.float16]


def tensors(sizes: list[tuple[int, int]]) -> list[Tensor]:
    chance = torch.Generator().manual_seed(len(sizes))
    return [torch.randn(size, 2, generator=chance).to(KINDS[kind]) for size, kind in sizes]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=6), st.integers(1, 200))
def test_tensors_come_back_as_they_were(sizes: list[tuple[int, int]], most: int) -> None:
    given_ones = tensors(sizes)
    frames = cut(given_ones, most)
    assert all(frame.nbytes <= most for frame in frames)
    for ours, theirs in zip(tensors_of(frames, given_ones), given_ones, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    assert joined(cut([joined(frames)], most)) == joined(frames)


@pytest.mark.parametrize(("most", "frames"), [(16, 1), (15, 2), (8, 2), (7, 3)])
def test_a_tensor_is_cut_where_it_is_longer_than_a_frame(most: int, frames: int) -> None:
    assert len(cut([torch.ones(4)], most)) == frames


def test_what_comes_is_a_copy_that_may_be_written() -> None:
    given_ones = [torch.ones(4)]
    found = tensors_of(cut(given_ones, 8), given_ones)
    found[0].add_(1)
    assert given_ones[0].tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([16], "1 frames of dense tensors came with 16 bytes, expected 2 tensors of 24"),
        ([24], "1 frames of dense tensors came with 24 bytes, expected 2 tensors of 24"),
        ([16, 9], "2 frames of dense tensors came with 25 bytes, expected 2 tensors of 24"),
        ([8, 16], "a tensor of 24 bytes came, expected 16 for"),
        ([16, 8, 0], "1 frames came after the last dense tensor"),
        ([], "0 frames of dense tensors came"),
    ],
)
def test_frames_that_are_not_the_tensors_are_refused(lengths: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tensors_of([memoryview(bytes(length)) for length in lengths], [torch.ones(4), torch.ones(2)])
