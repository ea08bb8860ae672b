"""Every operation of the RAM tier, with hits and misses; and bad input, which gets a sentence and changes nothing."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hotrow import FTRL, SGD, Adagrad, Adam, ConfigError, Constant, InputError, Swap, Table, Uniform
from hotrow.store import Applied, RamTier

DIM = 4
HERE = np.array([5, 2**64 - 1, 0], np.uint64)
GONE = np.array([6, 2**63], np.uint64)
MIXED = np.array([5, 6, 0, 5, 2**63, 6], np.uint64)

Snapshot = dict[int, tuple[bytes, bytes, tuple[int, ...]]]


@pytest.fixture
def tier() -> RamTier:
    """SGD with lr 1, all fields; HERE holds the values 1, 2, 3."""
    table = Table(dim=DIM, optimizer=SGD(lr=1.0), init=Constant(value=9.0), clock=True, last_seen=True)
    made = RamTier(table, partitions=2)
    made.put(HERE, rows(1, 2, 3))
    return made


def rows(*numbers: float, dim: int = DIM) -> NDArray[np.float32]:
    return np.repeat(np.array(numbers, np.float32)[:, None], dim, axis=1)


def empty(count: int) -> NDArray[np.float32]:
    return np.full((count, DIM), 77, np.float32)


def found(tier: RamTier, keys: NDArray[np.uint64]) -> list[float]:
    """The first number of each key's value; NaN where absent."""
    out = empty(len(keys))
    tier.find(keys, out)
    assert all(np.isnan(row).all() or (row == row[0]).all() for row in out)
    return [float(row[0]) for row in out]


def snapshot(tier: RamTier) -> Snapshot:
    """Everything the tier holds, to see that nothing changed."""
    return {
        int(key): (value.tobytes(), state.tobytes(), tuple(int(chunk.fields[name][i]) for name in sorted(chunk.fields)))
        for chunk in tier.export()
        for i, (key, value, state) in enumerate(zip(chunk.keys, chunk.values, chunk.state, strict=True))
    }


def test_find_reports_absent_keys_and_leaves_nan_for_them(tier: RamTier) -> None:
    out = empty(6)
    batch = tier.find(MIXED, out)
    np.testing.assert_array_equal(out, rows(1, np.nan, 3, 1, np.nan, np.nan))
    assert (len(batch), batch.unique, batch.absent) == (6, 4, 2)
    assert batch.absent_mask().tolist() == [False, True, False, False, True, True]
    assert len(tier) == 3
    present = tier.find(HERE, empty(3))
    assert present.absent == present.absent_mask().sum() == 0


def test_batch_names_its_unique_keys_and_where_each_key_went(tier: RamTier) -> None:
    batch = tier.batch(MIXED)
    assert sorted(batch.keys.tolist()) == sorted({5, 6, 0, 2**63})
    assert batch.keys.dtype == np.uint64
    assert batch.inverse.dtype == np.uint32
    np.testing.assert_array_equal(batch.keys[batch.inverse], MIXED)


def test_find_per_unique_fills_one_row_per_unique_key(tier: RamTier) -> None:
    batch = tier.batch(MIXED)
    out = empty(batch.unique)
    tier.find(batch, out, per="unique")
    expected = {5: 1.0, 0: 3.0, 6: np.nan, 2**63: np.nan}
    np.testing.assert_array_equal(out, rows(*[expected[int(key)] for key in batch.keys]))


def test_find_or_init_creates_what_is_absent(tier: RamTier) -> None:
    out = empty(6)
    batch = tier.find_or_init(MIXED, out)
    np.testing.assert_array_equal(out, rows(1, 9, 3, 1, 9, 9))
    assert len(tier) == 5
    assert tier.versions(MIXED).tolist() == [1] * 6
    assert tier.find(batch, out).absent == 0
    tier.find_or_init(MIXED)
    assert len(tier) == 5


