"""A full checkpoint and its deltas are read as one: the newest row of every key, none that was removed."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow as hr
from hotrow.checkpoint.manifest import Base, SavedShard, SavedTableFacts
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rows import RowShape, Watch, write_columns, write_rows
from hotrow.checkpoint.saving import DenseTensors, Saved, write_checkpoint
from hotrow.store import Rows
from hotrow.store.shards import shard_of

SHAPE = RowShape(2, 1, ("version",))
Model = Mapping[int, float]  # by key, the number that its row is filled with


class GivenRows:
    """A cut whose rows are given, in as many shards as asked."""

    frozen, delta, bytes = True, True, 0

    def __init__(self, changed: Model, removed: set[int], rows: int, shards: int) -> None:
        self._changed, self._removed, self._rows, self._shards = changed, removed, rows, shards
        self.closed: bool | None = None

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        files: dict[str, SavedFile] = {}
        parts = []
        for shard in range(self._shards):
            name = f"tables/0/{shard}-of-{self._shards}"
            mine = {key: value for key, value in self._changed.items() if home(key, self._shards) == shard}
            count, files[f"{name}.arrow"] = write_rows(place, f"{name}.arrow", SHAPE, chunks(mine), watch)
            gone = np.array([key for key in self._removed if home(key, self._shards) == shard], np.uint64)
            columns = {"key": pa.uint64()}
            files[f"{name}.removed.arrow"] = write_columns(place, f"{name}.removed.arrow", [{"key": gone}], columns)[1]
            parts.append(
                SavedShard(rows=f"{name}.arrow", count=count, removed=f"{name}.removed.arrow", removed_count=len(gone))
            )
        facts = SavedTableFacts(
            settings={}, dim=2, state_dim=1, fields=("version",), rows=self._rows, shards=tuple(parts)
        )
        return {"t": facts}, files

    def close(self, *, saved: bool) -> None:
        self.closed = saved


def home(key: int, shards: int) -> int:
    return int(shard_of(np.array([key], np.uint64), shards)[0])


def chunks(rows: Model, size: int = 3) -> Iterator[Rows]:
    keys = list(rows)
    for start in range(0, len(keys), size):
        some = keys[start : start + size]
        filled = np.array([rows[key] for key in some], np.float32)[:, None]
        yield Rows(
            np.array(some, np.uint64),
            np.repeat(filled, 2, 1),
            filled.copy(),
            {"version": np.ones(len(some), np.uint32)},
        )


def save(folder: Path | str, changed: Model, removed: set[int], rows: int, base: Base | None, shards: int = 2) -> Base:
    dense, saved = DenseTensors(b"", None), Saved({}, None, {})
    cut = GivenRows(changed, removed, rows, shards)
    link = write_checkpoint(folder, dense, cut, saved, base=base, keep=99)
    assert cut.closed is True
    return Base(number=link.manifest.number, digest=link.digest)


def read(folder: Path | str, number: int | None = None) -> dict[int, float]:
    found: dict[int, float] = {}
    checkpoint = SavedCheckpoint.open(folder, number)
    checkpoint.verify()
    for chunk in checkpoint.rows("t"):
        for key, value, state in zip(chunk.keys.tolist(), chunk.values, chunk.state, strict=True):
            assert key not in found
            assert value[0] == value[1] == state[0]
            found[key] = float(value[0])
    return found


Change = tuple[dict[int, float], set[int]]
KEYS = st.integers(0, 12)
CHANGES = st.lists(
    st.tuples(st.dictionaries(KEYS, st.integers(1, 99).map(float)), st.sets(KEYS)), min_size=1, max_size=4
)


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES, shards=st.integers(1, 3))
def test_a_chain_reads_as_the_table_was(
    changes: list[Change], shards: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    table: dict[int, float] = {}
    states: list[dict[int, float]] = []
    base: Base | None = None
    for changed, removed in changes:
        gone = set() if base is None else removed & set(table)  # removed first, and made anew where it is in both
        table = {key: value for key, value in table.items() if key not in gone} | changed
        states.append(dict(table))
        base = save(folder, changed, gone, len(table), base, shards)
    for number, state in enumerate(states, 1):
        assert read(folder, number) == state
    newest = SavedCheckpoint.open(folder)
    for key in range(13):
        row = newest.row("t", key)
        assert (None if row is None else float(row.values[0, 0])) == table.get(key)


def test_the_folder_of_one_checkpoint_is_that_checkpoint(tmp_path: Path) -> None:
    base = save(tmp_path, {1: 1.0}, set(), 1, None)
    save(tmp_path, {2: 2.0}, set(), 2, base)
    assert read(tmp_path / "000001") == {1: 1.0}
    assert read(tmp_path) == {1: 1.0, 2: 2.0}


def test_a_file_of_any_link_that_is_damaged_is_named(tmp_path: Path) -> None:
    base = save(tmp_path, {1: 1.0}, set(), 1, None, shards=1)
    save(tmp_path, {2: 2.0}, {1}, 1, base, shards=1)
    file = tmp_path / "000002" / "tables/0/0-of-1.removed.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with pytest.raises(hr.InputError, match=r"000002: tables/0/0-of-1.removed.arrow was changed since"):
        SavedCheckpoint.open(tmp_path).verify()
    file.write_bytes(whole + b"x")
    with pytest.raises(hr.InputError, match=r"removed.arrow has [\d,]+ bytes and was saved with [\d,]+"):
        SavedCheckpoint.open(tmp_path).verify()
    SavedCheckpoint.open(tmp_path, 1).verify()


def test_a_table_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    save(tmp_path, {1: 1.0}, set(), 1, None)
    with pytest.raises(hr.InputError, match="there is no table 'u': it has 't'"):
        next(SavedCheckpoint.open(tmp_path).rows("u"))


def test_other_programs_read_the_rows(tmp_path: Path) -> None:
    save(tmp_path, {7: 2.5}, set(), 1, None, shards=1)
    with pa.memory_map(str(tmp_path / "000001/tables/0/0-of-1.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    assert table.to_pylist() == [{"key": 7, "value": [2.5, 2.5], "state": [2.5], "version": 1}]


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    save(tmp_path, {7: 2.5}, set(), 1, None)
    program = (
        "import sys; from hotrow.checkpoint import SavedCheckpoint; "
        f"print(sum(len(c.keys) for c in SavedCheckpoint.open({str(tmp_path)!r}).rows('t')), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
