"""Copies of large memory."""

import numpy as np
from numpy.typing import NDArray

from hotrow import _native

STREAMED_LEAST = 1 << 22  # bytes: below, a plain copy is as fast, and its target stays in the caches


def copy_bytes(data: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Copy without the GIL, large memory past the caches: for bytes that another process reads next."""
    if data.nbytes < STREAMED_LEAST:
        np.copyto(out, data)
    else:
        _native.stream_copy(data, out)
