"""A table in two tiers beside one in memory, for tests that compare them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import hotrow as hr
from hotrow.store import RamTier
from hotrow.store.tiered import TieredTier

KINDS: dict[str, dict[str, object]] = {
    "sgd": {"optimizer": hr.SGD(lr=0.5)},
    "adagrad": {"optimizer": hr.Adagrad(lr=0.5)},
    "row-wise": {"optimizer": hr.RowwiseAdagrad(lr=0.5)},
    "adam": {"optimizer": hr.Adam(lr=0.5, correction="row")},
    "ftrl": {"optimizer": hr.FTRL(lr=0.5)},
    "swap": {"optimizer": hr.Adagrad(lr=0.5, swap=hr.Swap(period=100, decay=0.5))},
    "bfloat16": {"type": "bfloat16"},
    "clock": {"clock": True},
    "lfu": {"eviction": "lfu"},
    "index on disk": {"disk_index": "disk"},
}
KEYS = 400


def tables(folder: Path, **kind: object) -> tuple[hr.Table, hr.Table]:
    """With 100 rows in memory, and without a limit."""
    kind = {"optimizer": hr.Adagrad(lr=0.5), **kind}
    unlimited = {name: value for name, value in kind.items() if name not in ("eviction", "disk_index")}
    tiered = hr.Table(dim=3, capacity=100, disk="4MB", path=folder, **kind)
    return tiered, hr.Table(dim=3, **unlimited)


@contextmanager
def opened(*tiers: RamTier) -> Iterator[None]:
    try:
        yield
    finally:
        for tier in tiers:
            tier.close()


def all_rows(tier: RamTier) -> dict[int, tuple[bytes, bytes, int]]:
    """By key: value, state, version. Each key once."""
    found: dict[int, tuple[bytes, bytes, int]] = {}
    for chunk in tier.export(97):
        for at, key in enumerate(chunk.keys.tolist()):
            assert key not in found
            found[key] = chunk.values[at].tobytes(), chunk.state[at].tobytes(), int(chunk.fields["version"][at])
    return found


def train(tier: RamTier, keys: np.ndarray, seed: int, samples: int, ahead: bool = False) -> np.ndarray:
    out = np.empty((len(keys), 3), np.float32)
    if ahead and isinstance(tier, TieredTier):
        tier.load_ahead(keys)
    plan = tier.find_or_init(keys, out, samples=samples)
    gradients = np.random.default_rng(seed).standard_normal((len(keys), 3)).astype(np.float32)
    tier.apply(plan, gradients, step=seed, samples=samples)
    return out
