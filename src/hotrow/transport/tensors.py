"""Dense tensors in frames."""

import numpy as np
import torch
from torch import Tensor

from hotrow.errors import InputError


def tensor_of(frame: memoryview, like: Tensor) -> Tensor:
    """A tensor in a frame, of the type and shape of another; a copy, since frames may not be written."""
    size = like.numel() * like.element_size()
    if frame.nbytes != size:
        raise InputError(f"a tensor of {frame.nbytes:,} bytes came, expected {size:,} for {tuple(like.shape)}")
    if size == 0:
        return torch.empty_like(like)
    return torch.from_numpy(np.frombuffer(frame, np.uint8).copy()).view(like.dtype).view(like.shape)
