"""Inspecting and rewriting take the same memory for few rows and for many."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.checkpoint.inspecting import inspect_tables
from hotrow.checkpoint.local_cut import LocalCut
from hotrow.checkpoint.manifest import Base, SavedShard, SavedTableFacts
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rewriting import rewrite
from hotrow.checkpoint.rows import RowShape, Watch, write_rows
from hotrow.checkpoint.saving import Saved, write_checkpoint
from hotrow.store import RamTier, Rows
from hotrow.store.arrays import Keys

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


class OneChunk:
    """A cut whose rows have these keys."""

    frozen, delta, bytes = True, True, 0

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        shape, size = RowShape(1, 0, ()), len(self._keys)
        rows = Rows(self._keys, np.ones((size, 1), np.float32), np.empty((size, 0), np.float32), {})
        count, facts = write_rows(place, "0.arrow", shape, [rows], watch)
        shards = (SavedShard(rows="0.arrow", count=count),)
        table = SavedTableFacts(settings={}, dim=1, state_dim=0, fields=(), rows=count, shards=shards)
        return {"t": table}, {"0.arrow": facts}

    def close(self, *, saved: bool) -> None:
        """Nothing was kept for it."""


def test_memory_of_a_chain_grows_with_its_keys_and_not_with_their_square(tmp_path: Path) -> None:
    links, size = 40, 2000
    base: Base | None = None
    for number in range(links):
        keys = np.arange(number * size, (number + 1) * size, dtype=np.uint64)
        link = write_checkpoint(tmp_path, None, OneChunk(keys), Saved({}, None, {}), base=base, keep=99)
        base = Base(number=link.manifest.number, digest=link.digest)
    found = SavedCheckpoint.open(tmp_path)
    tracemalloc.start()
    rows = sum(len(chunk.keys) for chunk in found.rows("t"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == links * size
    assert peak < 10 * links * size * 8
