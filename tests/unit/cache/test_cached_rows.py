"""Rows of a cache in native memory agree with the rules of the clocks, and with changes computed in numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hotrow as hr
from hotrow.cache.changes import Changes
from hotrow.cache.clocks import may_ask, must_write_back
from hotrow.cache.rows import CachedRows
from hotrow.store import LookupPlan, Rows
from oracles.cached_rows import change_of, filled
from profiles import examples

PERIOD = 10
KEYS = np.array([3, 8, 2**63], np.uint64)
SWAP = hr.Swap(period=PERIOD, decay=0.5)
OPTIMIZERS = {
    "sgd": hr.SGD(lr=0.5),
    "adagrad": hr.Adagrad(lr=0.5, initial=0.5),
    "rowwise": hr.RowwiseAdagrad(lr=0.5),
    "adagrad with swap": hr.Adagrad(lr=0.5, swap=SWAP),
    "rowwise with swap": hr.RowwiseAdagrad(lr=0.5, swap=SWAP),
}


def rows_in(optimizer: str, staleness: int = 100) -> CachedRows:
    table = hr.Table(dim=3, optimizer=OPTIMIZERS[optimizer], clock=True, capacity=100)
    return CachedRows(table, hr.Cache(capacity=100, staleness=staleness), threads=1)


def fetched(tier: CachedRows, seed: int, period: int) -> Rows:
    chance = np.random.default_rng(seed)
    values = chance.standard_normal((3, 3)).astype(np.float32)
    state = chance.random((3, tier.state_dim)).astype(np.float32)
    fields = {"clock": chance.integers(0, 50, 3).astype(np.uint32)}
    if "period" in tier.fields:
        fields["period"] = np.full(3, period, np.uint32)
    return Rows(KEYS, values, state, fields)


def fill(tier: CachedRows, rows: Rows) -> None:
    """All rows of a plan, in its order."""
    plan = tier.plan_distinct(rows.keys)
    tier.fill(plan, np.arange(len(plan), dtype=np.uint32), rows)


def update(tier: CachedRows, plan: LookupPlan, seed: int, samples: int) -> None:
    gradients = np.random.default_rng(seed).standard_normal((3, 3)).astype(np.float32)
    weights = np.array([1, 0, 2], np.float32)  # the second row stays as it is
    tier.apply(plan, gradients, weights=weights, samples=samples)


def check_same(found: Changes, expected: Changes) -> None:
    for name in ("keys", "clocks", "updates", "periods"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.state, expected.state, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@settings(deadline=None, max_examples=examples(40))
@given(
    before=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    after=st.lists(st.integers(0, 12), max_size=3),
    periods=st.tuples(st.integers(0, 4), st.integers(0, 6)),
    seed=st.integers(0, 1000),
)
def test_changes_and_rows_that_come_are_those_of_numpy(
    optimizer: str, before: list[int], after: list[int], periods: tuple[int, int], seed: int
) -> None:
    """Updates, a row of the server below them, further updates; the samples between two updates are given."""
    tier = rows_in(optimizer)
    swap = getattr(OPTIMIZERS[optimizer], "swap", None)
    plan = tier.batch(KEYS)
    tier.place(plan)
    fill(tier, fetched(tier, seed, periods[0]))
    samples, base = PERIOD * periods[0], tier.whole_rows(KEYS)
    for gap in before:
        update(tier, plan, seed + samples, samples)
        samples += gap
    now = tier.whole_rows(KEYS)
    server = fetched(tier, seed + 1, periods[1])
    fill(tier, server)
    expected, new_base = filled(server, now, base, swap)
    clean = now.fields["version"] == 1
    found = tier.whole_rows(KEYS)
    np.testing.assert_allclose(found.values[~clean], expected.values[~clean], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.state[~clean], expected.state[~clean], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found.values[clean], server.values[clean])
    np.testing.assert_array_equal(found.state[clean], server.state[clean])
    np.testing.assert_array_equal(found.fields["clock"], server.fields["clock"])
    for gap in after:
        update(tier, plan, seed + 7 * samples, samples + PERIOD * periods[1])
        samples += gap
    now = tier.whole_rows(KEYS)
    changed = now.fields["version"] > 1
    assert tier.changed_rows == changed.sum() == 2
    assert {int(key) for chunk in tier.changed_keys() for key in chunk} == {int(key) for key in KEYS[changed]}
    check_same(tier.take_changes(KEYS), change_of(now, new_base, swap).some(changed))
    assert tier.changed_rows == 0
    taken = tier.whole_rows(KEYS)
    np.testing.assert_array_equal(taken.values, now.values)
    np.testing.assert_array_equal(taken.fields["clock"], now.fields["clock"] + now.fields["version"] - 1)
    assert (taken.fields["version"] == 1).all()
    assert not len(tier.take_changes(KEYS))


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_states_are_the_rules_of_the_clocks_on_both_sides_of_the_bound(staleness: int) -> None:
    tier = rows_in("sgd", staleness)
    plan = tier.batch(KEYS)
    first, second = tier.place(plan), tier.place(plan)
    assert (first.created.tolist(), first.awaited) == (KEYS.tolist(), 0)
    assert (len(second.fetched), second.awaited) == (0, 3)
    fill(tier, fetched(tier, seed=5, period=0))
    there = np.ones(3, np.bool_)
    for number in range(6):
        rows = tier.whole_rows(KEYS)
        start = rows.fields["clock"].astype(np.int64)
        current = start + rows.fields["version"] - 1
        found = tier.place(plan)
        valid, ahead = (rule(there, start, current, staleness) for rule in (may_ask, must_write_back))
        assert (found.absent, found.awaited) == (0, 0)
        np.testing.assert_array_equal(found.checked, KEYS[valid])
        np.testing.assert_array_equal(found.clocks, current[valid])
        np.testing.assert_array_equal(found.fetched, KEYS[ahead])
        np.testing.assert_array_equal(found.changes.keys, KEYS[ahead])
        np.testing.assert_array_equal(found.changes.clocks, current[ahead])
        update(tier, plan, number, samples=0)


def test_a_batch_takes_the_changes_of_rows_that_are_ahead_and_of_those_that_are_evicted_for_it() -> None:
    table = hr.Table(dim=3, optimizer=OPTIMIZERS["adagrad"], clock=True, capacity=3)
    tier = CachedRows(table, hr.Cache(capacity=3, staleness=0), threads=1)
    plan = tier.batch(KEYS)
    tier.place(plan)
    fill(tier, fetched(tier, seed=1, period=0))
    base = tier.whole_rows(KEYS)
    update(tier, plan, seed=2, samples=0)
    now = tier.whole_rows(KEYS)
    found = tier.place(tier.batch(np.array([9, KEYS[2]], np.uint64)))
    assert found.created.tolist() == [9]
    assert found.ahead == 1
    expected = change_of(now, base, None)
    order = [2, 0]  # the row that is ahead, then the one that went
    check_same(found.changes, expected.some(np.array(order)))
    assert tier.changed_rows == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_changes_of_many_rows_are_complete_whatever_the_partitions(threads: int) -> None:
    """More keys than one thread takes alone; every second row is changed, so partitions leave gaps to be closed."""
    rows, chance = 4096, np.random.default_rng(3)
    table = hr.Table(dim=3, optimizer=OPTIMIZERS["sgd"], clock=True, capacity=2 * rows)
    tier = CachedRows(table, hr.Cache(capacity=2 * rows), threads=threads)
    old = chance.permutation(2 * rows).astype(np.uint64)
    plan = tier.batch(old)
    found = tier.place(plan)
    values = chance.standard_normal((len(old), 3)).astype(np.float32)
    assert found.fetched.tolist() == old.tolist()
    fields = {"clock": np.full(len(old), 7, np.uint32)}
    tier.fill(plan, found.uniques, Rows(old, values, np.empty((len(old), 0), np.float32), fields))
    np.testing.assert_array_equal(read(tier, old), values)
    weights = (np.arange(len(old)) % 2).astype(np.float32)
    tier.apply(plan, np.ones((len(old), 3), np.float32), weights=weights)
    before = {int(key) for key in old[weights > 0]}
    coming = (np.arange(rows) + 10 * rows).astype(np.uint64)
    found = tier.place(tier.batch(coming))
    left = {int(key) for chunk in tier.changed_keys() for key in chunk}
    gone = found.changes
    assert set(gone.keys.tolist()) == before - left
    assert len(set(gone.keys.tolist())) == len(gone) > rows // 4
    np.testing.assert_allclose(gone.values, -0.5, rtol=1e-5)
    assert (gone.clocks == 8).all()
    assert (gone.updates == 1).all()
    assert not tier.verify()


@pytest.mark.parametrize(("threads", "partitions"), [(1, 1), (2, 4), (3, 8), (8, 16), (64, 16)])
def test_a_cache_has_no_more_partitions_than_its_threads_need(threads: int, partitions: int) -> None:
    table = hr.Table(dim=3, optimizer=OPTIMIZERS["sgd"], clock=True, capacity=100_000)
    assert CachedRows(table, hr.Cache(capacity=100_000), threads=threads).partitions == partitions


def test_evicted_rows_leave_their_changes() -> None:
    table = hr.Table(dim=3, optimizer=OPTIMIZERS["adagrad"], clock=True, capacity=3)
    tier = CachedRows(table, hr.Cache(capacity=3), threads=1)
    plan = tier.batch(KEYS)
    tier.place(plan)
    fill(tier, fetched(tier, seed=1, period=0))
    base = tier.whole_rows(KEYS)
    update(tier, plan, seed=2, samples=0)
    now = tier.whole_rows(KEYS)
    found = tier.place(tier.batch(np.array([100, 101, 102], np.uint64)))
    assert tier.changed_rows == 0
    changed = now.fields["version"] > 1
    check_same(found.changes, change_of(now, base, None).some(changed))


def test_a_gradient_that_is_not_finite_leaves_no_change_and_an_erased_row_neither() -> None:
    tier = rows_in("adagrad")
    plan = tier.batch(KEYS)
    tier.place(plan)
    rows = fetched(tier, seed=1, period=0)
    fill(tier, rows)
    tier.apply(plan, np.full((3, 3), np.nan, np.float32))
    assert tier.changed_rows == 0
    update(tier, plan, seed=1, samples=0)
    assert tier.changed_rows == 2
    tier.erase(KEYS)
    assert tier.changed_rows == 0
    assert not list(tier.changed_keys())


def read(tier: CachedRows, keys: NDArray[np.uint64]) -> list[list[float]]:
    out = np.empty((len(keys), 3), np.float32)
    tier.values(tier.batch(keys), 0.25, out)
    return out.tolist()


def test_rows_are_read_in_the_order_of_the_keys_and_absent_ones_are_the_default() -> None:
    tier = rows_in("sgd")
    tier.place(tier.batch(KEYS))
    rows = fetched(tier, seed=1, period=0)
    fill(tier, rows)
    assert read(tier, KEYS[::-1].copy()) == rows.values[::-1].tolist()
    assert read(tier, np.array([77, KEYS[1]], np.uint64)) == [[0.25] * 3, rows.values[1].tolist()]
