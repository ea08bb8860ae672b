"""A cut has every row as it was at one moment, whatever happens to the table until it is exported."""

import gc
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow import SGD, AtLeast, Constant, InputError, Segment, Table
from hotrow.store import RamTier, Rows, TableCut
from oracles.cuts import (
    DIM,
    TABLES,
    History,
    Reader,
    assert_same_rows,
    calls,
    counts_of,
    joined,
    new_tier,
    paused,
)
from profiles import examples

names = st.sampled_from(sorted(TABLES))
reads = st.tuples(st.just("read"), st.integers(1, 9))
histories = st.lists(calls, min_size=4, max_size=14)


def rows_of(cut: TableCut, history: History, later: list[tuple[str, int]]) -> Iterator[Rows]:
    """The rows of a cut, read between and after other calls."""
    for name, number in later:
        if name == "read":
            yield from islice(cut.chunks(rows=number), 1)
        else:
            history.perform(name, number)
    yield from cut.chunks(rows=5)


@settings(max_examples=examples(250))
@given(names, histories, st.lists(calls | reads, max_size=14))
def test_a_cut_has_the_rows_of_its_moment(
    name: str, before: list[tuple[str, int]], later: list[tuple[str, int]]
) -> None:
    tier = new_tier(name)
    history = History(tier)
    for call in before:
        history.perform(*call)
    expected, samples, rows = paused(tier), tier.samples, len(tier)
    with tier.begin_cut() as at_once:
        counts = counts_of(at_once)
    with tier.begin_cut() as cut:
        assert_same_rows(joined(rows_of(cut, history, later), tier), expected)
        assert (cut.rows, cut.changed_rows, cut.samples, len(cut.removed)) == (rows, rows, samples, 0)
        waiting, filters = counts_of(cut)
        assert waiting == counts[0]
        np.testing.assert_array_equal(filters, counts[1])
        assert list(cut.chunks()) == []
    assert tier.verify() == []