def test_first_values_are_told_without_creating(tier: RamTier) -> None:
    out = empty(2)
    tier.first_values(GONE, out)
    np.testing.assert_array_equal(out, rows(9, 9))
    assert len(tier) == 3


def test_apply_sums_duplicates_and_skips_absent_keys(tier: RamTier) -> None:
    applied = tier.apply(MIXED, rows(1, 100, 2, 4, 100, 100), step=6)
    assert (applied.rows, applied.refused, applied.absent) == (2, 0, 2)
    np.testing.assert_array_equal(found(tier, HERE), [1 - 5, 2, 3 - 2])
    assert tier.versions(HERE).tolist() == [2, 1, 2]
    assert tier.last_updates(HERE).tolist() == [7, 0, 7]
    assert len(tier) == 3


def test_apply_weighs_each_key(tier: RamTier) -> None:
    tier.apply(MIXED, rows(1, 1, 2, 4, 1, 1), weights=np.array([2, 1, 0.5, -1, 1, 1], np.float32))
    assert found(tier, HERE) == [1 - (2 - 4), 2, 3 - 1]


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_apply_takes_shared_gradient_rows(tier: RamTier, dtype: type) -> None:
    tier.apply(MIXED, rows(1, 10), rows=np.array([0, 0, 1, 1, 1, 1], dtype))
    assert found(tier, HERE) == [1 - 11, 2, 3 - 10]


def test_apply_weighs_shared_gradient_rows_by_key(tier: RamTier) -> None:
    weights = np.array([1, 1, 3, 0.5, 1, 1], np.float32)
    tier.apply(MIXED, rows(1, 10), rows=np.array([0, 0, 1, 1, 1, 1], np.int64), weights=weights)
    assert found(tier, HERE) == [1 - 6, 2, 3 - 30]


