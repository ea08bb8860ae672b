"""The script of test_tiered_churn.py: a table in two tiers lives long, and neither its memory nor its file grows.

Arguments: rounds, directory, and what each round leaks on purpose: nothing, 100 bytes of memory, or space of the file.

A round looks up and trains a batch, loads the next one ahead, and erases some rows. Keys are drawn from a fixed set, so
that rows move in both directions, go and come again. The least of some late samples is compared with that of some early
ones: a compaction in the background has buffers.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import hotrow as hr
from hotrow.store.tiered import TieredTier
from integration.kill_ssd import TUNABLES, fill_numpy_cache, heap_bytes, resident_bytes

KEYS, BATCH, DIM = 60_000, 900, 8
WARM, SAMPLES, APART = 400, 20, 450  # rounds; a leak of space begins so many rounds apart
MOST = {"heap": 1.001, "resident": 1.05, "extents": 1.15}  # late / early: 55 KB, 4 MB, 3 extents


def batch_of(number: int) -> np.ndarray:
    """Half of a batch is of keys that come often."""
    draw = np.random.default_rng(number)
    often = draw.integers(0, KEYS // 30, BATCH // 2)
    return np.concatenate([often, draw.integers(0, KEYS, BATCH - BATCH // 2)]).astype(np.uint64)


def live(tier: TieredTier, rounds: int, leak: str) -> None:
    kept: list[object] = []
    ends = (WARM, WARM + rounds)
    found: dict[int, list[tuple[int, int, int]]] = {end: [] for end in ends}
    gradients = np.full((BATCH, DIM), 0.01, np.float32)
    for number in range(1, WARM + rounds + 1):
        tier.apply(tier.find_or_init(batch_of(number), samples=number), gradients, step=number, samples=number)
        tier.load_ahead(batch_of(number + 1))
        tier.erase(np.random.default_rng((number, 1)).integers(0, KEYS, BATCH // 4).astype(np.uint64))
        if leak == "memory":
            kept.append(bytes(100))
        if leak == "space" and number % APART == 0:
            kept.append(tier.disk.export(64))  # it keeps the extents of its rows
            next(kept[-1])  # type: ignore[call-overload]
        for end in ends:
            if end - SAMPLES < number <= end:
                tier.disk.compact()
                disk = tier.disk.stats()
                found[end].append((heap_bytes(), resident_bytes(), disk.extents - disk.free_extents))
    early, late = (np.min(found[end], axis=0) for end in ends)
    ratios = dict(zip(MOST, (late / early).tolist(), strict=True))
    stats, disk = tier.stats(), tier.disk.stats()
    print(
        f"{rounds} rounds, {stats.moved_up} rows up, {stats.moved_down} down, {disk.compacted_extents} extents", ratios
    )
    assert min(stats.moved_up, stats.moved_down) > 100 * rounds
    grew = [name for name, ratio in ratios.items() if ratio > MOST[name]]
    assert not grew, f"grew: {', '.join(grew)}"
    assert disk.reused_extents > 20
    assert tier.verify() == []


def main(rounds: int, directory: str, leak: str) -> None:
    fill_numpy_cache()
    table = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.1), capacity="14.5MB", disk="64MB", path=directory)
    tier = TieredTier(table)
    live(tier, rounds, leak)
    tier.close()
    assert list(Path(directory).iterdir()) == []


if __name__ == "__main__":
    if os.environ.get("GLIBC_TUNABLES") != TUNABLES:
        os.environ |= {"GLIBC_TUNABLES": TUNABLES, "PYTHONMALLOC": "malloc"}  # small objects are on that heap, too
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
