"""One table in several partitions gives what one table gives."""

from dataclasses import replace
from unittest import mock

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.errors import ConfigError, InputError
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmPartitions, HbmSpec, HbmTier
from hotrow.store.hbm.hashing import partition_of
from hotrow.store.hbm.partitions import split_by_partition

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def spec(capacity: int) -> HbmSpec:
    return HbmSpec(dim=2, capacity=capacity, rule=UpdateRule("adagrad", lr=0.5), group_slots=4, groups=2)


def test_partitions_give_what_one_table_gives() -> None:
    one, many = HbmTier(spec(96), DEVICE), HbmPartitions(spec(96), [DEVICE] * 3)
    keys = torch.tensor([5, -1, 5, 2**63 - 1, 0, 9, 9, 11], device=DEVICE)
    gradients = torch.arange(16, dtype=torch.float32, device=DEVICE).reshape(8, 2)
    found, theirs = torch.empty(8, 2, device=DEVICE), torch.empty(8, 2, device=DEVICE)
    plan = many.find_or_init(keys, found)
    assert one.apply(one.find_or_init(keys, theirs), gradients) == many.apply(plan, gradients)
    assert torch.equal(found, theirs)
    assert plan.present.all()
    asked = torch.cat([keys, keys[:1] + 100])
    found, theirs = torch.empty(9, 2, device=DEVICE), torch.empty(9, 2, device=DEVICE)
    assert many.find(asked, found).absent == one.find(asked, theirs).absent == 1
    torch.testing.assert_close(found, theirs, equal_nan=True)
    assert len(many) == len(one) == 6
    assert many.verify() == []
    assert many.erase(keys) == 6
    assert many.stats().erased == 6


def test_put_and_evict_returns_what_any_partition_displaced() -> None:
    many = HbmPartitions(spec(16), [DEVICE] * 2)
    rows = torch.arange(60, dtype=torch.float32, device=DEVICE).reshape(30, 2)
    first = many.put_and_evict(torch.arange(10, device=DEVICE), rows[:10])
    assert first.evicted is None
    second = many.put_and_evict(torch.arange(10, 30, device=DEVICE), rows[10:], pinned=[])
    evicted = second.evicted
    assert evicted is not None
    assert torch.equal(evicted.values, rows[evicted.keys])
    assert len(many) == 16
    assert 10 - len(evicted) + int(second.present.sum()) == 16
    assert second.turned_away == 20 - int(second.present.sum())


def test_a_row_in_the_wrong_partition_is_a_fault() -> None:
    many = HbmPartitions(spec(16), [DEVICE] * 2)
    stray = next(key for key in range(100) if int(partition_of(torch.tensor([key]), 2)) == 1)
    many.tiers[0].find_or_init(torch.tensor([stray], device=DEVICE))
    assert many.verify() == ["partition 0: holds 1 rows of other partitions"]


def test_every_key_has_one_partition() -> None:
    keys = torch.arange(-50, 50)
    routed = split_by_partition(keys, 7)
    assert sorted(torch.cat([index for _, index in routed]).tolist()) == list(range(100))
    for partition, index in routed:
        assert set(partition_of(keys[index], 7).tolist()) == {partition}
        assert index.tolist() == sorted(index.tolist())


def test_no_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="devices has 0 entries"):
        HbmPartitions(spec(16), [])


def test_sums_of_duplicates_have_the_bits_of_one_deterministic_table() -> None:
    exact = replace(spec(32), deterministic=True, rule=UpdateRule("sgd", lr=0.5))
    one, many = HbmTier(exact, DEVICE), HbmPartitions(exact, [DEVICE] * 2)
    random = torch.Generator().manual_seed(3)
    keys = torch.randint(3, (300,), generator=random).to(DEVICE)
    gradients = torch.randn(300, 2, generator=random).to(DEVICE)
    one.apply(one.find_or_init(keys), gradients)
    many.apply(many.find_or_init(keys), gradients)
    found, theirs = torch.empty(300, 2, device=DEVICE), torch.empty(300, 2, device=DEVICE)
    one.find(keys, found)
    many.find(keys, theirs)
    assert torch.equal(found, theirs)


def test_a_key_that_is_put_twice_changes_no_partition() -> None:
    many = HbmPartitions(spec(32), [DEVICE] * 4)
    keys = torch.tensor([*range(8), 3], device=DEVICE)
    with pytest.raises(InputError, match="1 of them occur twice"):
        many.put_and_evict(keys, torch.ones(9, 2, device=DEVICE))
    assert len(many) == 0


def test_rows_that_one_partition_displaced_are_kept_when_another_fails() -> None:
    many = HbmPartitions(spec(16), [DEVICE] * 2)
    values = torch.arange(120, dtype=torch.float32, device=DEVICE).reshape(60, 2)
    first = many.put_and_evict(torch.arange(30, device=DEVICE), values[:30])
    before = set(torch.cat([part.keys for part in many.export()]).tolist())
    assert int(first.present.sum()) == len(before) == 16
    broken = many.tiers[1]
    with mock.patch.object(broken, "put_and_evict", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        many.put_and_evict(torch.arange(30, 60, device=DEVICE), values[30:])
    rows = many.take_evicted()
    assert rows is not None
    assert torch.equal(rows.values, values[rows.keys])
    after = set(torch.cat([part.keys for part in many.export()]).tolist())
    assert before - after == set(rows.keys.tolist())
    assert many.take_evicted() is None


def test_partitions_are_cleared_together() -> None:
    swapped = replace(spec(32), rule=UpdateRule("adagrad", lr=0.5, swap_period=10, swap_decay=0.5))
    many = HbmPartitions(swapped, [DEVICE] * 2)
    many.find_or_init(torch.arange(9, device=DEVICE), samples=55)
    many.clear()
    assert (len(many), many.verify()) == (0, [])
    many.find_or_init(torch.arange(9, device=DEVICE), samples=12)
    assert {period for part in many.export() for period in part.fields["period"].tolist()} == {1}
