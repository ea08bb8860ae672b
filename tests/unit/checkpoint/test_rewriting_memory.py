"""Inspecting and rewriting take the same memory for few rows and for many."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.checkpoint.inspecting import inspect_tables
from hotrow.checkpoint.local_cut import LocalCut
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rewriting import rewrite
from hotrow.checkpoint.saving import Saved, write_checkpoint
from hotrow.store import RamTier

DIM, ROWS = 8, 150_000


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By their size, a table and one that is four times as large."""
    folders = {}
    for times in (1, 4):
        tier = RamTier(hr.Table(dim=DIM, optimizer=hr.SGD()))
        tier.find_or_init(np.arange(times * ROWS))
        folders[times] = tmp_path_factory.mktemp("memory") / "c"
        write_checkpoint(folders[times], None, LocalCut({"t": tier}), Saved({"step": 1}, None, {}))
    return folders


DOING: dict[str, Callable[[SavedCheckpoint, Path], object]] = {
    "inspect": lambda found, _: inspect_tables(found),
    "compact": rewrite,
    "reshard": lambda found, to: rewrite(found, to, shards=3),
}


@pytest.mark.parametrize("do", DOING.values(), ids=DOING)
def test_memory_does_not_grow_with_the_table(
    do: Callable[[SavedCheckpoint, Path], object],
    saved: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hotrow.checkpoint.rewriting.WAITING_BYTES", 2**20)
    peaks = {}
    for times, folder in saved.items():
        found = SavedCheckpoint.open(folder)
        tracemalloc.start()
        do(found, tmp_path / f"to-{times}")
        peaks[times] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[4] < 1.5 * peaks[1]
    assert peaks[4] < 4 * ROWS * DIM * 4 / 2
