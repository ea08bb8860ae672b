"""Calls into native code while another thread writes to the arrays that they were given: indices, and outputs.

    python hammer_indices.py NATIVE_MODULE SECONDS_PER_CALL

Prints the name of each call before it is tried, so that a crash names it. The results may be anything; what counts is
that the process lives, and that a table is sound afterwards.
"""

import contextlib
import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Case = tuple[str, Callable[[], object], list[tuple[Array, Array]]]  # name, call, arrays with what is written into them

N = 200_000  # enough for every path with several threads
BAGS = 1000
DIM = 8
BAD_NUMBER = 2**32 - 1


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def key_cases(native: ModuleType) -> Iterator[Case]:
    generator = np.random.default_rng(1)
    keys = generator.integers(0, 50_000, N).astype(np.uint64)
    other = [(keys, generator.integers(0, 2**63, N).astype(np.uint64))]
    unique_keys, inverse, counts = np.zeros(N, np.uint64), np.zeros(N, np.uint32), np.zeros(N, np.uint32)
    bounds = np.zeros(9, np.int64)
    for arrays, written in ((other, "keys"), (outputs(unique_keys, inverse, counts, bounds), "outputs")):
        for threads in (1, 4):
            yield (
                f"unique, {threads} threads, {written}",
                partial(native.unique, keys, unique_keys, inverse, counts, threads),
                arrays,
            )
            for shards in (1, 8):
                yield (
                    f"sharded by {shards}, {threads} threads, {written}",
                    partial(native.sharded, keys, shards, unique_keys, bounds[: shards + 1], inverse, threads),
                    arrays,
                )
    yield "shard_of", lambda: native.shard_of(keys, 8, inverse, 4), outputs(inverse)


def outputs(*arrays: Array) -> list[tuple[Array, Array]]:
    """Arrays that a call fills, with numbers that lead out of any memory if they are taken for indices."""
    return [(array, np.full_like(array, np.iinfo(array.dtype).max // 3)) for array in arrays]


def table_cases(native: ModuleType) -> Iterator[Case]:
    """Keys that stand in a batch twice would be made twice: so the table is verified after every call."""
    generator = np.random.default_rng(2)
    size = 30_000
    for threads, count in ((1, size), (4, 5 * size)):
        keys = generator.integers(0, 5000, count).astype(np.uint64)
        other = generator.integers(0, 10**6, count).astype(np.uint64)

        def look_up(keys: Array = keys, threads: int = threads) -> None:
            tier = make_table(native)
            tier.find_or_init(tier.batch(keys, threads), None, False, True, None, [], threads)
            faults = tier.verify()
            assert faults == [], faults[:3]

        yield f"find_or_init, {threads} threads", look_up, [(keys, other)]
    tier = make_table(native)
    batch = tier.batch(np.arange(size, dtype=np.uint64), 1)
    tier.find_or_init(batch, None, False, True, None, [], 1)
    gradients, rows = np.ones((100, DIM), np.float32), np.zeros(size, np.uint32)
    yield (
        "apply with rows",
        lambda: tier.apply(batch, gradients, None, rows, False, 0, 0, 1.0, None, False, 1),
        [(rows, np.full_like(rows, BAD_NUMBER))],
    )


def make_table(native: ModuleType) -> Any:
    spec = native.TableSpec(DIM, 0, native.Optimizer(), 2, 0.0, 1, native.Life(), False, False, 3)
    return native.RamTier(spec, None)


def bag_cases(native: ModuleType) -> Iterator[Case]:
    inverse = np.random.default_rng(3).integers(0, 100, N).astype(np.uint32)
    offsets = np.linspace(0, N, BAGS + 1).astype(np.int64)
    bad_offsets = offsets + 2**40
    bad_offsets[1::2] = -(2**40)
    bad: list[tuple[Array, Array]] = [(inverse, np.full_like(inverse, BAD_NUMBER)), (offsets, bad_offsets)]
    rows, bags = np.ones((100, DIM), np.float32), np.ones((BAGS, DIM), np.float32)
    positions = np.empty(N, np.float32)
    for threads in (1, 2):
        yield "pool", partial(native.pool, rows, inverse, offsets, None, True, bags, threads), bad
        yield "pool_backward", partial(native.pool_backward, bags, inverse, offsets, None, True, rows, threads), bad
        yield (
            "pool_weight_gradient",
            partial(native.pool_weight_gradient, bags, rows, inverse, offsets, positions, threads),
            bad,
        )
    keys, unique_keys = inverse.astype(np.uint64), np.zeros(N, np.uint64)
    counts, samples = np.zeros(N, np.uint32), np.zeros(N, np.uint16)
    compress = partial(native.compress_ids, keys, offsets, unique_keys, counts, samples, 1)
    yield "compress_ids, inputs", compress, [(offsets, bad_offsets), (keys, np.arange(N, dtype=np.uint64))]
    yield "compress_ids, outputs", compress, outputs(unique_keys, counts, samples)


def other_cases(native: ModuleType) -> Iterator[Case]:
    each, counts = np.arange(1000, dtype=np.uint64), np.full(1000, N // 1000, np.uint32)
    samples = np.random.default_rng(4).integers(0, BAGS, N).astype(np.uint32)
    keys, offsets = np.zeros(N, np.uint64), np.zeros(BAGS + 1, np.int64)
    expand = partial(native.expand_ids, each, counts, samples, keys, offsets)
    bad: list[tuple[Array, Array]] = [(array, np.full_like(array, BAD_NUMBER)) for array in (samples, counts)]
    yield "expand_ids, inputs", expand, bad
    yield "expand_ids, outputs", expand, outputs(keys, offsets)
    data = np.full(5 * N, ord("7"), np.uint8)
    bounds = np.arange(0, 5 * N + 1, 5, dtype=np.int64)
    bad_bounds = bounds + 2**40
    bad_bounds[1::2] = -(2**40)
    both = [(bounds, bad_bounds), *outputs(keys)]
    yield "hash_strings", lambda: native.hash_strings(data, bounds, None, 0, keys, 0, 0, 2), both
    yield "string_ids", lambda: native.string_ids(data, bounds, None, 0, keys, 0, 0, 2), both
    field = native.RowField(100, 64, 1)
    numbers = np.zeros(N, np.int64)
    yield "read_seconds", lambda: field.read_seconds(numbers, 1), [(numbers, np.full_like(numbers, 2**40))]


def hammer(case: Case, seconds: float) -> None:
    name, call, arrays = case
    print(name, flush=True)
    good = [array.copy() for array, _ in arrays]
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for (array, bad), kept in zip(arrays, good, strict=True):
                array[:] = bad
                array[:] = kept

    writer = threading.Thread(target=write)
    writer.start()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            with contextlib.suppress(ValueError):  # the check saw what was written
                call()
    finally:
        done.set()
        writer.join()
        for (array, _), kept in zip(arrays, good, strict=True):
            array[:] = kept


def main(path: str, seconds: float) -> None:
    sys.setswitchinterval(1e-4)
    native = load(path)
    for cases in (key_cases, table_cases, bag_cases, other_cases):
        for case in cases(native):
            hammer(case, seconds)
    print("all lived", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
