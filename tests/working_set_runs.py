"""What tests of working sets share: batches, training in memory, and rows that must be the same."""

from typing import Any

import numpy as np
import torch

import hotrow as hr
from hotrow.store import RamTier

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL: dict[str, Any] = {"group_slots": 4, "groups": 2}
DIM = 2


def batches(seed: int) -> list[list[np.ndarray[Any, Any]]]:
    """Three large batches of two mini-batches."""
    random = np.random.default_rng(seed)
    return [[random.integers(0, 60, 5) for _ in range(2)] for _ in range(3)]


def gradients(keys: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(step).normal(size=(len(keys), DIM)).astype(np.float32)


def train_in_memory(table: hr.Table) -> RamTier:
    tier, step = RamTier(table), 0
    for batch in batches(7):
        for keys in batch:
            plan = tier.find_or_init(keys)
            tier.apply(plan, gradients(keys, step), step=step, samples=5 * (step + 1))
            step += 1
    return tier


def all_rows(tier: RamTier) -> dict[int, tuple[Any, ...]]:
    found = {}
    for rows in tier.export():
        for n, key in enumerate(rows.keys.tolist()):
            fields = {name: int(column[n]) for name, column in rows.fields.items() if name != "last_seen"}
            found[key] = (rows.values[n], rows.state[n], fields)
    return found


def check_same_rows(tier: RamTier, wanted: RamTier) -> None:
    found, theirs = all_rows(tier), all_rows(wanted)
    assert found.keys() == theirs.keys()
    for key, (value, state, fields) in theirs.items():
        np.testing.assert_allclose(found[key][0], value, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[key][1], state, rtol=1e-6, atol=1e-6)
        assert found[key][2] == fields
