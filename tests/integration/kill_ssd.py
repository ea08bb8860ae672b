"""The script of test_ssd_kill.py: children that change a disk tier are killed, and the file they leave is checked.

Arguments: kills, seed, directory, io, index, rounds. Round n of a child writes and erases keys that follow from n,
flushes in every fifth round and then says n. After the kill every row must be as after the last flush that was told, or
newer. A child that ends before it is killed has met an error: a file that kills have filled with extents that are not
used again, say.

Then a tier lives through so many rounds in this process. Memory and disk space must not grow: bytes on the heap by kill
and by round, the resident set, extents in use, and pages of the index. Bounds are far below what a leak of one page a
kill, one extent a compaction or one byte a write would take. What others keep once and for all does not count: blocks
of NumPy's cache are there before the first measurement, and a thread of the engine may take 1 KiB when it first works.
"""

import ctypes
import gc
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from disk_rows import as_keys, contents, make_rows, open_tier
from hotrow.store.ssd import SsdTier

KEYS = 1200
CAPACITY = 4 << 20
WARM_KILLS, WARM_ROUNDS = 3, 100
HEAP_A_KILL, HEAP_NOISE, HEAP_SAMPLES = 512, 12 << 10, 20  # bytes, bytes, rounds
HEAP_THREADS = {"auto": 0, "threads": 64 << 10}  # two files, 32 threads each, with what the C library has for a thread
RESIDENT_MOST = 4 << 20
NUMPY_SMALL, NUMPY_CACHED = 1024, 7  # NumPy keeps so many freed blocks of each size below so many bytes
TUNABLES = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"  # freed blocks and arenas of threads count as in use


MALLOC_FIELDS = (
    "arena",
    "free",
    "small",
    "mapped",
    "mapped_bytes",
    "most",
    "free_small",
    "used_bytes",
    "free_bytes",
    "top",
)


