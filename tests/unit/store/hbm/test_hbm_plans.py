"""Plans of a table in GPU memory: what a lookup found, and what later calls make of it."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.errors import InputError
from hotrow.kernels.scatter import scatter
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmSpec, HbmTier
from hotrow.store.hbm.hashing import places

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def small_tier(capacity: int = 8) -> HbmTier:
    settings: dict[str, Any] = {"init": "constant", "amount": 0.0, "group_slots": 4, "groups": 2}
    return HbmTier(HbmSpec(dim=2, capacity=capacity, rule=UpdateRule("sgd", lr=1.0), **settings), DEVICE)


def keys_of(*keys: int) -> torch.Tensor:
    return torch.tensor(keys, dtype=torch.int64, device=DEVICE)


def ones(rows: int) -> torch.Tensor:
    return torch.ones(rows, 2, device=DEVICE)


def test_an_update_of_a_batch_that_was_not_looked_up_finds_its_own_rows() -> None:
    tier = small_tier(capacity=64)
    tier.find_or_init(torch.arange(100, 120, device=DEVICE))
    applied = tier.apply(tier.batch(keys_of(3, 101, 101)), ones(3))
    assert applied is not None
    assert (applied.rows, applied.absent) == (1, 1)
    (rows,) = tier.export()
    changed = rows.fields["version"] == 2
    assert rows.keys[changed].tolist() == [101]
    assert rows.values[changed].tolist() == [[-2.0, -2.0]]


def test_a_batch_that_was_not_looked_up_is_neither_pooled_nor_pinned() -> None:
    tier = small_tier()
    batch: Any = tier.batch(keys_of(3, 5))
    with pytest.raises(InputError, match="pool has a KeyBatch: give the plan of a lookup"):
        tier.pool(batch)
    with pytest.raises(InputError, match="find_or_init: pinned has a KeyBatch"):
        tier.find_or_init(keys_of(1), pinned=[batch])
    with pytest.raises(InputError, match="put_and_evict: pinned has a KeyBatch"):
        tier.put_and_evict(keys_of(1), ones(1), pinned=[batch])
    assert len(tier) == 0


def test_a_second_lookup_of_a_plan_leaves_the_first_as_it_was() -> None:
    tier = small_tier()
    first = tier.find(tier.batch(keys_of(1, 2)))
    second = tier.find_or_init(first)
    assert first.present.tolist() == [False, False]
    assert second.present.tolist() == [True, True]


def test_a_key_that_was_turned_away_stays_so_when_other_rows_have_gone() -> None:
    tier = small_tier()
    pinned = tier.find_or_init(torch.arange(8, device=DEVICE))
    plan = tier.find_or_init(keys_of(7, 8), pinned=[pinned])
    assert plan.turned_away == 1
    tier.erase(keys_of(0))
    applied = tier.apply(plan, ones(2))
    assert applied is not None
    assert (applied.rows, applied.unadmitted, applied.absent) == (1, 1, 0)


def keys_at_home(group: int, count: int) -> torch.Tensor:
    """Keys whose search begins at this group, in a table of one bucket."""
    keys = torch.arange(400)
    return keys[places(keys, 1, 2)[1] == group][:count].to(DEVICE)


@pytest.mark.parametrize("put", [False, True], ids=["find_or_init", "put_and_evict"])
def test_a_pinned_plan_whose_rows_have_gone_keeps_no_slot(put: bool) -> None:
    tier, keys = small_tier(), keys_at_home(0, 6)
    pinned = tier.find_or_init(keys[:3])
    tier.erase(keys[:1])  # its group has two free slots now: both are for the keys that begin there
    if put:
        plan = tier.put_and_evict(keys[4:], ones(2), pinned=[pinned])
    else:
        plan = tier.find_or_init(keys[4:], pinned=[pinned])
    assert (plan.slots // 4).tolist() == [0, 0]
    assert tier.verify() == []
    assert tier.find(keys[4:]).absent == 0


def test_free_slots_are_not_locked() -> None:
    tier = small_tier()
    plan = tier.find_or_init(keys_of(1))
    tier._table.lock(torch.arange(8, device=DEVICE))
    locked = [
        (group, lane) for group, word in enumerate(tier._table.locks.tolist()) for lane in range(4) if word >> lane & 1
    ]
    assert [group * 4 + lane for group, lane in locked] == plan.slots.tolist()


@pytest.mark.parametrize("counted", [False, True])
def test_rows_that_an_update_does_not_find_are_counted(counted: bool) -> None:
    tier = small_tier()
    tier.find_or_init(keys_of(1))
    tier.apply(keys_of(1, 2, 2, 3), ones(4), counted=counted)
    tier.apply(tier.batch(keys_of(2, 1, 2)), ones(3), counted=counted)
    assert tier.stats().absent == 3


def test_vectors_go_where_they_are_asked_for() -> None:
    tier, asked = HbmTier(HbmSpec(dim=2, capacity=128, rule=UpdateRule("sgd", lr=1.0)), DEVICE), keys_of(3, 5, 7, 3)
    plan = tier.find_or_init(tier.batch(asked))
    wanted, out = tier.pool(plan), torch.empty(4, 2, device=DEVICE)
    assert tier.pool(plan, out=out) is out
    assert torch.equal(out, wanted)
    assert torch.equal(tier.pool(plan, positions=slice(0, 4, 2)), wanted[::2])
    for wrong in (torch.empty(4, 4, device=DEVICE)[:, :2], torch.empty(3, 2, device=DEVICE)):
        with pytest.raises(InputError, match=r"pool: out is .*: must be contiguous float32 \(4, 2\)"):
            tier.pool(plan, out=wrong)


@pytest.mark.parametrize("scale", [-0.1, float("nan"), 1.1e30])
def test_a_learning_rate_that_would_ruin_rows_is_refused(scale: float) -> None:
    tier = small_tier()
    plan = tier.find_or_init(keys_of(3))
    with pytest.raises(InputError, match=r"lr_scale=.*: must be from 0 to 1e30"):
        tier.apply(plan, ones(1), lr_scale=scale)
    tier.apply(plan, ones(1), lr_scale=1e30)


def test_a_batch_groups_its_positions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tier, gradients = small_tier(), torch.randn(5, 2, device=DEVICE)
    batch = tier.batch(keys_of(3, 1, 3, 3, 2))
    plan = tier.find_or_init(batch)
    assert batch.folded is not None
    again = batch.folded._replace(grouped=None)
    assert torch.equal(again.order(), batch.folded.order())
    wanted = scatter(again, gradients)
    monkeypatch.setattr("hotrow.kernels.unique._order_kernel", None)
    size = int(again.size)
    assert torch.equal(scatter(batch.folded, gradients)[:size], wanted[:size])
    tier.apply(plan, gradients)
