"""Where the parts of a row's life meet: batches of other tables, stamps that are put, full lists, 16-bit rows."""

import numpy as np
import pytest

from hotrow import SGD, AtLeast, Constant, Table, Uniform
from hotrow.errors import InputError
from hotrow.store import RamTier

KEYS = np.arange(1, 101, dtype=np.uint64)


@pytest.mark.parametrize("settings", [{"capacity": 1000, "eviction": "lfu"}, {"admission": AtLeast(count=2)}])
def test_a_batch_planned_by_a_table_that_does_not_count_is_refused(settings: dict[str, object]) -> None:
    counting = RamTier(Table(dim=2, **settings), partitions=4)
    plain = RamTier(Table(dim=2), partitions=4)
    with pytest.raises(InputError, match="batch"):
        counting.find_or_init(plain.batch(KEYS))
    counting.find_or_init(plain.batch(KEYS[:0]))
    plain.find_or_init(counting.batch(KEYS))
    assert (len(counting), len(plain)) == (0, 100)


def test_putting_rows_with_times_moves_nobody_elses_clock() -> None:
    table = Table(dim=1, optimizer=SGD(), expiry=100)
    tier = RamTier(table)
    tier.find_or_init(KEYS, samples=1000)
    tier.put(np.array([500], np.uint64), np.ones((1, 1), np.float32), None, {"last_seen": np.array([10**6], np.uint32)})
    assert tier.samples == 1000
    assert tier.find(KEYS).absent == 0
    assert tier.expire(1101) == 101  # the row that was put has been seen now, and not in the future
    restored = RamTier(table)
    restored.put(KEYS, np.ones((100, 1), np.float32), None, {"last_seen": np.full(100, 700, np.uint32)})
    assert restored.samples == 700  # an empty table takes its clock from what comes back
    assert restored.expire(800) == 0
    assert restored.expire(801) == 100


def test_rows_put_with_old_times_expire_from_a_full_table() -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(), expiry=100, capacity=40, eviction="refuse"))
    tier.find_or_init(KEYS[:38], samples=1000)
    assert tier.expire() == 0  # now it is known that every row was seen at 1000, until others are put
    old = {"last_seen": np.array([950, 950], np.uint32)}
    tier.put(KEYS[38:40], np.ones((2, 1), np.float32), None, old)
    assert tier.find_or_init(KEYS[40:42], samples=1040).turned_away == 2
    assert tier.find_or_init(KEYS[40:42], samples=1051).turned_away == 0
    assert tier.stats().expired == 2


def test_a_list_of_evicted_keys_that_was_full_says_so_once() -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(), capacity="40KB"))
    room = tier.capacity_rows // 8
    tier.find_or_init(np.arange(tier.capacity_rows + room, dtype=np.uint64))
    whole = tier.take_evicted_keys()
    assert (len(whole.keys), whole.complete) == (room, True)
    tier.find_or_init(np.arange(10**6, 10**6 + room + 1, dtype=np.uint64))
    cut = tier.take_evicted_keys()
    assert (len(cut.keys), cut.complete) == (room, False)
    assert tier.take_evicted_keys().complete


@pytest.mark.parametrize("row_type", ["float16", "bfloat16"])
def test_many_updates_smaller_than_a_step_move_a_16_bit_table_by_their_sum(row_type: str) -> None:
    table = Table(dim=8, optimizer=SGD(lr=1.0), init=Constant(value=1.0), type=row_type)
    tier = RamTier(table, threads=2)
    step = 2.0**-12  # an eighth of float16's step at 1, and a thirty-second of bfloat16's
    batch = tier.find_or_init(KEYS)
    for n in range(256):
        tier.apply(batch, np.full((100, 8), -step, np.float32), step=n)
    out = np.empty((100, 8), np.float32)
    tier.find(KEYS, out)
    spread = out.std()
    assert spread > 0
    assert abs(out.mean() - (1 + 256 * step)) < 5 * spread / np.sqrt(out.size)
    assert len(np.unique(out)) > 4  # each row and element is rounded by bits of its own, each time anew


def test_elements_too_large_for_a_float16_row_are_stored_as_its_largest_and_counted() -> None:
    tier = RamTier(Table(dim=2, optimizer=SGD(lr=1.0), init=Constant(value=0.0), type="float16"))
    batch = tier.find_or_init(KEYS[:2])
    tier.apply(batch, np.array([[-1e5, 1], [1e6, -65504]], np.float32))
    out = np.empty((2, 2), np.float32)
    tier.find(KEYS[:2], out)
    assert out.tolist() == [[65504, -1], [-65504, 65504]]
    assert tier.stats().saturated == 2
    tier.add(KEYS[:1], np.array([[1e5, 0]], np.float32))
    tier.put(KEYS[5:6], np.array([[7e4, 0]], np.float32))
    assert tier.stats().saturated == 4
    assert RamTier(Table(dim=2, init=Constant(value=1e6), type="float16")).find_or_init(KEYS).turned_away == 0


@pytest.mark.parametrize("row_type", ["float16", "bfloat16"])
def test_first_values_of_16_bit_rows_are_told_as_they_are_stored(row_type: str) -> None:
    tier = RamTier(Table(dim=5, init=Uniform(bound=1.0), type=row_type))
    told, found = np.empty((100, 5), np.float32), np.empty((100, 5), np.float32)
    tier.first_values(KEYS, told)
    tier.find_or_init(KEYS, found)
    np.testing.assert_array_equal(told, found)


def test_memory_of_expired_rows_comes_back_even_if_every_key_is_new() -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(), expiry=10_240), threads=2)
    for call in range(100):
        tier.find_or_init(np.arange(call * 1024, (call + 1) * 1024, dtype=np.uint64), samples=call * 1024)
    assert tier.stats().expired > 0
    assert len(tier) < 3 * 11_264  # those that are alive
