"""Host memory that a GPU reads and writes by itself."""

import mmap
import weakref
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from hotrow.errors import ConfigError

HUGE_PAGE = 2**21


class PinnedMemory:
    """Zeroed tensors in page-locked memory of exactly their size, as long as this object lives.

    torch's own pinned memory is rounded up to a power of two and kept by its cache. Without a GPU (Triton's
    interpreter) the tensors are ordinary ones.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: list[Any] = []
        self.bytes = 0
        weakref.finalize(self, _unlock, self._held)

    def zeros(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        size = rows * columns * dtype.itemsize
        self.bytes += size
        if self._device.type != "cuda" or not size:
            return torch.zeros(rows, columns, dtype=dtype)
        pages = allocate_pages(size)
        tensor = torch.frombuffer(pages, dtype=dtype, count=rows * columns).view(rows, columns).zero_()
        with torch.cuda.device(self._device):
            fault = int(torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), size, 0))
        if fault:
            raise ConfigError(
                f"{size:,} bytes of host memory cannot be locked for the GPU (CUDA error {fault}): lower the number of "
                "rows, or raise the limit of locked memory"
            )
        self._held.append((tensor, pages))
        return tensor


def allocate_pages(size: int) -> mmap.mmap:
    """Memory of this size, rounded up."""
    pages = mmap.mmap(-1, -(-size // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel may have no huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)  # fewer pages to lock, and to translate at each access
    return pages


def _unlock(held: list[Any]) -> None:
    while held:
        tensor, _ = held.pop()
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())
