"""Copies between GPU memory and host memory that the trainer's stream does not wait for.

On a GPU they are on a stream of their own; the thread that asks for them waits, no other does. Rows of a tier on the
host go through pinned buffers; a tier that takes tensors of the GPU works on that stream itself.
On the CPU (Triton's interpreter) rows are where they are needed.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hotrow.store.hbm.rows import HbmRows

if TYPE_CHECKING:
    from hotrow.store.hbm.lower import LowerTier


class HostTierCalls:
    """Calls of a tier on the host, and the copies of one device that they need."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def executor(self) -> Executor:
        """Of the one thread that calls the tier."""
        return ThreadPoolExecutor(1, thread_name_prefix="hotrow-working-set")

    def keys(self, keys: Tensor) -> tuple[Tensor, "torch.cuda.Event | None"]:
        """Keys as the tier takes them, and from when."""
        return keys.cpu(), None

    def read(self, lower: "LowerTier", keys: Tensor, since: "torch.cuda.Event | None", samples: int) -> HbmRows:
        """Rows of the tier on the device, complete when the call returns."""
        return self.up(lower.read(keys, samples))

    def up(self, rows: HbmRows) -> HbmRows:
        """Rows of the host on the device, complete when the call returns."""
        if self._stream is None:
            return rows
        with torch.cuda.stream(self._stream):
            moved = rows.map(Tensor.pin_memory).to(self.device, non_blocking=True)
        self._stream.synchronize()
        return moved

    def write(self, lower: "LowerTier", rows: HbmRows) -> None:
        """Write rows that `down` returned."""
        lower.write(rows)

    def record_use(self, rows: HbmRows) -> HbmRows:
        """Rows that `read` returned, for use in the current stream: their memory is kept until it is done."""
        return rows if self._stream is None else rows.map(_recorded(torch.cuda.current_stream(self.device)))

    def record_event(self) -> "torch.cuda.Event | None":
        """The moment in the current stream from which rows for `down` are there."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def down(self, rows: HbmRows, since: "torch.cuda.Event | None") -> HbmRows:
        """Rows of the device as the tier takes them, complete when the call returns."""
        if self._stream is None or since is None:
            return rows
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(since)
            host = rows.map(_recorded(self._stream)).map(_to_pinned)
        self._stream.synchronize()
        return host


class DeviceTierCalls(HostTierCalls):
    """Calls of a tier that takes tensors of the device: on the side stream, without a copy."""

    def executor(self) -> Executor:
        return _CallingThread() if self._stream is None else super().executor()

    def keys(self, keys: Tensor) -> tuple[Tensor, "torch.cuda.Event | None"]:
        return keys, self.record_event()

    def read(self, lower: "LowerTier", keys: Tensor, since: "torch.cuda.Event | None", samples: int) -> HbmRows:
        with self._beside(since):
            if self._stream is not None:
                keys.record_stream(self._stream)
            rows = lower.read(keys, samples)
        self._wait()
        return rows

    def down(self, rows: HbmRows, since: "torch.cuda.Event | None") -> HbmRows:
        if self._stream is not None and since is not None:
            self._stream.wait_event(since)
            rows.map(_recorded(self._stream))
        return rows

    def write(self, lower: "LowerTier", rows: HbmRows) -> None:
        with self._beside(None):
            lower.write(rows)
        self._wait()

    def _beside(self, since: "torch.cuda.Event | None") -> AbstractContextManager[object]:
        """Inside, the side stream is the current one, after what `since` marks."""
        if self._stream is None:
            return nullcontext()
        if since is not None:
            self._stream.wait_event(since)
        return torch.cuda.stream(self._stream)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


class _CallingThread(Executor):
    """Calls at once: Triton's interpreter runs the kernels of one thread."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **settings: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **settings))
        except Exception as error:  # of any kind: who asks for the result gets it
            done.set_exception(error)
        return done


def _to_pinned(column: Tensor) -> Tensor:
    return torch.empty(column.shape, dtype=column.dtype, pin_memory=True).copy_(column, non_blocking=True)


class _recorded:
    """Tells torch that a stream uses a column, so that its memory is kept until then."""

    def __init__(self, stream: "torch.cuda.Stream") -> None:
        self.stream = stream

    def __call__(self, column: Tensor) -> Tensor:
        column.record_stream(self.stream)
        return column
