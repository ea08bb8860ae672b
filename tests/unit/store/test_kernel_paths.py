"""Every instruction set computes the same bits: each runs in a process of its own, and their outputs are compared."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from hotrow import _native
from hotrow.config import Table
from hotrow.store import RamTier

PATHS = ("plain", "avx2", "avx512")

# Loads the module by its file, without the package: that leaves torch out and starts at once.
SCRIPT = """
import importlib.util, sys
from hashlib import sha256
import numpy as np

spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
print(native.isa())

def show(what, *arrays):
    print(what, *(sha256(array.tobytes()).hexdigest()[:16] for array in arrays))

rng = np.random.default_rng(11)
special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3e-39, 3.4028235e38, 65504, 2e-8], "f4")
bits = rng.integers(0, 2**32, (300, 100), np.uint32).view(np.float32)  # any float there is
for dim in (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100):
    rows = rng.standard_normal((50, dim), np.float32) * np.float32(10) ** rng.integers(-6, 6, (50, dim)).astype("f4")
    offsets = np.sort(rng.integers(0, 501, 81))
    offsets[0], offsets[-1] = 0, 500
    inverse = rng.integers(0, 50, 500).astype(np.uint32)
    grad_out, weights = rng.standard_normal((80, dim), np.float32), rng.standard_normal(500, np.float32)
    for mean, factors in ((False, None), (True, None), (False, weights)):
        out, gradient = np.empty((80, dim), np.float32), np.empty((50, dim), np.float32)
        native.pool(rows, inverse, offsets, factors, mean, out, 1)
        native.pool_backward(grad_out, inverse, offsets, factors, mean, gradient, 1)
        show(f"pool {dim} {mean}", out, gradient)
    out = np.empty(500, np.float32)
    native.pool_weight_gradient(grad_out, rows, inverse, offsets, out, 1)
    show(f"weights {dim}", out)

    mixed = np.ascontiguousarray(bits[:, :dim])
    narrow = np.concatenate([rows, np.where(rng.random((50, dim)) < 0.3, rng.choice(special, (50, dim)), rows)])
    for source in (mixed, narrow, narrow * np.float32(1e-38), rng.choice(special, (50, dim))):
        half, scale, back = np.empty(source.shape, np.uint16), np.empty(len(source), np.float32), np.empty_like(source)
        native.encode_rows(source, half, scale, 1)
        native.decode_rows(half, scale, back, 1)
        show(f"codec {dim}", half, scale, back)
every = np.arange(2**16, dtype=np.uint16).reshape(-1, 64)
back = np.empty(every.shape, np.float32)
native.decode_rows(every, np.ones(len(every), np.float32), back, 1)
show("every half", back)
"""


def run(path: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, _native.__file__]
    done = subprocess.run(command, env=os.environ | {"HOTROW_ISA": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_all_paths_of_this_processor_give_the_same_bits() -> None:
    expected = run("plain")
    assert expected[0] == "plain"
    for path in PATHS[1:]:
        name, *lines = run(path)
        if name != path:
            pytest.skip(f"this processor has no {path}")
        assert lines == expected[1:]


@pytest.mark.parametrize("shift", [0, 1, 4, 8])  # floats: aligned for the widest stores, for none, for some
def test_large_outputs_that_are_stored_past_the_caches_hold_the_same_rows(shift: int) -> None:
    tier = RamTier(Table(dim=16), threads=2)
    keys = np.random.default_rng(4).integers(0, 20_000, 80_000).astype(np.uint64)
    memory = torch.zeros(80_000 * 16 + 16)
    out = memory.numpy()[shift : shift + 80_000 * 16].reshape(80_000, 16)
    batch = tier.find_or_init(keys, out)
    rows = np.empty((batch.unique, 16), np.float32)
    tier.find(batch, rows, per="unique")
    np.testing.assert_array_equal(out, rows[batch.inverse])
    assert not memory.numpy()[:shift].any()
    assert not memory.numpy()[shift + 80_000 * 16 :].any()
