"""A value of a column to be shown, also one that Python has no object for."""

from typing import Any

import pyarrow as pa

from hotrow.data.numbers import is_text


def shown(value: pa.Scalar) -> Any:
    """As Python has it; damaged text with its bytes as escapes, a time outside the calendar as its number."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # the first: bytes that are no UTF-8, times that datetime cannot hold
        pass
    if is_text(value.type):
        return value.as_buffer().to_pybytes().decode("utf-8", "backslashreplace")
    if pa.types.is_temporal(value.type):
        return value.value
    return f"<{value.type} that cannot be shown>"
