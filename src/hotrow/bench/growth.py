"""Filling a table from empty: does any batch stall while it grows, and what does a row cost in memory?"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.limits import FLOAT_BYTES
from hotrow.bench.pages import Resident, resident
from hotrow.bench.rounds import BenchProgress, Figures, Seconds
from hotrow.config import Table
from hotrow.store import RamTier

NEIGHBOURS = 31  # batches around one that say what is normal there


@dataclass(frozen=True, slots=True)
class Growth:
    """One filling of a table."""

    tier: RamTier
    seconds: Seconds  # per batch
    memory: Resident  # what the process gained


def grow(table: Table, keys: NDArray[np.uint64], ids: int, *, threads: int, watch: BenchProgress) -> Growth:
    """A new table that holds `keys`, created `ids` at a time as a training job would."""
    out = np.ones((ids, table.dim), np.float32)  # not zeros: those would become resident only as rows arrive
    before = resident()
    tier = RamTier(table, threads=threads)
    seconds = fill(tier, keys, out, watch)
    return Growth(tier, seconds, resident() - before)


def fill(tier: RamTier, keys: NDArray[np.uint64], out: NDArray[np.float32], watch: BenchProgress) -> Seconds:
    """Create the rows of `keys`; seconds per batch."""
    return _batch_by_batch(tier.find_or_init, keys, out, watch)


def measure_growth(
    table: Table, keys: NDArray[np.uint64], ids: int, *, threads: int, watch: BenchProgress
) -> tuple[RamTier, Figures]:
    """The filled table, and its figures.

    It is filled twice and the better run counts, since stalls of the machine rarely strike twice. How the machine
    stalls on its own two loops show: the same batches looked up without growth, and as much plain memory as the table
    takes touched for the first time, batch by batch.
    """
    watch.stage(f"dim {table.dim}: growing from empty", 4 * -(-len(keys) // ids))
    first = grow(table, keys, ids, threads=threads, watch=watch)
    memory, first_stall_ms = first.memory, worst_stall_ms(first.seconds)
    del first  # before the second one, or both would have to fit
    touched = _touch(memory.bytes, -(-len(keys) // ids), watch)
    second = grow(table, keys, ids, threads=threads, watch=watch)
    tier = second.tier
    idle = _batch_by_batch(tier.find, keys, np.zeros((ids, table.dim), np.float32), watch)
    stats = tier.stats()
    return tier, {
        "worst_growth_ms": min(first_stall_ms, worst_stall_ms(second.seconds)),
        "worst_idle_stall_ms": worst_stall_ms(idle),
        "worst_touch_stall_ms": worst_stall_ms(touched),
        "growth_batch_ms": float(np.median(second.seconds)) * 1e3,
        "bytes_per_row_overhead": beyond_row(tier, memory.bytes),
        "stats_bytes_per_row_overhead": beyond_row(tier, stats.slab_bytes + stats.index_bytes),
        "huge_share": memory.huge_share,
    }


def beyond_row(tier: RamTier, size: int) -> float:
    """Of `size` bytes that a table takes, those per row that are neither value nor state."""
    return size / len(tier) - FLOAT_BYTES * (tier.dim + tier.state_dim)


def worst_stall_ms(seconds: Seconds) -> float:
    """By how much the worst batch exceeded the median of the batches around it."""
    half = NEIGHBOURS // 2
    normal = [np.median(seconds[max(at - half, 0) : at + half + 1]) for at in range(len(seconds))]
    return float(np.max(seconds - np.array(normal))) * 1e3


def _batch_by_batch(
    look_up: Callable[..., object], keys: NDArray[np.uint64], out: NDArray[np.float32], watch: BenchProgress
) -> Seconds:
    seconds = []
    for first in range(0, len(keys), len(out)):
        part = keys[first : first + len(out)]
        start = time.perf_counter()
        look_up(part, out[: len(part)])
        seconds.append(time.perf_counter() - start)
        watch.tick()
    return np.array(seconds)


def _touch(size: int, batches: int, watch: BenchProgress) -> Seconds:
    """Seconds to make `size` bytes of new memory resident in so many equal parts."""
    memory = np.empty(size, np.uint8)
    seconds = []
    for at in range(batches):
        start = time.perf_counter()
        memory[size * at // batches : size * (at + 1) // batches : 4096] = 1
        seconds.append(time.perf_counter() - start)
        watch.tick()
    return np.array(seconds)
