"""Buffers are used again as soon as nothing refers to them, and never before."""

import threading

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotrow.client import buffers
from hotrow.client.buffers import BufferPool


def test_memory_is_used_again_only_when_tensor_views_and_graph_are_gone() -> None:
    pool = BufferPool()
    rows = pool.take(4, 3).requires_grad_()
    address = rows.data_ptr()
    loss = (rows * rows).sum()  # the graph keeps the rows
    del rows
    assert pool.take(4, 3).data_ptr() != address
    del loss
    view = pool.take(4, 3)[1:]
    assert pool.take(4, 3).data_ptr() != address
    del view
    assert pool.take(4, 3).data_ptr() == address


def test_shapes_have_their_own_memory_and_unused_ones_are_dropped() -> None:
    pool = BufferPool()
    held = pool.take(2, 3)
    assert pool.take(3, 2).data_ptr() != held.data_ptr()
    assert pool.nbytes == 48
    some = buffers.SPARE_BYTES // 4 // 1024 // 2 + 1
    for more in range(4):  # of the last three shapes, two fit
        pool.take(some + more, 1024)
    assert pool.nbytes < 2 * buffers.SPARE_BYTES
    assert len(pool._arrays) <= 3


def test_threads_never_get_the_same_memory() -> None:
    pool, seen, lock = BufferPool(), [], threading.Lock()

    def take(number: int) -> None:
        for _ in range(200):
            mine = pool.take(64)
            mine.fill_(number)
            with lock:
                seen.append(bool((mine == number).all()))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen)
    assert torch.is_tensor(pool.take(1))


def test_numbers_of_rows_that_differ_a_little_share_memory() -> None:
    pool = BufferPool()
    address = pool.take_rows(1000, 4).data_ptr()
    for count in (1000, 961, 1024):
        rows = pool.take_rows(count, 4)
        assert (rows.data_ptr(), rows.shape) == (address, (count, 4))
        del rows
    kept = pool.take_integers(1000)
    assert (kept.dtype.name, len(kept)) == ("uint32", 1000)
    assert pool.take_integers(1000).ctypes.data != kept.ctypes.data


@given(st.integers(0, 1 << 40))
def test_room_is_an_eighth_larger_than_asked_at_most(count: int) -> None:
    assert count <= buffers._rounded(count) <= count + count / 8


def test_joined_arrays_keep_their_memory_while_they_are_used() -> None:
    pool = BufferPool()
    parts = [np.arange(5), np.arange(7)]
    joined = pool.join(parts)
    np.testing.assert_array_equal(joined, np.concatenate(parts))
    other = pool.join(parts[::-1])
    assert other.ctypes.data != joined.ctypes.data
    address = joined.ctypes.data
    del joined
    assert pool.join(parts).ctypes.data == address
    assert pool.join(parts[:1]) is parts[0]
