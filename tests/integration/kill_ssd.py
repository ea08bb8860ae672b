"""The script of test_ssd_kill.py: children that change a disk tier are killed, and the file they leave is checked.

Arguments: kills, seed, directory, io, index. Round n of a child writes and erases keys that follow from n, flushes in
every fifth round and then says n. After the kill every row must be as after the last flush that was told, or newer. A
child that ends before it is killed has met an error: a file that kills have filled with extents that are not used
again, say.
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from disk_rows import as_keys, contents, make_rows, open_tier

KEYS = 1200


def keys_of(number: int) -> tuple[list[int], list[int]]:
    """Keys that a round writes, and others that it erases."""
    drawn = random.Random(number).sample(range(KEYS), 260)
    return drawn[:220], drawn[220:]


def churn(path: Path, first: int, pipe: int, io: str, index: str) -> None:
    tier = open_tier(path, io=io, write_behind=0, capacity_bytes=4 << 20, index=index, index_cache=4096)
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
    tier = open_tier(path, io=io, write_behind=0, capacity_bytes=4 << 20, index=index, index_cache=4096)
    assert tier.verify() == [], tier.verify()
    now = contents(tier)
    tier.close(remove=False)
    sure = dict(before)
    for number in range(first, flushed + 1):
        written, erased = keys_of(number)
        sure |= dict.fromkeys(written, number)
        for key in erased:
            sure.pop(key, None)
    last = max([flushed, *now.values()])
    erased_later = {key for number in range(flushed + 1, last + 2) for key in keys_of(number)[1]}
    for key, stamp in sure.items():
        assert key in erased_later or now.get(key, 0) >= stamp, f"key {key}: {now.get(key)} is older than {stamp}"
    for key, stamp in now.items():
        assert key in sure or stamp > flushed, f"key {key} was erased and is back with {stamp}"
    return now, last + 2


def main(kills: int, seed: int, directory: str, io: str, index: str) -> None:
    path = Path(directory) / "rows"
    draw = random.Random(seed)
    rows: dict[int, int] = {}
    number, flushes = 1, 0
    for _ in range(kills):
        flushed = killed_after(path, number, draw.uniform(0.05, 0.5), io, index)
        flushes += flushed >= number
        rows, number = check(path, rows, number, flushed, io, index)
        assert path.stat().st_size <= 4 << 20
    print(f"{kills} kills, {flushes} after a flush, {number} rounds")
    assert flushes > kills // 3


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5])
