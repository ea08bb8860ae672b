"""A chain that is compacted or resharded has the same rows, bit for bit; what cannot be done leaves all as it was."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.checkpoint.manifest import Base, SavedTableFacts
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.reader import SavedCheckpoint, numbers_in
from hotrow.checkpoint.rewriting import compact, rewrite
from hotrow.checkpoint.rows import Watch, write_columns
from hotrow.checkpoint.saving import DenseTensors, Saved, write_checkpoint
from hotrow.store import RamTier
from hotrow.store.shards import shard_of
from unit.checkpoint.test_saved_chain import CHANGES, Change, GivenRows, read, save


def chain(folder: Path, shards: int = 2) -> dict[int, float]:
    """Three links; returns the rows."""
    base = save(folder, dict.fromkeys(range(20), 1.0), set(), 20, None, shards)
    base = save(folder, {3: 2.0, 30: 2.0}, {5, 6}, 19, base, shards)
    save(folder, {6: 3.0, 3: 4.0}, {7}, 19, base, shards)
    return {key: 1.0 for key in range(20) if key not in (5, 7)} | {3: 4.0, 30: 2.0, 6: 3.0}


def order(where: Path, shard: int, shards: int) -> list[int]:
    """The keys of a shard as they are read."""
    chunks = [chunk.keys for chunk in SavedCheckpoint.open(where).rows("t")]
    keys = np.concatenate([np.empty(0, np.uint64), *chunks])
    return [int(key) for key in keys[shard_of(keys, shards) == shard]]


@settings(max_examples=8, deadline=None)
@given(changes=CHANGES, shards=st.integers(1, 3), after=st.integers(1, 5))
def test_rows_and_their_order_in_a_shard_stay(
    changes: list[Change], shards: int, after: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    base: Base | None = None
    table: dict[int, float] = {}
    for changed, removed in changes:
        gone = set() if base is None else removed & set(table)
        table = {key: value for key, value in table.items() if key not in gone} | changed
        base = save(folder, changed, gone, len(table), base, shards)
    found = SavedCheckpoint.open(folder)
    rewrite(found, folder / "whole")
    rewrite(found, folder / "other", shards=after)
    assert read(folder / "whole") == read(folder / "other") == table
    for name, parts in (("whole", shards), ("other", after)):
        facts = SavedCheckpoint.open(folder / name).table("t")
        assert (len(facts.shards), facts.rows) == (parts, len(table))
        for shard in range(parts):
            assert order(folder / name, shard, parts) == order(folder, shard, parts)


def test_every_part_has_the_keys_of_its_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotrow.checkpoint.rewriting.FILES_AT_ONCE", 2)  # so that it takes several passes
    rows = chain(tmp_path)
    rewrite(SavedCheckpoint.open(tmp_path), tmp_path / "five", shards=5)
    assert read(tmp_path / "five") == rows
    for shard in range(5):
        with pa.memory_map(str(tmp_path / f"five/000001/tables/0/{shard}-of-5.arrow")) as source:
            keys = pa.ipc.open_file(source).read_all()["key"].to_numpy()
        assert (shard_of(keys, 5) == shard).all()


def test_everything_beside_the_rows_stays(tmp_path: Path) -> None:
    dense, saved = DenseTensors(b"tensors", {"class": "Adam"}), Saved({"step": 3}, {"epoch": 1}, {"a": 1}, {"m": 2})
    rows = GivenRows({1: 1.0}, set(), 1, 1)
    write_checkpoint(tmp_path, dense, rows, saved)
    written = rewrite(SavedCheckpoint.open(tmp_path), tmp_path / "to").manifest
    assert Saved(written.counters, written.position, written.about, written.mode) == saved
    assert written.optimizer == {"class": "Adam"}
    assert SavedCheckpoint.open(tmp_path / "to").dense() == b"tensors"


def test_a_checkpoint_of_tables_alone_stays_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, None, GivenRows({1: 1.0}, set(), 1, 1), Saved({}, None, {}))
    rewrite(SavedCheckpoint.open(tmp_path), tmp_path / "to")
    found = SavedCheckpoint.open(tmp_path / "to")
    found.verify()
    assert not found.manifest.has_dense
    with pytest.raises(hr.InputError, match="it holds tables alone, no dense tensors"):
        found.dense()


class Waiting(GivenRows):
    """With counts of keys that wait for admission."""

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        tables, files = super().write(place, watch)
        keys = np.arange(100, 150, dtype=np.uint64)
        columns: dict[str, NDArray[Any]] = {"key": keys, "count": keys.astype(np.uint32)}
        types = {"key": pa.uint64(), "count": pa.uint32()}
        files["waiting.arrow"] = write_columns(place, "waiting.arrow", [columns], types)[1]
        (shard,) = tables["t"].shards
        with_counts = shard.model_copy(update={"admission": "waiting.arrow"})
        return {"t": tables["t"].model_copy(update={"shards": (with_counts,)})}, files


def test_keys_that_wait_for_admission_go_to_their_shards(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, None, Waiting({1: 1.0}, set(), 1, 1), Saved({}, None, {}))
    rewrite(SavedCheckpoint.open(tmp_path), tmp_path / "to", shards=3)
    found = SavedCheckpoint.open(tmp_path / "to")
    found.verify()
    chunks = list(found.waiting("t"))
    assert [len(set(shard_of(np.ascontiguousarray(keys), 3).tolist())) for keys, _ in chunks] == [1, 1, 1]
    assert {int(key): int(n) for keys, counts in chunks for key, n in zip(keys, counts, strict=True)} == {
        key: key for key in range(100, 150)
    }


def test_a_table_loads_as_from_the_chain(tmp_path: Path) -> None:
    table = hr.Table(dim=2, capacity=3000)
    tier = RamTier(table)
    tier.find_or_init(np.arange(2000))
    tier.find_or_init(np.arange(0, 2000, 7))
    checkpoint.save(tmp_path / "c", nn.Linear(1, 1), None, {"t": tier}, Saved({}, None, {}))
    rewrite(SavedCheckpoint.open(tmp_path / "c"), tmp_path / "to")
    back = RamTier(table)
    checkpoint.load(tmp_path / "to", nn.Linear(1, 1), None, {"t": back})
    for partition in range(tier.partitions):
        assert (tier.eviction_order(partition) == back.eviction_order(partition)).all()


@pytest.mark.parametrize(("keep", "left"), [(None, [1, 2, 3, 4]), (1, [4]), (2, [1, 2, 3, 4])])
def test_in_place_it_becomes_the_next_number(keep: int | None, left: list[int], tmp_path: Path) -> None:
    rows = chain(tmp_path)
    written = compact(SavedCheckpoint.open(tmp_path), None, keep=keep)
    assert written is not None
    assert (written.manifest.number, written.manifest.kind) == (4, "full")
    assert numbers_in(Place.of(tmp_path)) == left
    assert read(tmp_path) == rows
    assert compact(SavedCheckpoint.open(tmp_path), None, keep=1) is None
    assert numbers_in(Place.of(tmp_path)) == [4]


def test_an_older_one_is_not_made_the_newest(tmp_path: Path) -> None:
    chain(tmp_path)
    with pytest.raises(hr.ConfigError, match="000002 is not the newest, and in place it would become that"):
        compact(SavedCheckpoint.open(tmp_path, 2), None)
    compact(SavedCheckpoint.open(tmp_path, 2), tmp_path / "to")
    assert read(tmp_path / "to") == read(tmp_path, 2)


def test_what_a_run_writes_now_is_not_removed(tmp_path: Path) -> None:
    chain(tmp_path)
    shutil.copytree(tmp_path / "000003", tmp_path / "000004")
    (tmp_path / "000004/manifest.json").unlink()
    with pytest.raises(hr.InputError, match="000004 is not finished: a run writes it now, or died while it did"):
        compact(SavedCheckpoint.open(tmp_path), None)
    assert (tmp_path / "000004").is_dir()


def test_damage_gets_no_new_checksum(tmp_path: Path) -> None:
    chain(tmp_path)
    file = tmp_path / "000002/tables/0/0-of-2.arrow"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(hr.InputError, match="was changed since it was saved"):
        rewrite(SavedCheckpoint.open(tmp_path), tmp_path / "to")
    assert not (tmp_path / "to").exists()