rounds = st.lists(st.tuples(histories, st.lists(calls | reads, max_size=6), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=examples(250))
@given(names, histories, rounds)
def test_a_cut_of_all_rows_and_cuts_of_changes_give_the_table(
    name: str, before: list[tuple[str, int]], later: list[tuple[list[tuple[str, int]], list[tuple[str, int]], bool]]
) -> None:
    tier, reader = new_tier(name), Reader(new_tier(name))
    history = History(tier)
    tier.track_changes()
    for number, (first, during, saved) in enumerate([(before, [], True), *later]):
        for call in first:
            history.perform(*call)
        expected = paused(tier)
        cut = tier.begin_cut(changed_only=number > 0)
        chunks = list(rows_of(cut, history, during))
        if saved:
            reader.read(cut, chunks)
            reader.assert_is(expected)
        cut.close(saved=saved)  # changes of one that was not saved are in the next


def keys_of(cut: TableCut) -> set[int]:
    return {int(key) for chunk in cut.chunks() for key in chunk.keys}


def some_rows(**settings: Any) -> RamTier:
    table = {"dim": DIM, "optimizer": SGD(lr=1.0), "init": Constant(value=0.0), **settings}
    tier = RamTier(Table(**table), partitions=1)
    tier.find_or_init(np.arange(8, dtype=np.uint64))
    return tier


def keys(*numbers: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(numbers, np.uint64)


def test_a_cut_of_changes_has_what_changed_since_the_cut_before() -> None:
    tier = some_rows()
    tier.track_changes()
    tier.begin_cut().close(saved=True)
    tier.apply(keys(1, 2), np.ones((2, DIM), np.float32))
    tier.erase(keys(3))
    tier.find_or_init(keys(4, 20))  # 4 is there, and a lookup does not change it
    cut = tier.begin_cut(changed_only=True)
    tier.apply(keys(5), np.ones((1, DIM), np.float32))
    assert (cut.rows, cut.changed_rows, cut.removed.tolist()) == (8, 3, [3])
    assert keys_of(cut) == {1, 2, 20}
    cut.close(saved=True)
    with tier.begin_cut(changed_only=True) as later:
        assert (keys_of(later), later.changed_rows) == ({5}, 1)


def test_changes_of_a_cut_that_was_not_saved_are_in_the_next() -> None:
    tier = some_rows()
    tier.track_changes()
    tier.begin_cut().close(saved=True)
    tier.apply(keys(1, 2), np.ones((2, DIM), np.float32))
    tier.erase(keys(3))
    failed = tier.begin_cut(changed_only=True)
    tier.apply(keys(6), np.ones((1, DIM), np.float32))
    tier.erase(keys(2))
    failed.close(saved=False)
    with tier.begin_cut(changed_only=True) as cut:
        assert (keys_of(cut), sorted(cut.removed.tolist()), cut.changed_rows) == ({1, 6}, [2, 3], 2)


def test_a_row_changed_in_its_place_brings_those_behind_it() -> None:
    """An update moves no row in the order of eviction, and a row that is put becomes the newest."""
    tier = some_rows(capacity=8, eviction="lru")
    tier.track_changes()
    tier.begin_cut().close(saved=True)
    tier.apply(keys(5), np.ones((1, DIM), np.float32))
    with tier.begin_cut(changed_only=True) as cut:
        assert [int(key) for chunk in cut.chunks() for key in chunk.keys] == [5, 6, 7]


def test_rows_are_copied_once_and_only_if_they_change_before_their_export() -> None:
    tier = some_rows()
    with tier.begin_cut() as cut:
        assert cut.copied_bytes == 0
        first = next(cut.chunks(rows=3))
        tier.apply(np.arange(6, dtype=np.uint64), np.ones((6, DIM), np.float32))
        copied = cut.copied_bytes
        tier.apply(np.arange(6, dtype=np.uint64), np.ones((6, DIM), np.float32))
        assert cut.copied_bytes == copied == 3 * 24  # key, version, last update and 2 floats
        rest = joined(cut.chunks(), tier)
    assert [*first.keys.tolist(), *rest.keys.tolist()] == list(range(8))
    assert not first.values.any()
    assert not rest.values.any()


def test_a_row_that_expires_after_the_cut_is_in_it() -> None:
    tier = some_rows(expiry=100)
    with tier.begin_cut() as cut:
        assert tier.expire(samples=1000) == 8
        assert keys_of(cut) == set(range(8))


@pytest.mark.parametrize("rows_first", [True, False])
def test_an_expired_row_counts_as_removed_before_its_memory_is_free(rows_first: bool) -> None:
    tier = some_rows(expiry=100)
    tier.track_changes()
    tier.begin_cut().close(saved=True)
    tier.touch(keys(), samples=1000)
    assert len(tier) == 8
    with tier.begin_cut(changed_only=True) as cut:
        if rows_first:
            assert keys_of(cut) == set()
        assert sorted(cut.removed.tolist()) == list(range(8))
        tier.expire()
        assert (keys_of(cut), sorted(cut.removed.tolist())) == (set(), list(range(8)))


def test_changes_are_refused_where_they_are_not_known() -> None:
    tier = some_rows()
    refusal = "changed_only=True: not all changes since the last cut are known: take a cut of all rows"
    with pytest.raises(InputError, match=refusal):
        tier.begin_cut(changed_only=True)
    tier.track_changes()
    with pytest.raises(InputError, match=refusal):
        tier.begin_cut(changed_only=True)
    tier.begin_cut().close(saved=False)  # there is still none to build on
    with pytest.raises(InputError, match=refusal):
        tier.begin_cut(changed_only=True)
    tier.begin_cut().close(saved=True)
    tier.begin_cut(changed_only=True).close(saved=True)
    tier.track_changes(False)
    with pytest.raises(InputError, match=refusal):
        tier.begin_cut(changed_only=True)


@pytest.mark.slow
def test_more_removed_keys_than_the_list_holds_make_the_next_cut_one_of_all_rows() -> None:
    tier = some_rows()
    tier.track_changes()
    tier.begin_cut().close(saved=True)
    batch = np.arange(100, 100 + 2**15, dtype=np.uint64)
    for _ in range(2**20 // len(batch)):
        tier.find_or_init(batch)
        tier.erase(batch)
    tier.begin_cut(changed_only=True).close(saved=False)
    tier.erase(keys(1))
    with pytest.raises(InputError, match="take a cut of all rows"):
        tier.begin_cut(changed_only=True)
    tier.begin_cut().close(saved=True)
    with tier.begin_cut(changed_only=True) as cut:
        assert len(cut.removed) == 0


def test_a_table_has_one_cut_at_a_time() -> None:
    tier = some_rows()
    cut = tier.begin_cut()
    with pytest.raises(InputError, match="begin_cut: a cut of the table is open: close it first"):
        tier.begin_cut()
    with pytest.raises(InputError, match="track_changes: a cut of the table is open"):
        tier.track_changes()
    cut.close(saved=True)
    cut.close(saved=False)
    with pytest.raises(InputError, match="the cut is closed: begin another one"):
        next(cut.chunks())
    del cut
    cut = tier.begin_cut()
    del cut  # an exception left it
    gc.collect()
    tier.begin_cut().close(saved=True)


def test_a_cut_of_a_closed_table_is_refused(tmp_path: Any) -> None:
    tier = some_rows(segment=Segment(run="cut", directory=tmp_path))
    tier.track_changes()
    cut = tier.begin_cut()
    tier.close()
    with pytest.raises(InputError, match="is closed"):
        next(cut.chunks())
    cut.close(saved=False)


def test_an_update_that_waits_is_in_the_cut() -> None:
    tier = some_rows()
    plan = tier.find(keys(1))
    tier.apply_later(plan, np.ones((1, DIM), np.float32))
    with tier.begin_cut() as cut:
        tier.apply_later(plan, np.ones((1, DIM), np.float32))
        rows = joined(cut.chunks(), tier)
        assert tier.deferred.waits()
    assert rows.values[rows.keys == 1].tolist() == [[-1.0, -1.0]]


def test_after_an_attach_the_first_cut_is_of_all_rows(tmp_path: Any) -> None:
    segment = Segment(run="cut", directory=tmp_path)
    first = some_rows(segment=segment)
    first.track_changes()
    first.begin_cut().close(saved=True)
    first.close(leave=True)
    tier = RamTier(first.table, partitions=1)
    tier.track_changes()
    with pytest.raises(InputError, match="take a cut of all rows"):
        tier.begin_cut(changed_only=True)
    with tier.begin_cut() as cut:
        tier.erase(keys(1))
        assert keys_of(cut) == set(range(8))
    tier.close()


@pytest.mark.parametrize("admission", [AtLeast(count=4), AtLeast(count=4, filter="2KB")])
def test_counts_of_admission_go_on_where_they_were(admission: AtLeast) -> None:
    table = Table(dim=DIM, admission=admission)
    tiers = [RamTier(table, partitions=2) for _ in range(2)]
    random = np.random.default_rng(3)
    batches = [random.integers(0, 300, 200).astype(np.uint64) for _ in range(6)]
    tiers[1].find_or_init(batches[5])  # counts that are to be forgotten
    for batch in batches[:3]:
        tiers[0].find_or_init(batch)
    with tiers[0].begin_cut() as cut:
        tiers[0].find_or_init(batches[4])
        if admission.filter is None:
            tiers[1].restore_waiting(cut.waiting())
        else:
            tiers[1].restore_filters(cut.filters())
        tiers[1].clear()
        for chunk in cut.chunks():
            tiers[1].put(chunk.keys, chunk.values, chunk.state, chunk.fields)
    for batch in batches[4:]:
        found = tiers[1].find_or_init(batch)
        if batch is batches[5]:
            assert found.turned_away == tiers[0].find_or_init(batch).turned_away
    ours, theirs = (sorted(joined(tier.export(), tier).keys.tolist()) for tier in tiers)
    assert ours == theirs


def test_counts_that_do_not_fit_are_refused() -> None:
    exact = RamTier(Table(dim=DIM, admission=AtLeast(count=4)), partitions=2)
    exact.find_or_init(keys(1))
    with pytest.raises(InputError, match=r"counts are from 1 to 4: keys wait with 1 to 3 \(admission.count - 1\)"):
        exact.restore_waiting([(keys(1, 2), np.array([1, 4], np.uint32))])
    with exact.begin_cut() as cut:
        assert counts_of(cut)[0] == [([1], [1])]
    with pytest.raises(InputError, match="1 filters of 64 bytes: table 'default' has 0 of 0"):
        exact.restore_filters([np.zeros(64, np.uint8)])
    filtered = RamTier(Table(dim=DIM, admission=AtLeast(count=4, filter="2KB")), partitions=2)
    with pytest.raises(InputError, match="has no exact counts of keys that wait"):
        filtered.restore_waiting([])
    with pytest.raises(InputError, match="1 filters of 960 bytes: table 'default' has 2 of 1,920"):
        filtered.restore_filters([np.zeros(960, np.uint8)])
