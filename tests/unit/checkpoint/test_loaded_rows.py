"""Rows of a checkpoint that has more chunks than are put at once: the same bits for any number of them."""

from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import hotrow as hr
from hotrow.checkpoint import loaded_rows
from hotrow.checkpoint.loaded_rows import chunks_ahead, put_rows
from hotrow.checkpoint.loading import save
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.saving import Saved
from hotrow.checkpoint.table_fitting import TablePlan
from hotrow.store import RamTier
from hotrow.store.rows import Rows, first_rows

ROWS = 5000


def test_chunks_ahead_are_bounded_by_threads_and_by_bytes() -> None:
    chunk = 65_536
    assert [chunks_ahead(4, threads) for threads in (1, 2, 3, 8)] == [2, 2, 3, 8]
    fits = (64 << 20) // (chunk * 5)
    assert chunks_ahead(fits, 16) == 5
    assert chunks_ahead(fits + 1, 16) == 4
    assert chunks_ahead(10**6, 16) == 2


def in_chunks(rows: Rows, most: int) -> Generator[Rows, None, None]:
    """Chunks of `most` rows."""
    while len(rows.keys):
        yield first_rows(rows, most)
        fields = {name: column[most:] for name, column in rows.fields.items()}
        rows = Rows(rows.keys[most:], rows.values[most:], rows.state[most:], fields)


@pytest.mark.parametrize("capacity", [None, ROWS, ROWS // 2])
def test_many_chunks_at_once_load_the_bits_of_one_after_the_other(
    capacity: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hr.Table(dim=2, optimizer=hr.Adagrad(lr=0.1), capacity=capacity)
    saved = RamTier(hr.Table(dim=2, optimizer=hr.Adagrad(lr=0.1), capacity=2 * ROWS))
    keys = np.random.default_rng(0).permutation(ROWS).astype(np.uint64)
    saved.apply(saved.find_or_init(keys), np.ones((ROWS, 2), np.float32), step=1)
    save(tmp_path, nn.Linear(1, 1), None, {"default": saved}, Saved({"samples": 0}, None, {}))
    found = SavedCheckpoint.open(tmp_path)
    (rows,) = found.rows("default")
    fields = tuple(name for name in rows.fields if capacity is not None or name != "last_seen")
    plan = TablePlan(saved="default", rows=ROWS, state=True, fields=fields)
    alone = RamTier(table)
    for chunk in in_chunks(rows, 300):
        alone.put(chunk.keys, chunk.values, chunk.state, {name: chunk.fields[name] for name in fields})
    monkeypatch.setattr(loaded_rows, "chunks_ahead", lambda *_: 7)
    together = RamTier(table, threads=3)
    assert put_rows(in_chunks(rows, 300), found, together, plan).rows == len(alone)
    for ours, theirs in zip(together.export(), alone.export(), strict=True):
        np.testing.assert_array_equal(ours.keys, theirs.keys)
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.state, theirs.state)
    if capacity is not None:
        for partition in range(alone.partitions):
            np.testing.assert_array_equal(together.eviction_order(partition), alone.eviction_order(partition))
