"""Suites of caches that run twice: with rows in host memory, and with rows that lie on a device.

    from unit.row_memory import row_memory as row_memory

    pytestmark = pytest.mark.usefixtures("row_memory")

The device is the CPU, where the kernels' torch references compute; `test_device_rows` runs the kernels.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hotrow.cache.cache import CachedBatch, RowCache
from hotrow.store import Applied, Rows

DEVICE = torch.device("cpu")


@pytest.fixture(scope="module", params=["host", "device"])
def row_memory(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the rows of every cache are. Tests give and take arrays either way."""
    if request.param == "host":
        yield "host"
        return
    if not find_spec("triton"):
        pytest.skip("Triton is not installed: pip install 'hotrow[gpu]'")
    with pytest.MonkeyPatch.context() as patched:
        put_rows_on_device(patched)
        yield "device"


def put_rows_on_device(patched: pytest.MonkeyPatch) -> None:
    import triton

    import hotrow.client.device_pooling  # noqa: F401  # now: Triton looks at the knob when it defines a kernel
    from hotrow.cache.device_rows import DeviceRows

    patched.setattr(triton.knobs.runtime, "interpret", False)  # the interpreter takes some six times as long
    made, read, applied = RowCache.__init__, RowCache.read, RowCache.apply

    def init(self: RowCache, *given: Any, **named: Any) -> None:
        made(self, *given, **{**named, "device": DEVICE})

    def read_array(self: RowCache, batch: CachedBatch, out: Any = None) -> Any:
        return read(self, batch, torch.from_numpy(out) if isinstance(out, np.ndarray) else out)

    def apply_array(self: RowCache, batch: CachedBatch, gradients: Any, *given: Any, **named: Any) -> Applied:
        return applied(self, batch, torch.as_tensor(gradients), *given, **named)

    def whole_rows(self: DeviceRows, keys: Any) -> Rows:
        values, state, _ = self.columns.whole(self.index.slots(self.index.batch(keys)).slots)
        return Rows(keys, values, state, {})

    patched.setattr(RowCache, "__init__", init)
    patched.setattr(RowCache, "read", read_array)
    patched.setattr(RowCache, "apply", apply_array)
    patched.setattr(DeviceRows, "whole_rows", whole_rows, raising=False)
    for name in ("verify", "eviction_order"):
        patched.setattr(DeviceRows, name, lambda self, *given, of=name: getattr(self.index, of)(*given), raising=False)
    patched.setattr(DeviceRows, "partitions", property(lambda self: self.index.partitions), raising=False)
    patched.setattr(DeviceRows, "stats", lambda self: SimpleNamespace(bytes=self.columns.bytes), raising=False)
