"""Buffers are used again as soon as nothing refers to them, and never before."""

import threading

import torch

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
