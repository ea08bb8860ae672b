"""Promises of a table in GPU memory: the values and updates of the RAM tier, bounds of eviction, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import triton
import triton.language as tl

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.kernels.launch import launch
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store import RamTier
from hotrow.store.hbm import HbmSpec, HbmTier
from hotrow.store.hbm.hashing import hash_keys, partition_of, places
from hotrow.store.hbm.row_kernels import counter_place
from oracles.hbm_twin import MASK, scramble

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL: dict[str, Any] = {"group_slots": 4, "groups": 2, "calls_per_tick": 1}
EXTREMES = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 7], device=DEVICE)


def small_tier(capacity: int = 8, **settings: Any) -> HbmTier:
    rule = settings.pop("rule", UpdateRule("sgd", lr=0.5))
    return HbmTier(HbmSpec(dim=2, capacity=capacity, rule=rule, **(SMALL | settings)), DEVICE)


def keys_of(*keys: int) -> torch.Tensor:
    return torch.tensor(keys, dtype=torch.int64, device=DEVICE)


def evicted_keys(plan: Any) -> list[int]:
    return [] if plan.evicted is None else sorted(plan.evicted.keys.tolist())


@pytest.mark.parametrize(
    "init",
    [hr.Uniform(bound=0.3), hr.Normal(std=0.2), hr.Constant(value=0.7), hr.Uniform(bound=0.3, scaled=True)],
    ids=["uniform", "normal", "constant", "scaled"],
)
def test_first_values_are_those_of_the_ram_tier(init: Any) -> None:
    table = hr.Table(name="user", dim=70, seed=5, init=init, optimizer=hr.SGD(lr=0.1))  # two tiles
    out, wanted = torch.empty(6, 70, device=DEVICE), np.empty((6, 70), np.float32)
    HbmTier(HbmSpec.of(table, 128), DEVICE).find_or_init(EXTREMES, out)
    RamTier(table).find_or_init(EXTREMES.cpu().numpy(), wanted)
    if isinstance(init, hr.Normal):  # logarithm and cosine: one unit in the last place of a float32
        np.testing.assert_allclose(out.cpu().numpy(), wanted, rtol=2.4e-7, atol=0)
    else:
        np.testing.assert_array_equal(out.cpu().numpy(), wanted)


@pytest.mark.parametrize(
    "optimizer",
    [
        hr.SGD(lr=0.1),
        hr.Adagrad(lr=0.1, initial=0.1, swap=hr.Swap(period=10, decay=0.5)),
        hr.RowwiseAdagrad(lr=0.1),
        hr.Adam(lr=0.01),
    ],
    ids=["sgd", "adagrad-swap", "rowwise_adagrad", "adam"],
)
def test_updates_are_those_of_the_ram_tier(optimizer: Any) -> None:
    table = hr.Table(dim=3, optimizer=optimizer)
    ram, tier = RamTier(table), HbmTier(HbmSpec.of(table, 16, **SMALL), DEVICE)
    random = np.random.default_rng(1)
    for step in range(3):
        keys = random.integers(0, 6, 9)
        gradients = random.normal(size=(9, 3)).astype(np.float32)
        if step == 1:
            gradients[keys == keys[0]] = np.inf
        when: dict[str, Any] = {"step": step, "samples": 9 * (step + 1)}
        ram.find_or_init(keys, samples=9 * step)
        wanted = ram.apply(keys, gradients, **when)
        plan = tier.find_or_init(torch.tensor(keys, device=DEVICE), samples=9 * step)
        assert tier.apply(plan, torch.tensor(gradients, device=DEVICE), **when) == wanted
    (rows,), (found,) = ram.export(), tier.export()
    order, own = np.argsort(rows.keys), found.keys.argsort().cpu()
    np.testing.assert_array_equal(found.keys.cpu()[own].numpy().view(np.uint64), rows.keys[order])
    np.testing.assert_allclose(found.values.cpu()[own], rows.values[order], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.state.cpu()[own], rows.state[order], rtol=1e-6, atol=1e-7)
    for name in tier.spec.fields:
        np.testing.assert_array_equal(found.fields[name].cpu()[own].numpy().view(np.uint32), rows.fields[name][order])
    assert tier.stats().refused == 1


def test_the_hash_in_torch_is_that_of_the_kernels() -> None:
    tier = small_tier(capacity=64)
    plan = tier.find_or_init(EXTREMES)
    bucket, _, _ = places(EXTREMES, tier.spec.buckets, tier.spec.groups)
    assert (plan.slots // tier.spec.bucket_slots).tolist() == bucket.tolist()
    assert [bits & MASK for bits in hash_keys(EXTREMES).tolist()] == [scramble(key & MASK) for key in EXTREMES.tolist()]


def test_a_table_fills_to_its_last_slot_and_then_evicts_the_row_seen_longest_ago() -> None:
    tier = small_tier()
    for first in (0, 4):
        assert tier.find_or_init(torch.arange(first, first + 4, device=DEVICE)).evicted is None
    assert tier.stats().load == 1.0
    tier.find_or_init(keys_of(0, 1))
    assert evicted_keys(tier.find_or_init(keys_of(100, 100, 101))) == [2, 3]
    assert tier.verify() == []


def test_rows_of_the_call_and_of_pinned_plans_stay() -> None:
    tier = small_tier()
    old = tier.find_or_init(keys_of(0, 1, 2))
    tier.find_or_init(keys_of(3, 4, 5, 6))
    out = torch.ones(6, 2, device=DEVICE)
    plan = tier.find_or_init(keys_of(3, 4, 5, 7, 8, 9), out, pinned=[old])  # one free slot, and that of 6
    assert evicted_keys(plan) == [6]
    assert plan.turned_away == tier.stats().turned_away == 1
    assert plan.absent == 0
    assert out[~plan.present].tolist() == [[0.0, 0.0]]
    applied = tier.apply(plan, torch.ones(6, 2, device=DEVICE))
    assert applied is not None
    assert (applied.rows, applied.unadmitted, applied.absent) == (5, 1, 0)
    assert tier.find(keys_of(0, 1, 2)).absent == 0


def test_a_plan_whose_rows_have_gone_is_looked_up_again() -> None:
    tier = small_tier()
    plan = tier.find_or_init(keys_of(1, 2))
    tier.erase(keys_of(1))
    tier.find_or_init(torch.arange(10, 17, device=DEVICE))  # one of them has the slot of key 1
    assert tier.pool(plan)[0].tolist() == [0.0, 0.0]
    applied = tier.apply(plan, torch.ones(2, 2, device=DEVICE))
    assert applied is not None
    assert (applied.rows, applied.absent) == (1, 1)
    (rows,) = tier.export()
    versions = dict(zip(rows.keys.tolist(), rows.fields["version"].tolist(), strict=True))
    assert versions.pop(2) == 2
    assert set(versions.values()) == {1}


@pytest.mark.parametrize("unseen", [127, 128, 255, 256, 257])  # calls; a byte counts to 255
def test_lru_never_takes_an_old_row_for_a_new_one(unseen: int) -> None:
    tier = small_tier(groups=1, capacity=4)
    tier.find_or_init(keys_of(0))
    for call in range(unseen):
        tier._table.begin_call()
        if call == unseen // 2:
            tier.find_or_init(keys_of(1, 2, 3))
    assert evicted_keys(tier.find_or_init(keys_of(4))) == [0]


def test_lfu_counts_calls_and_not_duplicates_and_stops_at_255() -> None:
    tier = small_tier(groups=1, capacity=4, eviction="lfu")
    tier.find_or_init(keys_of(0, 1, 1, 1, 2, 3))
    tier.find_or_init(keys_of(0, 2, 3))
    tier._table.meta[:, 1, :][tier._table.meta[:, 1, :] == 2] = 254
    tier.find_or_init(keys_of(0, 2))
    tier.find_or_init(keys_of(0, 2))
    assert sorted(tier._table.ages.tolist()) == [1, 254, 255, 255]
    assert evicted_keys(tier.find_or_init(keys_of(4))) == [1]


def test_rows_of_calls_in_one_tick_are_equally_old_and_older_ones_go_first() -> None:
    tier = small_tier(groups=1, capacity=4, calls_per_tick=3)
    for _ in range(3):
        tier._table.begin_call()
    tier.find_or_init(keys_of(0, 1))
    before = tier._table.ages.clone()
    assert sorted(before.tolist()) == [0, 0, 1, 1]
    tier.find_or_init(keys_of(0, 1))
    assert torch.equal(tier._table.ages, before)
    tier.find_or_init(keys_of(2, 3))  # the sixth call: a new tick
    tier.find_or_init(keys_of(1))
    assert evicted_keys(tier.find_or_init(keys_of(4))) == [0]


@pytest.mark.parametrize("calls", [127 * 4, 128 * 4, 257 * 4 + 1])
def test_a_coarse_tick_never_takes_an_old_row_for_a_new_one(calls: int) -> None:
    tier = small_tier(groups=1, capacity=4, calls_per_tick=4)
    tier.find_or_init(keys_of(0))
    for _ in range(calls):
        tier._table.begin_call()
    tier.find_or_init(keys_of(1, 2, 3))
    assert evicted_keys(tier.find_or_init(keys_of(4))) == [0]


def test_ages_are_written_only_by_calls_that_see_rows() -> None:
    tier = small_tier()
    tier.find_or_init(keys_of(1, 2))
    before = tier._table.ages.clone()
    plan = tier.find(keys_of(1))
    tier.apply(plan, torch.ones(1, 2, device=DEVICE))
    assert torch.equal(tier._table.ages, before)


def test_removed_slots_are_used_again_and_searches_pass_them() -> None:
    tier = small_tier()
    tier.find_or_init(torch.arange(8, device=DEVICE))
    tier.erase(torch.arange(0, 8, 2, device=DEVICE))
    assert tier.find(torch.arange(1, 8, 2, device=DEVICE)).absent == 0
    assert tier.verify() == []
    assert tier.find_or_init(torch.arange(20, 24, device=DEVICE)).evicted is None
    assert len(tier) == 8
    assert tier.verify() == []


def test_verify_finds_what_is_wrong() -> None:
    tier = small_tier(capacity=16)
    plan = tier.find_or_init(torch.arange(6, device=DEVICE))
    slot = int(plan.slots[0])
    group, lane = slot // 4, slot % 4
    tier._table.meta[group, 0, lane] ^= 4
    tier._table.locks[0] = 1
    tier._columns.fields["version"][slot] = 0
    tier._table.stored[slot] = tier._table.stored[int(plan.slots[1])]
    tier._allocator.rows += 1
    said = " ".join(tier.verify())
    for fault in ("digest", "version 0", "another slot holds too", "still locked", "counts 7 rows"):
        assert fault in said


def test_columns_that_are_not_given_are_kept_or_start_as_in_a_new_row() -> None:
    tier = small_tier(rule=UpdateRule("adagrad", lr=0.5, initial=0.25))
    tier.apply(tier.find_or_init(keys_of(1)), torch.ones(1, 2, device=DEVICE))
    tier.put_and_evict(keys_of(1, 2), torch.zeros(2, 2, device=DEVICE))
    (rows,) = tier.export()
    order = rows.keys.argsort()
    assert rows.state[order].tolist() == [[1.25, 1.25], [0.25, 0.25]]
    assert rows.fields["version"][order].tolist() == [2, 1]


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_a_step_of_bags_is_that_of_single_keys(eviction: str) -> None:
    """fold, find_or_init, pool and apply on bags, against a lookup of every key and sums in torch."""
    tier, other = (small_tier(capacity=32, eviction=eviction, deterministic=True) for _ in range(2))
    keys, offsets = keys_of(5, 6, 5, 7, 5), torch.tensor([0, 2, 2, 5], device=DEVICE)
    rows = torch.empty(5, 2, device=DEVICE)
    plan, single = tier.find_or_init(tier.batch(keys)), other.find_or_init(keys, rows)
    wanted = torch.stack([rows[:2].mean(0), torch.zeros(2, device=DEVICE), rows[2:].mean(0)])
    torch.testing.assert_close(tier.pool(plan, offsets, "mean"), wanted)
    for found in (plan, other.find(keys)):  # with and without folded duplicates
        part = (tier if found is plan else other).pool(found, offsets[2:] - 2, "mean", positions=slice(2, 5))
        torch.testing.assert_close(part, wanted[2:])
    gradients = torch.tensor([[1.0, 2.0], [9.0, 9.0], [3.0, 6.0]], device=DEVICE)
    each = torch.cat([gradients[:1] / 2, gradients[:1] / 2, *[gradients[2:] / 3] * 3])
    assert tier.apply(plan, gradients, offsets, "mean") == other.apply(single, each)
    assert tier.apply(plan, gradients, offsets, "mean", counted=False) is None
    other.apply(single, each)
    torch.testing.assert_close(tier.pool(plan), other.pool(single))
    out = torch.empty(6, 2, device=DEVICE)
    assert tier.find(tier.batch(torch.cat([keys, keys_of(8)])), out).absent == 1
    torch.testing.assert_close(out[:5], other.pool(single))
    assert out[5].isnan().all()


def test_empty_batches_change_nothing() -> None:
    tier = small_tier()
    nothing, none = keys_of(), torch.empty(0, 2, device=DEVICE)
    assert tier.find_or_init(nothing, none).evicted is None
    assert tier.apply(tier.find(nothing, none), none) is not None
    assert len(tier.put_and_evict(nothing, none)) == tier.erase(nothing) == len(tier) == 0
    assert list(tier.export()) == []


def test_bad_input_is_refused_and_changes_nothing() -> None:
    tier = small_tier()
    ones = torch.ones(2, 2, device=DEVICE)
    with pytest.raises(InputError, match="1 of them occur twice"):
        tier.put_and_evict(keys_of(1, 1), ones)
    with pytest.raises(InputError, match=r"keys is torch\.int32"):
        tier.find(keys_of(1).to(torch.int32))
    with pytest.raises(InputError, match=r"must be contiguous float32 \(2, 2\)"):
        tier.find_or_init(keys_of(1, 2), torch.ones(2, 3, device=DEVICE))
    with pytest.raises(InputError, match=r"rows of table 'default' have version, last_update"):
        tier.put_and_evict(keys_of(1, 2), ones, fields={"clock": torch.ones(2, dtype=torch.int32, device=DEVICE)})
    with pytest.raises(InputError, match="version holds a 0"):
        tier.put_and_evict(keys_of(1, 2), ones, fields={"version": torch.zeros(2, dtype=torch.int32, device=DEVICE)})
    with pytest.raises(InputError, match="track_changes=True"):
        next(tier.export(changed_only=True))
    with pytest.raises(InputError, match=r"gradients is on meta: the table is on"):
        tier.apply(keys_of(1), torch.ones(1, 2, device="meta"))
    assert len(tier) == 0
    with pytest.raises(ConfigError, match=r"capacity=7: must be from 8 rows"):
        replace(tier.spec, capacity=7)
    with pytest.raises(ConfigError, match=r"HbmSpec.dim=1,025: must be from 1 to 1,024"):
        replace(tier.spec, dim=1025)
    with pytest.raises(ConfigError, match=r"HbmSpec.calls_per_tick=0"):
        replace(tier.spec, calls_per_tick=0)
    with pytest.raises(ConfigError, match=r"device='cuda:99': torch .* sees \d+ GPUs"):
        HbmTier(tier.spec, "cuda:99")
    with pytest.raises(ConfigError, match=r"device='meta': a table in GPU memory needs a GPU"):
        HbmTier(tier.spec, "meta")
    with pytest.raises(ConfigError, match=r"Table.type='float16'"):
        HbmSpec.of(hr.Table(dim=2, type="float16"), 128)


def test_partitions_and_buckets_use_independent_bits() -> None:
    keys = torch.arange(4096)
    owner = partition_of(keys, 2)
    bucket, _, _ = places(keys[owner == 0], 2, 4)
    share = float(bucket.float().mean())
    assert 0.45 < share < 0.55


def test_a_cleared_table_has_no_rows_and_begins_at_the_first_swap_period() -> None:
    rule = UpdateRule("adagrad", lr=0.5, swap_period=10, swap_decay=0.5)
    tier = small_tier(capacity=16, rule=rule)
    plan = tier.find_or_init(torch.arange(10, device=DEVICE), samples=55)
    tier.keep_evicted(next(tier.export()))
    before = tier.generation
    tier.clear()
    assert (len(tier), tier.verify(), tier.take_evicted()) == (0, [], None)
    assert tier.find(plan).absent == 10
    assert tier.generation != before
    assert tier.stats().erased == 10
    tier.find_or_init(keys_of(3), samples=12)
    (rows,) = tier.export()
    assert rows.fields["period"].tolist() == [1]
    assert tier.pool(plan)[3].tolist() == rows.values[0].tolist()  # plans are looked up again


@triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
def _counter_places(out: Any, count: Any, COUNTERS: tl.constexpr) -> None:
    i = tl.arange(0, 1).to(tl.int64)
    for each in tl.static_range(COUNTERS):
        tl.store(out + each + i, counter_place(each, count, i + 3))


def test_counters_of_the_largest_batch_have_places_beyond_31_bits() -> None:
    out = torch.zeros(6, dtype=torch.int64, device=DEVICE)
    launch(_counter_places, 1, out, 2**29 - 1, COUNTERS=6)
    assert out.tolist() == [each * (2**29 - 1) + 3 for each in range(6)]
