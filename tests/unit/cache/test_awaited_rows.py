"""A row that was requested and has not come is neither read nor updated: its memory is what another row left there."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import hotrow as hr
from hotrow.cache.cache import CachedBatch, RowCache
from hotrow.config import Table
from hotrow.store import Applied
from unit.cache.cached_workers import Server, Worker, inspected

pytestmark = pytest.mark.usefixtures("row_memory")

LEFT = 1e9
DEFAULT = 0.25
OPTIMIZERS: dict[str, Callable[[], object]] = {
    "sgd": lambda: hr.SGD(lr=0.1),
    "adagrad": lambda: hr.Adagrad(lr=0.1, initial=0.1),
}


def keys_of(*keys: int) -> NDArray[np.uint64]:
    return np.array(keys, np.uint64)


def everything(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return np.ones(len(keys), np.bool_)


class Pair:
    """A server and a cache whose free memory has what a row of large numbers left."""

    def __init__(self, optimizer: str, admission: hr.AtLeast | None = None) -> None:
        cache = hr.Cache(capacity=4, staleness=10)
        self.default = 0.0 if admission is None else DEFAULT
        table = Table(dim=2, optimizer=OPTIMIZERS[optimizer](), admission=admission, default=self.default, cache=cache)
        self.server = Server(table)
        self.rows: RowCache = Worker(self.server).rows
        tier, others = self.server.tier, keys_of(98, 99)
        state = np.full((2, tier.state_dim), LEFT, np.float32) if tier.state_dim else None
        tier.put(others, np.full((2, 2), LEFT, np.float32), state)
        before = self.rows.begin(others, samples=0)
        self.answer(before)
        assert (self.read(before) == LEFT).all()
        self.rows.finish(before)
        self.rows.drop(everything)

    def ask(self, *keys: int) -> CachedBatch:
        return self.rows.begin(keys_of(*keys), samples=0)

    def answer(self, batch: CachedBatch) -> None:
        self.rows.receive(batch, self.server.answer(batch))

    def read(self, batch: CachedBatch) -> NDArray[np.float32]:
        out = np.empty((len(batch.keys), 2), np.float32)
        self.rows.read(batch, out)
        return out

    def apply(self, batch: CachedBatch, *weights: float) -> Applied:
        gradients = np.ones((len(batch.keys), 2), np.float32)
        return self.rows.apply(batch, gradients, np.array(weights, np.float32), samples=0)

    def check_as_on_the_server(self, batch: CachedBatch) -> None:
        """The rows of a batch have come, and have no change."""
        np.testing.assert_array_equal(self.read(batch), self.server.tier.whole_rows(batch.keys).values)
        assert self.rows.changed_rows == 0
        assert not inspected(self.rows).verify()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_gradients_of_a_key_that_was_not_admitted_leave_the_row_that_a_later_batch_awaits(optimizer: str) -> None:
    pair = Pair(optimizer, hr.AtLeast(count=2))
    first = pair.ask(7)
    pair.answer(first)  # no row
    later = pair.ask(7)
    assert (pair.read(first) == pair.default).all()
    applied = pair.apply(first, 1.0)
    assert (applied.rows, applied.absent) == (0, 1)
    pair.answer(later)
    pair.check_as_on_the_server(later)
    assert (pair.rows.counts.unadmitted, pair.rows.counts.dropped) == (1, 0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_gradients_of_a_dropped_row_leave_the_row_that_a_later_batch_awaits(optimizer: str) -> None:
    pair = Pair(optimizer)
    first = pair.ask(7)
    pair.answer(first)
    pair.rows.drop(everything)  # its shard came back without it
    later = pair.ask(7)
    assert (pair.read(first) == pair.default).all()
    applied = pair.apply(first, 1.0)
    assert (applied.rows, applied.absent) == (0, 1)
    pair.answer(later)
    pair.check_as_on_the_server(later)
    assert (pair.rows.counts.unadmitted, pair.rows.counts.dropped) == (0, 1)
    assert pair.apply(later, 1.0).rows == 1


def test_gradients_without_a_row_count_by_what_they_are() -> None:
    """Key 6 is dropped, 7 was never admitted, 8 is dropped and gets no gradient, 9 is dropped and has come again."""
    pair = Pair("sgd", hr.AtLeast(count=2))
    for _ in range(2):
        there = pair.ask(6, 8, 9)
        pair.answer(there)
        pair.rows.finish(there)
    batch = pair.ask(6, 7, 8, 9)
    pair.answer(batch)
    pair.rows.drop(everything)
    again = pair.ask(9)
    pair.answer(again)
    applied = pair.apply(batch, 1.0, 1.0, 0.0, 1.0)
    assert (applied.rows, applied.absent) == (1, 3)
    assert (pair.rows.counts.unadmitted, pair.rows.counts.dropped) == (1, 1)
