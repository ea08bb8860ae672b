"""Arrays of the host to a device and back, beside the work that the device is doing.

Several arrays travel in one copy, on a GPU through pinned memory and on a stream of their own. What comes back has
arrived when the call returns; what goes there is ready for the current stream, and no thread waits for it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.client.device_arrays import PackedArrays

Array = NDArray[Any]


class DeviceCopies:
    """Copies to and from one device, and their bytes. Thread-safe."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes_up = self.bytes_down = 0
        self._counting = threading.Lock()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def up(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Arrays of int64, uint32 (as int32 of the same bits) or float32, on the device."""
        packed = PackedArrays.of([[each] for each in arrays], pinned=self._stream is not None)
        with self._counting:
            self.bytes_up += len(packed.block)
        return packed.views(self._moved(packed.block))

    def _moved(self, joined: Tensor) -> Tensor:
        if self._stream is None:
            return joined
        here = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._stream):
            moved = joined.to(self.device, non_blocking=True)
        here.wait_stream(self._stream)
        moved.record_stream(here)
        return moved

    def mark(self) -> "torch.cuda.Event | None":
        """What the current stream was given so far, for `beside`."""
        return None if self._stream is None else torch.cuda.current_stream(self.device).record_event()

    @contextmanager
    def beside(self, since: "torch.cuda.Event | None") -> Iterator[None]:
        """Work on the stream of copies, after what a mark stands for. It is done when the block ends."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            if since is not None:
                self._stream.wait_event(since)
            yield
            self._stream.synchronize()

    def down(self, tensors: Sequence[Tensor]) -> list[Array]:
        """Tensors on the host, once the current stream has come to them. The shapes stay; int32 comes as uint32."""
        flat = torch.cat([each.contiguous().view(-1).view(torch.uint8) for each in tensors])
        with self._counting:
            self.bytes_down += len(flat)
        if self._stream is not None:
            pinned = torch.empty(flat.shape, dtype=torch.uint8, pin_memory=True)
            pinned.copy_(flat, non_blocking=True)
            torch.cuda.current_stream(self.device).synchronize()
            flat = pinned
        starts = accumulate((each.nbytes for each in tensors), initial=0)
        kinds = {torch.int32: np.uint32, torch.float32: np.float32, torch.bool: np.bool_}
        return [
            flat[start : start + each.nbytes].numpy().view(kinds[each.dtype]).reshape(each.shape)
            for start, each in zip(starts, tensors, strict=False)
        ]
