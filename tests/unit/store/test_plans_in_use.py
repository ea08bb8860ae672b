"""Plans of several batches in use at once: rows that stay, keys that two plans share, updates and reads in parts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow import FTRL, SGD, Adagrad, Adam, AtLeast, InputError, RowwiseAdagrad, Swap, Table
from hotrow.server.step_window import early_rows
from hotrow.store import Applied, LookupPlan, RamTier
from oracles.life_pair import DIM, Pair, as_keys, fallen, life_table, ones, order

U64 = NDArray[np.uint64]
F32 = NDArray[np.float32]
OPTIMIZERS: list[Any] = [
    SGD(lr=0.1),
    Adagrad(lr=0.1),
    RowwiseAdagrad(lr=0.1),
    Adam(lr=0.1),
    Adam(lr=0.1, correction="global"),
    FTRL(lr=0.1),
    Adagrad(lr=0.1, swap=Swap(period=50, decay=0.5)),
]


def rows_of(tier: RamTier) -> dict[str, NDArray[Any]]:
    """All rows, by key."""
    chunks = list(tier.export())
    keys = np.concatenate([chunk.keys for chunk in chunks])
    where = np.argsort(keys)
    columns = {name: np.concatenate([chunk.fields[name] for chunk in chunks]) for name in tier.fields}
    columns |= {name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in ("values", "state")}
    return {"keys": keys[where]} | {name: column[where] for name, column in columns.items()}


def same_rows(one: RamTier, other: RamTier) -> None:
    mine, theirs = rows_of(one), rows_of(other)
    for name, column in mine.items():
        np.testing.assert_array_equal(column, theirs[name], err_msg=name)


# Pinned rows


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_pinned_row_stays_although_it_is_the_first_to_go(policy: str) -> None:
    pair = Pair(life_table(capacity=4, eviction=policy))
    pinned = pair.find_or_init([1, 2])
    pair.find_or_init([3, 4])
    batch, _ = pair.find_or_init([5], pinned=[pinned])
    assert (fallen(batch), order(pair)) == ([3], [1, 2, 4, 5])
    batch, _ = pair.find_or_init([6])
    assert fallen(batch) == [1]


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_key_that_finds_only_pinned_rows_is_turned_away(policy: str) -> None:
    pair = Pair(life_table(capacity=2, eviction=policy))
    pinned = pair.find_or_init([1, 2])
    batch, done = pair.find_or_init([2, 3, 4], pinned=[pinned])
    assert (batch.turned_away, done.turned_away, fallen(batch)) == (2, {3, 4}, [])
    assert pair.tier.stats().turned_away == 2
    assert pair.apply([2, 3, 4], ones(3), batch, turned={3, 4}).unadmitted == 2
    pair.check([1, 2, 3, 4])


def test_a_key_that_lost_its_row_to_its_own_batch_pins_nothing() -> None:
    pair = Pair(life_table(capacity=2))
    pinned = pair.find_or_init([1, 2, 3])
    batch, _ = pair.find_or_init([4, 1, 5], pinned=[pinned])
    assert (batch.turned_away, order(pair)) == (3, [2, 3])


def test_a_plan_that_was_not_looked_up_pins_nothing() -> None:
    pair = Pair(life_table(capacity=2))
    pair.find_or_init([1, 2])
    pair.tier.find_or_init(as_keys([3]), pinned=[pair.tier.batch(as_keys([1]))])
    assert order(pair) == [2, 3]


def test_pins_are_plans_of_a_table_with_as_many_partitions() -> None:
    tier = RamTier(life_table(), partitions=2)
    plan = RamTier(life_table(), partitions=4).batch(as_keys([1]))
    with pytest.raises(InputError, match=r"pinned holds .* give plans of table"):
        tier.find_or_init(as_keys([1]), pinned=[plan])
    with pytest.raises(InputError, match=r"others holds .* give plans of the same table"):
        tier.batch(as_keys([1])).overlap([plan])
    with pytest.raises(InputError, match=r"other is .* give plans of the same table"):
        tier.batch(as_keys([1])).shared(plan)
    with pytest.raises(InputError, match="pinned holds 3"):
        tier.find_or_init(as_keys([1]), pinned=[3])  # type: ignore[list-item]


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("seed", range(4))
def test_batches_in_turn_evict_what_the_twin_evicts(policy: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    admission = AtLeast(count=2) if seed % 2 else None
    table = life_table(capacity=20, eviction=policy, admission=admission)
    pair = Pair(table, partitions=[1, 2][seed // 2], threads=2)
    unpinned = RamTier(table, partitions=[1, 2][seed // 2])
    last: list[tuple[LookupPlan, Any]] = []
    differ = 0
    for _ in range(60):
        keys = (random.zipf(1.3, 24) % 60).tolist()
        batch, done = pair.find_or_init(keys, pinned=last)
        last = [(batch, done)]
        unpinned.find_or_init(as_keys(keys))
        differ += sorted(unpinned.eviction_order(0)) != sorted(pair.tier.eviction_order(0))
        pair.apply(keys, ones(len(keys)), batch, turned=done.turned_away)
        pair.check_order()
    pair.check(range(60))
    assert differ, "no pin was ever in the way"


# Overlap


@pytest.mark.parametrize(("size", "partitions", "threads"), [(0, 1, 1), (5, 1, 1), (300, 4, 2), (60_000, 32, 2)])
def test_overlap_says_which_keys_another_plan_has(size: int, partitions: int, threads: int) -> None:
    random = np.random.default_rng(size)
    tier = RamTier(life_table(), partitions=partitions, threads=threads)
    own, one, two = (random.integers(0, size * 3 + 1, size).astype(np.uint64) for _ in range(3))
    plan, others = tier.batch(own), [tier.batch(one), tier.batch(two)]
    np.testing.assert_array_equal(plan.overlap(others, threads=threads), np.isin(plan.keys, np.concatenate([one, two])))
    mine, theirs = plan.shared(others[0], threads=threads)
    np.testing.assert_array_equal(mine, np.isin(plan.keys, one))
    np.testing.assert_array_equal(theirs, np.isin(others[0].keys, own))
    assert not plan.overlap([]).any()
    assert plan.overlap([plan]).all()


# Reading in parts


@pytest.mark.parametrize("per", ["key", "unique"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_read_writes_only_chosen_rows_that_exist_and_changes_nothing(per: Any, dtype: Any) -> None:
    tier = RamTier(life_table(capacity=3, type=dtype), partitions=1)
    tier.find_or_init(as_keys([1, 2, 3]))
    before, sequence = rows_of(tier), tier.eviction_order(0).tolist()
    plan = tier.batch(as_keys([2, 9, 1, 2]))
    expected = np.empty((len(plan) if per == "key" else plan.unique, DIM), np.float32)
    tier.find(as_keys([2, 9, 1, 2]) if per == "key" else plan.keys, expected)
    out = np.full_like(expected, 7)
    tier.read_rows(plan, out, per=per, only=plan.keys != 1)
    of_row = np.array([2, 9, 1, 2]) if per == "key" else plan.keys
    np.testing.assert_array_equal(out[of_row == 2], expected[of_row == 2])
    assert (out[of_row != 2] == 7).all()
    tier.read_rows(plan, out, per=per)
    np.testing.assert_array_equal(out[of_row != 9], expected[of_row != 9])
    assert (out[of_row == 9] == 7).all()
    assert tier.eviction_order(0).tolist() == sequence
    after = rows_of(tier)
    for name, column in before.items():
        np.testing.assert_array_equal(column, after[name])


def test_two_reads_of_a_large_batch_are_one_find() -> None:
    random = np.random.default_rng(0)
    tier = RamTier(life_table(), threads=2)
    keys = (random.zipf(1.2, 50_000) % 9000).astype(np.uint64)
    expected, out = np.empty((len(keys), DIM), np.float32), np.full((len(keys), DIM), np.nan, np.float32)
    plan = tier.find_or_init(keys, expected)
    chosen = random.random(plan.unique) < 0.5
    tier.read_rows(plan, out, only=chosen)
    assert np.isnan(out).any()
    tier.read_rows(plan, out, only=~chosen)
    np.testing.assert_array_equal(out, expected)


# Updating in parts


def batches(seed: int) -> list[tuple[U64, F32, F32 | None]]:
    random = np.random.default_rng(seed)
    return [
        (
            (random.zipf(1.2, 3000) % 900).astype(np.uint64),
            random.normal(size=(3000, DIM)).astype(np.float32),
            random.integers(0, 3, 3000).astype(np.float32) if step % 2 else None,
        )
        for step in range(4)
    ]


@pytest.mark.parametrize(
    ("optimizer", "dtype"),
    [(each, "float32") for each in OPTIMIZERS] + [(each, "float16") for each in OPTIMIZERS if each.name != "ftrl"],
    ids=str,
)
def test_updates_in_two_parts_give_the_bits_of_one(optimizer: Any, dtype: Any) -> None:
    table = Table(dim=DIM, optimizer=optimizer, type=dtype)
    whole, parts = RamTier(table, threads=2), RamTier(table, threads=2)
    random = np.random.default_rng(1)
    for step, (keys, gradients, weights) in enumerate(batches(0)):
        when: dict[str, Any] = {"step": step, "samples": 40 * (step + 1)}
        once = whole.apply(whole.find_or_init(keys), gradients, weights=weights, **when)
        plan = parts.find_or_init(keys)
        chosen = random.random(plan.unique) < 0.3
        two = [parts.apply(plan, gradients, weights=weights, only=only, **when) for only in (chosen, ~chosen)]
        names = Applied.__dataclass_fields__
        assert [getattr(once, name) for name in names] == [sum(getattr(each, name) for each in two) for name in names]
        assert two[0].rows < once.rows
    same_rows(whole, parts)


def test_a_part_of_a_plan_that_was_not_looked_up_leaves_the_rest_to_be_found() -> None:
    tier = RamTier(life_table())
    tier.find_or_init(as_keys([1, 2, 3]))
    plan = tier.batch(as_keys([1, 2, 3]))
    assert tier.apply(plan, ones(3), only=plan.keys == 2).rows == 1
    assert tier.apply(plan, ones(3), only=plan.keys != 2).rows == 2
    assert tier.versions(as_keys([1, 2, 3])).tolist() == [2, 2, 2]


def test_a_row_made_after_the_lookup_takes_no_gradient_of_it() -> None:
    tier = RamTier(life_table(admission=AtLeast(count=2)))
    turned_away = tier.find_or_init(as_keys([1, 2, 2]))
    tier.find_or_init(as_keys([1]))  # admitted now
    applied = tier.apply(turned_away, ones(3), as_found=True)
    assert (applied.rows, applied.unadmitted, applied.absent) == (1, 1, 0)
    assert tier.versions(as_keys([1, 2])).tolist() == [1, 2]
    evicting = RamTier(life_table(capacity=2, eviction="lfu"), partitions=1)
    evicting.find_or_init(as_keys([9, 9]))
    lost = evicting.find_or_init(as_keys([1, 2]))  # 1 falls out for 2
    evicting.find_or_init(as_keys([1]), pinned=[lost])
    applied = evicting.apply(lost, ones(2), as_found=True)
    assert (applied.rows, applied.absent) == (1, 1)
    assert evicting.versions(as_keys([1, 2])).tolist() == [1, 2]


def test_a_row_made_after_the_lookup_is_not_read_as_found() -> None:
    tier = RamTier(life_table(admission=AtLeast(count=2)))
    plan = tier.find_or_init(as_keys([1, 2, 2]))
    tier.find_or_init(as_keys([1]))  # admitted now
    out = np.full((2, DIM), 7, np.float32)
    tier.read_rows(plan, out, per="unique", as_found=True)
    np.testing.assert_array_equal((out == 7).all(1), plan.keys == 1)
    tier.read_rows(plan, out, per="unique")
    assert not (out == 7).any()
    with pytest.raises(InputError, match="as_found: the keys have not been looked up yet"):
        tier.read_rows(as_keys([1]), out[:1], as_found=True)


def test_flags_and_plans_that_do_not_fit_are_refused_in_a_sentence() -> None:
    tier = RamTier(life_table())
    plan = tier.find_or_init(as_keys([1, 2]))
    out = np.empty((2, DIM), np.float32)
    with pytest.raises(InputError, match="only holds 3 flags, expected 2: one per unique key"):
        tier.read_rows(plan, out, only=np.ones(3, np.bool_))
    with pytest.raises(InputError, match="only has type int64: must be bool"):
        tier.apply(plan, ones(2), only=np.ones(2, np.int64))
    with pytest.raises(InputError, match="as_found: the keys have not been looked up yet"):
        tier.apply(as_keys([1, 2]), ones(2), as_found=True)


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=20),
    st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=3),
)
def test_keys_outside_the_others_are_those_that_may_be_read_early(keys: list[int], others: list[list[int]]) -> None:
    """The shard asks `overlap`, the simulator and its checkers `early_rows`."""
    tier = RamTier(Table(dim=1))
    plan = tier.batch(np.array(keys))
    theirs = [tier.batch(np.array(each, np.int64)) for each in others]
    early = early_rows(plan.keys.view(np.int64), [each.keys.view(np.int64) for each in theirs])
    np.testing.assert_array_equal(plan.overlap(theirs), ~early)