def test_apply_per_unique_takes_gradients_in_the_order_of_the_batch(tier: RamTier) -> None:
    batch = tier.batch(MIXED)
    gradient = {5: 1.0, 0: 2.0, 6: 100.0, 2**63: 100.0}
    applied = tier.apply(batch, rows(*[gradient[int(key)] for key in batch.keys]), per="unique")
    assert (applied.rows, applied.absent) == (2, 2)
    assert found(tier, HERE) == [0, 2, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_row_with_a_non_finite_gradient_is_skipped_whole(tier: RamTier, bad: float) -> None:
    before = snapshot(tier)
    gradients = rows(1, 1, 1)
    gradients[1, 2] = bad
    applied = tier.apply(HERE, gradients)
    assert (applied.rows, applied.refused, applied.absent) == (2, 1, 0)
    after = snapshot(tier)
    assert after[2**64 - 1] == before[2**64 - 1]
    assert found(tier, HERE) == [0, 2, 2]
    assert tier.stats().refused == 1


def test_infinities_of_duplicates_do_not_cancel(tier: RamTier) -> None:
    applied = tier.apply(np.array([5, 5], np.uint64), rows(np.inf, -np.inf))
    assert (applied.rows, applied.refused) == (0, 1)
    assert tier.versions(HERE).tolist() == [1, 1, 1]


def test_key_whose_weights_are_all_zero_is_left_untouched() -> None:
    tier = RamTier(Table(dim=2, optimizer=Adam()))
    tier.find_or_init(HERE)
    before = snapshot(tier)
    keys = np.concatenate([HERE, HERE[:1]])
    gradients = np.full((4, 2), np.inf, np.float32)
    gradients[3] = 1.0
    applied = tier.apply(keys, gradients, weights=np.array([0, 0, 0, 1], np.float32))
    assert applied == Applied(rows=1, refused=0, absent=0, weightless=2)
    after = snapshot(tier)
    assert [int(key) for key in HERE if after[int(key)] != before[int(key)]] == [int(HERE[0])]


def test_gradient_whose_square_overflows_is_refused(tier: RamTier) -> None:
    assert tier.apply(HERE, rows(1e25, 1, 1e15)).refused == 1
    assert tier.versions(HERE).tolist() == [1, 2, 2]


def test_add_adds_changes_of_value_and_state() -> None:
    tier = RamTier(Table(dim=DIM, optimizer=Adagrad(initial=1.0), clock=True))
    tier.put(HERE, rows(1, 2, 3))
    applied = tier.add(MIXED, rows(1, 9, 2, 3, 9, 9), rows(5, 9, 6, 7, 9, 9), step=3, clocks=np.full(6, 8, np.uint32))
    assert (applied.rows, applied.refused, applied.absent) == (2, 0, 2)
    assert found(tier, HERE) == [5, 2, 5]
    states = {key: np.frombuffer(state, np.float32)[0] for key, (_, state, _) in snapshot(tier).items()}
    assert states == {5: 13, 2**64 - 1: 1, 0: 7}
    assert tier.versions(HERE).tolist() == [2, 1, 2]
    assert tier.last_updates(HERE).tolist() == [4, 0, 4]
    assert tier.clocks(HERE).tolist() == [8, 0, 8]


def test_add_never_turns_a_clock_back(tier: RamTier) -> None:
    key = HERE[:1]
    for clock, expected in [(5, 5), (3, 5), (6, 6)]:
        tier.add(key, rows(0), clocks=np.array([clock], np.uint32))
        assert tier.clocks(key).tolist() == [expected]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_add_of_a_change_that_is_not_finite_leaves_the_row_whole(tier: RamTier, bad: float) -> None:
    before = snapshot(tier)
    applied = tier.add(HERE[:1], rows(bad), step=3, clocks=np.array([8], np.uint32))
    assert (applied.rows, applied.refused) == (0, 1)
    assert snapshot(tier) == before


def test_put_inserts_and_overwrites(tier: RamTier) -> None:
    tier.put(np.array([5, 6], np.uint64), rows(7, 8))
    assert found(tier, np.array([5, 6, 0], np.uint64)) == [7, 8, 3]
    assert tier.versions(np.array([5, 6, 0], np.uint64)).tolist() == [2, 1, 1]
    assert len(tier) == 4


@pytest.mark.parametrize("optimizer", [Adagrad(initial=2.0), Adam(), FTRL(), Adagrad(swap=Swap(period=2, decay=0.5))])
def test_export_put_into_another_tier_is_the_same_table(optimizer: Adagrad | Adam | FTRL) -> None:
    table = Table(dim=DIM, optimizer=optimizer, init=Uniform(bound=1.0), clock=True, last_seen=True)
    source, copy = RamTier(table, partitions=2), RamTier(table, partitions=8)
    source.find_or_init(MIXED)
    source.apply(HERE, rows(1, 2, 3), step=4, samples=9)
    source.touch(GONE, 11 * 1024)
    for chunk in source.export(rows=2):
        assert len(chunk.keys) <= 2
        copy.put(chunk.keys, chunk.values, chunk.state, chunk.fields)
    assert snapshot(copy) == snapshot(source)


def test_versions_clocks_and_last_updates_are_zero_for_absent_keys(tier: RamTier) -> None:
    assert tier.versions(MIXED).tolist() == [1, 0, 1, 1, 0, 0]
    assert tier.versions(MIXED).dtype == np.uint32
    assert tier.clocks(GONE).tolist() == [0, 0]
    assert tier.last_updates(GONE).tolist() == [0, 0]


def test_touch_marks_present_rows_and_counts_them(tier: RamTier) -> None:
    assert tier.touch(MIXED, 12 * 1024) == 2  # rows, not keys; a tick is 1024 samples
    assert tier.touch(MIXED, 12 * 1024 - 1) == 2  # a late word does not make a row older
    seen = {
        int(k): int(s) for chunk in tier.export() for k, s in zip(chunk.keys, chunk.fields["last_seen"], strict=True)
    }
    assert seen == {5: 12, 2**64 - 1: 0, 0: 12}
    assert tier.versions(HERE).tolist() == [1, 1, 1]


def test_erase_removes_present_rows_and_counts_them(tier: RamTier) -> None:
    assert tier.erase(MIXED) == 2
    np.testing.assert_array_equal(found(tier, HERE), [np.nan, 2, np.nan])
    assert tier.erase(MIXED) == 0
    assert (len(tier), tier.stats().erased) == (1, 2)
    assert tier.verify() == []


def test_erased_row_starts_anew(tier: RamTier) -> None:
    tier.apply(HERE, rows(1, 1, 1), step=5)
    tier.erase(HERE)
    out = empty(3)
    tier.find_or_init(HERE, out)
    np.testing.assert_array_equal(out, rows(9, 9, 9))
    assert tier.versions(HERE).tolist() == [1, 1, 1]
    assert tier.last_updates(HERE).tolist() == [0, 0, 0]


def test_batch_kept_over_erase_and_insert_finds_rows_where_they_are_now(tier: RamTier) -> None:
    batch = tier.find(HERE, empty(3))
    tier.erase(HERE)
    tier.put(GONE, rows(50, 60))  # takes the slots of erased rows
    tier.put(HERE[::-1].copy(), rows(3, 2, 1))
    applied = tier.apply(batch, rows(10, 20, 30))
    assert (applied.rows, applied.absent) == (3, 0)
    assert found(tier, HERE) == [-9, -18, -27]
    assert found(tier, GONE) == [50, 60]


def test_batch_kept_over_erase_changes_no_row_that_took_its_slot(tier: RamTier) -> None:
    batch = tier.find(HERE, empty(3))
    tier.erase(HERE)
    tier.put(GONE, rows(50, 60))
    applied = tier.apply(batch, rows(10, 20, 30))
    assert (applied.rows, applied.absent) == (0, 3)
    assert found(tier, GONE) == [50, 60]


def test_stats_count_what_happened(tier: RamTier) -> None:
    tier.find_or_init(MIXED)
    tier.apply(np.array([77, 5], np.uint64), rows(1, np.nan))
    tier.erase(GONE)
    stats = tier.stats()
    assert (stats.rows, stats.created, stats.erased, stats.refused) == (3, 5, 2, 1)
    assert stats.value_bytes == 3 * DIM * 4
    assert stats.state_bytes == 0
    assert stats.slab_bytes >= stats.value_bytes
    assert stats.index_bytes > 0


def test_int64_keys_are_read_as_their_bits(tier: RamTier) -> None:
    for keys in (np.array([-1, 5], np.int64), torch.tensor([-1, 5])):
        out = empty(2)
        tier.find(keys, out)
        np.testing.assert_array_equal(out, rows(2, 1))


def test_torch_tensors_serve_as_buffers(tier: RamTier) -> None:
    out = torch.zeros(3, DIM)
    tier.find(HERE, out)
    assert out[:, 0].tolist() == [1, 2, 3]
    tier.apply(HERE, torch.ones(3, DIM))
    assert found(tier, HERE) == [0, 1, 2]


def test_empty_batches_do_nothing(tier: RamTier) -> None:
    none = np.zeros(0, np.uint64)
    before = snapshot(tier)
    assert len(tier.find(none, empty(0))) == 0
    assert tier.find_or_init(none).unique == 0
    assert tier.apply(none, empty(0)).rows == 0
    assert tier.add(none, empty(0)).rows == 0
    tier.put(none, empty(0))
    assert (tier.erase(none), tier.touch(none, 1), len(tier.versions(none))) == (0, 0, 0)
    assert snapshot(tier) == before
    assert list(RamTier(Table(dim=1)).export()) == [] or len(next(RamTier(Table(dim=1)).export()).keys) == 0


def strided(count: int) -> NDArray[np.float32]:
    return np.zeros((count, 2 * DIM), np.float32)[:, ::2]


REFUSED: dict[str, Callable[[RamTier], object]] = {
    "find out too short": lambda t: t.find(HERE, empty(2)),
    "find out too wide": lambda t: t.find(HERE, np.zeros((3, DIM + 1), np.float32)),
    "find out one-dimensional": lambda t: t.find(HERE, np.zeros(3 * DIM, np.float32)),
    "find out float64": lambda t: t.find(HERE, np.zeros((3, DIM))),
    "find out not contiguous": lambda t: t.find(HERE, strided(3)),
    "find out read-only": lambda t: t.find(HERE, read_only(3)),
    "find keys int32": lambda t: t.find(HERE.astype(np.int32), empty(3)),
    "find keys float": lambda t: t.find(HERE.astype(np.float64), empty(3)),
    "find keys two-dimensional": lambda t: t.find(HERE[:, None], empty(3)),
    "find keys not contiguous": lambda t: t.find(np.repeat(HERE, 2)[::2], empty(3)),
    "find keys a list": lambda t: t.find([1, 2, 3], empty(3)),  # type: ignore[arg-type]
    "find per something else": lambda t: t.find(HERE, empty(3), per="row"),  # type: ignore[arg-type]
    "find per unique, rows per key": lambda t: t.find(t.batch(MIXED), empty(6), per="unique"),
    "find_or_init out too short": lambda t: t.find_or_init(GONE, empty(1)),
    "find_or_init out float64": lambda t: t.find_or_init(GONE, np.zeros((2, DIM))),
    "find_or_init per unique, rows per key": lambda t: t.find_or_init(MIXED, empty(6), per="unique"),
    "first_values out too short": lambda t: t.first_values(GONE, empty(1)),
    "apply too few gradients": lambda t: t.apply(HERE, empty(2)),
    "apply too many gradients": lambda t: t.apply(HERE, empty(4)),
    "apply wide gradients": lambda t: t.apply(HERE, np.zeros((3, DIM + 1), np.float32)),
    "apply float64 gradients": lambda t: t.apply(HERE, np.zeros((3, DIM))),
    "apply strided gradients": lambda t: t.apply(HERE, strided(3)),
    "apply too few weights": lambda t: t.apply(HERE, empty(3), weights=np.ones(2, np.float32)),
    "apply float64 weights": lambda t: t.apply(HERE, empty(3), weights=np.ones(3)),
    "apply too few rows": lambda t: t.apply(HERE, empty(3), rows=np.zeros(2, np.int64)),
    "apply row beyond the gradients": lambda t: t.apply(HERE, empty(3), rows=np.array([0, 1, 3])),
    "apply negative row": lambda t: t.apply(HERE, empty(3), rows=np.array([0, -1, 2])),
    "apply float rows": lambda t: t.apply(HERE, empty(3), rows=np.zeros(3, np.float32)),
    "apply per unique, gradients per key": lambda t: t.apply(t.batch(MIXED), empty(6), per="unique"),
    "apply per unique with weights": lambda t: t.apply(t.batch(HERE), empty(3), weights=empty(1)[0, :3], per="unique"),
    "apply per something else": lambda t: t.apply(HERE, empty(3), per="batch"),  # type: ignore[arg-type]
    "apply negative step": lambda t: t.apply(HERE, empty(3), step=-1),
    "apply step beyond 64 bits": lambda t: t.apply(HERE, empty(3), step=2**64),
    "apply negative samples": lambda t: t.apply(HERE, empty(3), samples=-1),
    "add too few values": lambda t: t.add(HERE, empty(2)),
    "add float64 values": lambda t: t.add(HERE, np.zeros((3, DIM))),
    "add state to a table without": lambda t: t.add(HERE, empty(3), empty(3)),
    "add too few clocks": lambda t: t.add(HERE, empty(3), clocks=np.ones(2, np.uint32)),
    "put too few values": lambda t: t.put(MIXED[:2], empty(1)),
    "put duplicate keys": lambda t: t.put(MIXED, empty(6)),
    "put state to a table without": lambda t: t.put(HERE, empty(3), empty(3)),
    "put unknown field": lambda t: t.put(HERE, empty(3), None, {"colour": np.ones(3, np.uint32)}),
    "put field the table does not use": lambda t: t.put(HERE, empty(3), None, {"period": np.ones(3, np.uint32)}),
    "put short field": lambda t: t.put(HERE, empty(3), None, {"version": np.ones(2, np.uint32)}),
    "put field of floats": lambda t: t.put(HERE, empty(3), None, {"version": np.ones(3, np.float32)}),
    "touch negative samples": lambda t: t.touch(HERE, -1),
    "erase float keys": lambda t: t.erase(HERE.astype(np.float32)),
    "versions of int32 keys": lambda t: t.versions(HERE.astype(np.int32)),
    "export no rows at a time": lambda t: list(t.export(rows=0)),
    "batch of a tier with other partitions": lambda t: t.find(RamTier(t.table, partitions=4).batch(HERE), empty(3)),
}


def read_only(count: int) -> NDArray[np.float32]:
    out = empty(count)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_and_changes_nothing(tier: RamTier, case: str) -> None:
    before = snapshot(tier)
    with pytest.raises(InputError) as refused:
        REFUSED[case](tier)
    assert len(str(refused.value)) > 10
    assert snapshot(tier) == before
    assert tier.verify() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threads", 0),
        ("threads", -1),
        ("partitions", 0),
        ("partitions", -2),
        ("partitions", 3),
        ("partitions", 1 << 20),
    ],
)
def test_tier_refuses_settings_that_cannot_be(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=rf"{field}={value:,}"):
        RamTier(Table(dim=DIM), **{field: value})  # type: ignore[arg-type]


