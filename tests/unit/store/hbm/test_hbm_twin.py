"""A table in GPU memory beside its slow twin: any calls, buckets of eight slots, keys of all 64 bits."""

from collections import defaultdict
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmPlan, HbmRows, HbmSpec, HbmTier
from oracles.hbm_twin import MASK, Twin, TwinRow
from profiles import examples

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DIM = 3
KEYS = [0, 1, 2**63 - 1, -(2**63), -1, *range(2, 31)]  # for 16 slots

calls = st.tuples(
    st.sampled_from(["find_or_init", "find_or_init", "apply", "put_and_evict", "erase", "find", "pin", "erase_pinned"]),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=12),
)


class Pair:
    """The table and its twin, given the same calls."""

    def __init__(self, eviction: str) -> None:
        settings: dict[str, Any] = {
            "eviction": eviction,
            "calls_per_tick": 1,
            "group_slots": 4,
            "groups": 2,
            "amount": 0.25,
        }
        self.spec = HbmSpec(dim=DIM, capacity=16, rule=UpdateRule("sgd", lr=0.5), **settings)
        self.tier = HbmTier(self.spec, DEVICE)
        lfu = eviction == "lfu"
        self.twin = Twin(2, 8, DIM, 0.5, self.spec.stream, 0.25, lfu)
        self.pinned: list[HbmPlan] = []

    def call(self, name: str, keys: list[int]) -> None:
        getattr(self, name)(torch.tensor(keys, device=DEVICE), [key & MASK for key in keys])
        assert self.tier.verify() == []
        assert len(self.tier) == len(self.twin.rows)

    def find(self, keys: torch.Tensor, bits: list[int]) -> None:
        out = torch.empty(len(keys), DIM, device=DEVICE)
        plan = self.tier.find(keys, out)
        assert plan.present.tolist() == [key in self.twin.rows for key in bits]
        assert plan.absent == len(set(bits) - self.twin.rows.keys())
        self.check_values(bits, out, [float("nan")] * DIM)

    def find_or_init(self, keys: torch.Tensor, bits: list[int]) -> HbmPlan:
        out = torch.empty(len(keys), DIM, device=DEVICE)
        pinned, self.pinned = self.pinned, []
        plan = self.tier.find_or_init(keys, out, pinned=pinned)
        self.follow(plan, set(bits), pinned)
        self.check_values(bits, out, [0.0] * DIM)
        return plan

    def pin(self, keys: torch.Tensor, bits: list[int]) -> None:
        self.pinned = [self.find_or_init(keys, bits)]

    def erase_pinned(self, keys: torch.Tensor, bits: list[int]) -> None:
        """Half of the rows of a pinned plan go, and others are made: its slots are free now."""
        half = (len(bits) + 1) // 2
        self.pin(keys[:half], bits[:half])
        gone = keys[: (half + 1) // 2]
        self.erase(gone, bits[: len(gone)])
        self.find_or_init(keys[half:], bits[half:])

    def apply(self, keys: torch.Tensor, bits: list[int]) -> None:
        gradients = torch.arange(len(bits) * DIM, dtype=torch.float32, device=DEVICE).reshape(-1, DIM) / 16
        applied = self.tier.apply(keys, gradients)
        sums: dict[int, list[float]] = defaultdict(lambda: [0.0] * DIM)
        for key, row in zip(bits, gradients.tolist(), strict=True):
            sums[key] = [a + b for a, b in zip(sums[key], row, strict=True)]
        self.twin.apply(sums)
        assert applied is not None
        present = sums.keys() & self.twin.rows.keys()
        assert (applied.rows, applied.absent, applied.refused) == (len(present), len(sums) - len(present), 0)

    def put_and_evict(self, keys: torch.Tensor, bits: list[int]) -> None:
        once = torch.unique(keys)
        values = torch.arange(len(once) * DIM, dtype=torch.float32, device=DEVICE).reshape(-1, DIM)
        versions = torch.arange(1, len(once) + 1, dtype=torch.int32, device=DEVICE)
        pinned, self.pinned = self.pinned, []
        plan = self.tier.put_and_evict(once, values, fields={"version": versions}, pinned=pinned)
        self.follow(plan, set(bits), pinned)
        for key, value, version in zip(once.tolist(), values.tolist(), versions.tolist(), strict=True):
            if (row := self.twin.rows.get(key & MASK)) is not None:
                row.value, row.version = value, version

    def erase(self, keys: torch.Tensor, bits: list[int]) -> None:
        gone = set(bits) & self.twin.rows.keys()
        assert self.tier.erase(keys) == len(gone)
        for key in gone:
            del self.twin.rows[key]

    def follow(self, plan: HbmPlan, keys: set[int], pinned: list[HbmPlan]) -> None:
        """Make the twin's rows; the table's choices are checked there."""
        before = dict(self.twin.rows)
        held = {key & MASK for other in pinned for key in other.keys[other.present].tolist()}
        away = {key & MASK for key in plan.keys[~plan.present].tolist()}
        evicted = set() if plan.evicted is None else {key & MASK for key in plan.evicted.keys.tolist()}
        self.twin.see(keys)
        self.twin.make(keys, held, evicted, away)
        assert plan.turned_away == len(away)
        if plan.evicted is not None:
            check_rows(plan.evicted, before)

    def check_values(self, bits: list[int], out: torch.Tensor, without: list[float]) -> None:
        wanted = [self.twin.rows[key].value if key in self.twin.rows else without for key in bits]
        torch.testing.assert_close(out.cpu(), torch.tensor(wanted), rtol=1e-6, atol=1e-6, equal_nan=True)


def check_rows(rows: HbmRows, twin: dict[int, TwinRow]) -> None:
    wanted = [twin[key & MASK] for key in rows.keys.tolist()]
    values = torch.tensor([row.value for row in wanted]).reshape(-1, DIM)
    torch.testing.assert_close(rows.values.cpu(), values, rtol=1e-6, atol=1e-6)
    assert rows.fields["version"].tolist() == [row.version for row in wanted]


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
@settings(max_examples=examples(10))
@given(script=st.lists(calls, min_size=4, max_size=7))
def test_any_calls_give_what_the_twin_gives(eviction: str, script: list[tuple[str, list[int]]]) -> None:
    pair = Pair(eviction)
    pair.call("find_or_init", KEYS[:14])  # nearly full
    for name, keys in script:
        pair.call(name, keys)
    exported = list(pair.tier.export(rows=5))
    assert sorted(key & MASK for rows in exported for key in rows.keys.tolist()) == sorted(pair.twin.rows)
    for rows in exported:
        assert 0 < len(rows) <= 5
        check_rows(rows, pair.twin.rows)
