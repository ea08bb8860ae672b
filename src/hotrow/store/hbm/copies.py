"""Copies between GPU memory and host memory that the trainer's stream does not wait for.

On a GPU they go through pinned buffers on a stream of their own; the thread that asks for them waits, no other does.
On the CPU (Triton's interpreter) rows are where they are needed.
"""

import torch
from torch import Tensor

from hotrow.store.hbm.rows import HbmRows


class SideStream:
    """The stream of copies of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def up(self, rows: HbmRows) -> HbmRows:
        """Rows of the host on the device, complete when the call returns."""
        if self._stream is None:
            return rows
        with torch.cuda.stream(self._stream):
            moved = rows.map(Tensor.pin_memory).to(self.device, non_blocking=True)
        self._stream.synchronize()
        return moved

    def used_here(self, rows: HbmRows) -> HbmRows:
        """Rows that `up` returned, for use in the current stream: their memory is not given away before it is done."""
        return rows if self._stream is None else rows.map(_recorded(torch.cuda.current_stream(self.device)))

    def mark(self) -> "torch.cuda.Event | None":
        """The moment in the current stream from which rows for `down` are there."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def down(self, rows: HbmRows, since: "torch.cuda.Event | None") -> HbmRows:
        """Rows of the device on the host, complete when the call returns."""
        if self._stream is None or since is None:
            return rows
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(since)
            host = rows.map(_recorded(self._stream)).map(_to_pinned)
        self._stream.synchronize()
        return host


def _to_pinned(column: Tensor) -> Tensor:
    return torch.empty(column.shape, dtype=column.dtype, pin_memory=True).copy_(column, non_blocking=True)


class _recorded:
    """Tells torch that a stream uses a column, so that its memory is kept until then."""

    def __init__(self, stream: "torch.cuda.Stream") -> None:
        self.stream = stream

    def __call__(self, column: Tensor) -> Tensor:
        column.record_stream(self.stream)
        return column