def test_tier_wants_a_table_and_a_yes_or_no() -> None:
    with pytest.raises(ConfigError, match=r"table='item': give a hotrow\.Table"):
        RamTier("item")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="keep_evicted='yes'"):
        RamTier(Table(dim=DIM), keep_evicted="yes")  # type: ignore[arg-type]


def test_fields_a_table_does_not_carry_are_not_asked_for_in_vain() -> None:
    plain = RamTier(Table(dim=DIM))
    plain.find_or_init(HERE)
    with pytest.raises(InputError, match="clock"):
        plain.clocks(HERE)
    with pytest.raises(InputError, match="clock"):
        plain.add(HERE, empty(3), clocks=np.ones(3, np.uint32))


def test_whole_rows_come_in_the_order_of_the_keys_with_zeros_for_absent_ones() -> None:
    tier = RamTier(Table(dim=2, optimizer=Adagrad(), clock=True))
    keys = np.arange(200, dtype=np.uint64)
    values, state = np.random.default_rng(1).random((2, 200, 2), np.float32)
    tier.put(keys, values, state, {"clock": keys.astype(np.uint32)})
    order = np.random.default_rng(2).permutation(250).astype(np.uint64)
    found = tier.whole_rows(order)
    there = order < 200
    np.testing.assert_array_equal(found.keys, order)
    np.testing.assert_array_equal(found.values[there], values[order[there]])
    np.testing.assert_array_equal(found.state[there], state[order[there]])
    np.testing.assert_array_equal(found.fields["clock"], np.where(there, order, 0))
    np.testing.assert_array_equal(found.fields["version"], there)
    assert not found.values[~there].any()
    assert not found.state[~there].any()
    assert len(tier) == 200


def test_whole_rows_of_a_key_that_occurs_twice_are_refused(tier: RamTier) -> None:
    with pytest.raises(InputError, match="1 of them occur twice, give each key once"):
        tier.whole_rows(np.array([3, 3], np.uint64))
