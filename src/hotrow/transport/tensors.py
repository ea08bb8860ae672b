"""Dense tensors in frames, each in one or, where it is longer than a frame may be, in several."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from hotrow.errors import InputError
from hotrow.transport.envelope import Buffer, lent


def cut(buffers: Iterable[Buffer], most: int) -> list[memoryview]:
    """Each buffer as frames of at most `most` bytes, without a copy; an empty one is an empty frame."""
    frames = []
    for view in lent(buffers):
        if view.nbytes <= most:
            frames.append(view)
        else:
            flat = view.cast("B")
            frames += [flat[start : start + most] for start in range(0, flat.nbytes, most)]
    return frames


def joined(frames: Sequence[memoryview]) -> bytes:
    """The one buffer that these frames hold."""
    return b"".join(frames)


def tensors_of(frames: Sequence[memoryview], likes: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in frames, with the types and shapes of `likes`; copies, since frames may not be written."""
    sizes = [like.numel() * like.element_size() for like in likes]
    came = sum(frame.nbytes for frame in frames)
    if len(frames) < len(likes) or came != sum(sizes):
        message = f"{len(frames)} frames of dense tensors came with {came:,} bytes"
        raise InputError(f"{message}, expected {len(likes)} tensors of {sum(sizes):,}")
    found, left = [], list(reversed(frames))
    for like, size in zip(likes, sizes, strict=True):
        mine = [left.pop()] if left else []
        while left and sum(frame.nbytes for frame in mine) < size:
            mine.append(left.pop())
        if not mine or (length := sum(frame.nbytes for frame in mine)) != size:
            raise InputError(f"a tensor of {length if mine else 0:,} bytes came, expected {size:,} for {like.shape}")
        found.append(_tensor(mine, size, like))
    if left:
        raise InputError(f"{len(left)} frames came after the last dense tensor")
    return found


def _tensor(frames: Sequence[memoryview], size: int, like: Tensor) -> Tensor:
    if size == 0:
        return torch.empty_like(like)
    bytes_of = np.empty(size, np.uint8)
    start = 0
    for frame in frames:
        bytes_of[start : start + frame.nbytes] = np.frombuffer(frame, np.uint8)
        start += frame.nbytes
    return torch.from_numpy(bytes_of).view(like.dtype).view(like.shape)