class MallocInfo(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = [(name, ctypes.c_size_t) for name in MALLOC_FIELDS]


def heap_bytes() -> int:
    """Bytes in use on the heap of the C library, which native code and large Python objects use."""
    gc.collect()
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallocInfo
    found = mallinfo2()
    return int(found.used_bytes + found.mapped_bytes)


def fill_numpy_cache() -> None:
    """Exports of ever new sizes would fill it kill by kill: 1 KiB at each of the first ones."""
    for size in range(1, NUMPY_SMALL):
        _ = [np.empty(size, np.uint8) for _ in range(NUMPY_CACHED)]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def keys_of(number: int) -> tuple[list[int], list[int]]:
    """Keys that a round writes, and others that it erases."""
    drawn = random.Random(number).sample(range(KEYS), 260)
    return drawn[:220], drawn[220:]


def after_rounds(before: dict[int, int], first: int, last: int) -> dict[int, int]:
    """Rows after these rounds, the last one included."""
    rows = dict(before)
    for number in range(first, last + 1):
        written, erased = keys_of(number)
        rows |= dict.fromkeys(written, number)
        for key in erased:
            rows.pop(key, None)
    return rows


def churn(path: Path, first: int, pipe: int, io: str, index: str) -> None:
    tier = open_tier(path, io=io, write_behind=0, capacity_bytes=CAPACITY, index=index, index_cache=4096)
    number = first
    while True:
        written, erased = keys_of(number)
        tier.write(make_rows(written, number))
        tier.erase(as_keys(erased))
        if number % 5 == 0:
            tier.flush()
            os.write(pipe, number.to_bytes(8, "little"))
        number += 1


def killed_after(path: Path, first: int, seconds: float, io: str, index: str) -> int:
    """The last round that a child said was flushed before it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            churn(path, first, writing, io, index)
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child met an error"
    flushed = first - 1
    while word := os.read(reading, 8):
        flushed = int.from_bytes(word, "little")
    os.close(reading)
    return flushed


def check(
    path: Path, before: dict[int, int], first: int, flushed: int, io: str, index: str
) -> tuple[dict[int, int], int]:
    """Rows after the kill, and the round that comes next."""
    tier = open_tier(path, io=io, write_behind=0, capacity_bytes=CAPACITY, index=index, index_cache=4096)
    assert tier.verify() == [], tier.verify()
    now = contents(tier)
    tier.compact()
    check_space(tier)
    tier.close(remove=False)
    sure = after_rounds(before, first, flushed)
    last = max([flushed, *now.values()])
    erased_later = {key for number in range(flushed + 1, last + 2) for key in keys_of(number)[1]}
    for key, stamp in sure.items():
        assert key in erased_later or now.get(key, 0) >= stamp, f"key {key}: {now.get(key)} is older than {stamp}"
    for key, stamp in now.items():
        assert key in sure or stamp > flushed, f"key {key} was erased and is back with {stamp}"
    return now, last + 2


def check_space(tier: SsdTier) -> None:
    """After a compaction: extents in use, and pages of the index, follow from the rows."""
    found = tier.stats()
    used, slots = found.extents - found.free_extents, found.slots_per_extent
    assert used * slots <= 2 * (found.rows + found.tombstones) + 6 * slots, f"{used} extents for {found.rows} rows"
    assert found.file_bytes <= CAPACITY
    assert found.index_file_bytes <= 1 << 20
    assert found.index_bytes <= 64 << 10


def kill_often(path: Path, kills: int, draw: random.Random, io: str, index: str) -> tuple[dict[int, int], int]:
    """Rows after so many kills, and the round that comes next."""
    rows: dict[int, int] = {}
    number, flushes, heap = 1, 0, 0
    for kill in range(1, kills + 1):
        flushed = killed_after(path, number, draw.uniform(0.05, 0.5), io, index)
        flushes += flushed >= number
        rows, number = check(path, rows, number, flushed, io, index)
        if kill == WARM_KILLS:
            heap = heap_bytes()
        assert kill <= WARM_KILLS or heap_bytes() - heap <= HEAP_NOISE + HEAP_A_KILL * (kill - WARM_KILLS), (
            f"{heap_bytes() - heap} bytes of memory more after {kill - WARM_KILLS} kills"
        )
    print(f"{kills} kills, {flushes} after a flush, {number} rounds")
    assert flushes > kills // 3
    return rows, number


def live_long(path: Path, rows: dict[int, int], first: int, rounds: int, io: str, index: str) -> None:
    """One process through many rounds: what it has is what it wrote, in the same memory and space."""
    tier = open_tier(path, io=io, write_behind=0, capacity_bytes=CAPACITY, index=index, index_cache=4096)
    samples: dict[int, list[int]] = {WARM_ROUNDS: [], rounds + WARM_ROUNDS: []}
    resident = 0
    for done in range(rounds + WARM_ROUNDS + 1):
        written, erased = keys_of(first + done)
        tier.write(make_rows(written, first + done))
        tier.erase(as_keys(erased))
        if done in samples or done % 1000 == 0:
            tier.flush()
            tier.compact()
            check_space(tier)
        for end, found in samples.items():  # the least of some: a compaction in the background has a buffer
            if end - HEAP_SAMPLES < done <= end:
                found.append(heap_bytes() - tier.stats().memory_bytes)
        if done == WARM_ROUNDS:
            resident = resident_bytes()
    before, after = (min(found) for found in samples.values())
    more = after - before
    assert more <= HEAP_NOISE + HEAP_THREADS[io], f"{more} bytes of memory more after {rounds} rounds"
    assert resident_bytes() - resident <= RESIDENT_MOST
    assert tier.verify() == []
    assert contents(tier) == after_rounds(rows, first, first + rounds + WARM_ROUNDS)
    print(f"{rounds} rounds, {more} bytes more, {tier.stats().compacted_extents} extents compacted")
    tier.close(remove=True)


def main(kills: int, seed: int, directory: str, io: str, index: str, rounds: int) -> None:
    path = Path(directory) / "rows"
    fill_numpy_cache()
    rows, number = kill_often(path, kills, random.Random(seed), io, index)
    live_long(path, rows, number, rounds, io, index)


if __name__ == "__main__":
    if os.environ.get("GLIBC_TUNABLES") != TUNABLES:
        os.environ["GLIBC_TUNABLES"] = TUNABLES
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5], int(sys.argv[6]))
