"""Tables of other programs become checkpoints: their values bit for bit, the rest as in fresh rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.checkpoint.importing import TableSettings, import_tables
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.cli.import_tables import foreign_tables
from hotrow.store import RamTier
from unit.cli.conftest import Command, hotrow  # noqa: F401

KEY = "embedding_bags.t1.weight"
WEIGHT = torch.arange(600.0).reshape(200, 3) / 7


def imported(where: Path, key: str, *files: Path, optimizer: dict[str, Any] | None = None) -> dict[int, list[float]]:
    """Import the table `t`, load it into a tier as training does, and read it."""
    found = foreign_tables({"t": key}, [str(file) for file in files])
    import_tables(found, where, TableSettings(optimizer), about={})
    saved = SavedCheckpoint.open(where)
    saved.verify()
    tier = RamTier(hr.Table(**saved.table("t").settings))
    fresh = RamTier(tier.table)
    for chunk in saved.rows("t"):
        tier.put(chunk.keys, chunk.values, chunk.state if tier.state_dim else None, chunk.fields)
        fresh.put(np.ascontiguousarray(chunk.keys), np.ascontiguousarray(chunk.values))
    rows: dict[int, list[float]] = {}
    for mine, new in zip(tier.export(100_000), fresh.export(100_000), strict=True):
        assert (mine.keys == new.keys).all()
        assert (mine.state == new.state).all()
        assert all((mine.fields[name] == new.fields[name]).all() for name in tier.fields)
        rows |= dict(zip(mine.keys.tolist(), mine.values.tolist(), strict=True))
    return rows


def by_number(weight: torch.Tensor = WEIGHT) -> dict[int, list[float]]:
    return dict(enumerate(weight.float().tolist()))


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl"])
def test_a_state_dict_is_imported_with_the_state_of_fresh_rows(name: str, tmp_path: Path) -> None:
    torch.save({KEY: WEIGHT, "other": torch.ones(3)}, tmp_path / "a.pt")
    assert imported(tmp_path / "c", KEY, tmp_path / "a.pt", optimizer={"name": name}) == by_number()
    assert SavedCheckpoint.open(tmp_path / "c").table("t").settings["optimizer"]["name"] == name


FILES = {
    "parameters of a module": (lambda file: torch.save({KEY: nn.Parameter(WEIGHT)}, file), "a.pth", KEY, WEIGHT),
    "a nested dict": (lambda file: torch.save({"model": {KEY: WEIGHT}}, file), "a.pt", f"model.{KEY}", WEIGHT),
    "bfloat16": (lambda file: torch.save({KEY: WEIGHT.bfloat16()}, file), "a.pt", KEY, WEIGHT.bfloat16()),
    "float64": (lambda file: torch.save({KEY: WEIGHT.double()}, file), "a.pt", KEY, WEIGHT),
    "a transposed view": (lambda file: torch.save({KEY: WEIGHT.T}, file), "a.pt", KEY, WEIGHT.T),
    "the format before 1.6": (
        lambda file: torch.save({KEY: WEIGHT}, file, _use_new_zipfile_serialization=False), "a.pt", KEY, WEIGHT,
    ),
    "safetensors": (lambda file: save_file({KEY: WEIGHT}, file), "a.safetensors", KEY, WEIGHT),
}  # fmt: skip


@pytest.mark.parametrize(("write", "name", "key", "weight"), FILES.values(), ids=FILES)
def test_files_of_tensors_of_all_kinds_are_read(
    write: Any, name: str, key: str, weight: torch.Tensor, tmp_path: Path
) -> None:
    write(tmp_path / name)
    assert imported(tmp_path / "c", key, tmp_path / name) == by_number(weight)


def test_rows_keep_their_order_over_chunks(tmp_path: Path) -> None:
    torch.save({KEY: torch.arange(70_000.0)[:, None]}, tmp_path / "a.pt")
    imported(tmp_path / "c", KEY, tmp_path / "a.pt")
    keys = np.concatenate([chunk.keys for chunk in SavedCheckpoint.open(tmp_path / "c").rows("t")])
    assert (keys == np.arange(70_000)).all()


VECTORS = np.arange(30, dtype=np.float32).reshape(10, 3)
KEYS = np.array([5, -1, 2**62, 7, 8, 9, 10, 11, 12, 13])
BITS = KEYS.view(np.uint64).tolist()
LISTS = pa.array(VECTORS.tolist(), pa.list_(pa.float32()))
PARQUETS: dict[str, tuple[dict[str, Any], str, list[int]]] = {
    "keys and lists": ({"id": KEYS, "v": LISTS}, "id", BITS),
    "keys and lists, by name": ({"id": KEYS, "v": LISTS, "w": LISTS}, "id:v", BITS),
    "fixed lists": ({"id": KEYS, "v": pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 3)}, "id", BITS),
    "keys and numbers": ({"id": KEYS, **{f"c{place}": VECTORS[:, place] for place in range(3)}}, "id", BITS),
    "lists alone": ({"v": LISTS}, "v", list(range(10))),
    "numbers alone": ({f"c{place}": VECTORS[:, place].astype(int) for place in range(3)}, "*", list(range(10))),
    "small unsigned keys": ({"id": np.arange(10, dtype=np.uint16), "v": LISTS}, "id", list(range(10))),
}


@pytest.mark.parametrize(("columns", "key", "keys"), PARQUETS.values(), ids=PARQUETS)
def test_parquet_files_are_parts_of_a_table(columns: dict[str, Any], key: str, keys: list[int], tmp_path: Path) -> None:
    table = pa.table(columns)
    pq.write_table(table.slice(0, 4), tmp_path / "a.parquet", row_group_size=3)
    pq.write_table(table.slice(4), tmp_path / "b.parquet")
    found = imported(tmp_path / "c", key, tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert found == dict(zip(keys, VECTORS.tolist(), strict=True))


@pytest.fixture
def rank() -> Iterator[Any]:
    """Make this process a rank of several, whose messages go nowhere; files need none."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def become(number: int, ranks: int) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        distributed.init_process_group("fake", store=FakeStore(), rank=number, world_size=ranks)

    yield become
    distributed.destroy_process_group()


def sharded(rank: int, offsets: list[list[int]], sizes: list[list[int]]) -> torch.Tensor:
    """A ShardedTensor as TorchRec saves it, with the shard of this rank."""
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor.api import ShardedTensor
    from torch.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
    from torch.distributed._shard.sharded_tensor.shard import Shard

    shards = [
        ShardMetadata(start, size, f"rank:{number}/cpu")
        for number, (start, size) in enumerate(zip(offsets, sizes, strict=True))
    ]
    (row, column), (height, width) = offsets[rank], sizes[rank]
    local = Shard(WEIGHT[row : row + height, column : column + width].contiguous(), shards[rank])
    whole = ShardedTensorMetadata(shards, WEIGHT.shape, TensorProperties(dtype=torch.float32))
    return ShardedTensor._init_from_local_shards_and_global_metadata([local], whole)


LAYOUTS = {
    "rows": ([[0, 0], [120, 0]], [[120, 3], [80, 3]]),
    "columns": ([[0, 0], [0, 1]], [[200, 1], [200, 2]]),
}


@pytest.mark.parametrize(("offsets", "sizes"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_sharded_tensors_of_torchrec_are_read_without_a_process_group(
    offsets: list[list[int]], sizes: list[list[int]], rank: Any, tmp_path: Path
) -> None:
    files = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for number, file in enumerate(files):
        rank(number, 2)
        torch.save({KEY: sharded(number, offsets, sizes)}, file)
    torch.distributed.destroy_process_group()
    assert imported(tmp_path / "c", KEY, *files) == by_number()
    with pytest.raises(hr.InputError, match=r"its pieces hold \d+ of 600 numbers: name the files of all ranks"):
        foreign_tables({"t": KEY}, [str(files[1])])
    with pytest.raises(hr.InputError, match="row 0 is in two pieces: name the file of each rank once"):
        foreign_tables({"t": KEY}, [str(files[0]), str(files[0])])
    rank(0, 2)


def test_dtensors_are_read_in_the_order_of_their_files(rank: Any, tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    files = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for number, file in enumerate(files):
        rank(number, 2)
        mesh = init_device_mesh("cpu", (2,))
        local = WEIGHT[100 * number : 100 * (number + 1)].clone()
        parts = {
            KEY: DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=WEIGHT.shape, stride=(3, 1)),
            "copied": DTensor.from_local(WEIGHT, mesh, [Replicate()], run_check=False),
        }
        torch.save(parts, file)
    torch.distributed.destroy_process_group()
    assert imported(tmp_path / "c", KEY, *files) == by_number()
    assert imported(tmp_path / "d", "copied", *files) == by_number()
    with pytest.raises(hr.InputError, match="its pieces hold 300 of 600 numbers"):
        foreign_tables({"t": KEY}, [str(files[0])])
    rank(0, 2)


class Code:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return eval, ("1 / 0",)


def bad(values: list[Any], kind: pa.DataType) -> NDArray[Any] | pa.Array:
    return pa.array(values, kind)


def test_faults_are_sentences_and_leave_nothing_behind(hotrow: Command, tmp_path: Path) -> None:  # noqa: F811
    torch.save({KEY: WEIGHT, "line": torch.ones(3), "whole": torch.ones(2, 2).int(), "text": "x"}, "a.pt")
    torch.save({KEY: WEIGHT}, "b.pt")
    torch.save({KEY: torch.full((2, 2), torch.nan)}, "nan.pt")
    torch.save({KEY: torch.full((2, 2), 1e30)}, "large.pt")
    torch.save({"x": Code()}, "code.pt")
    Path("cut.pt").write_bytes(Path("a.pt").read_bytes()[:300])
    Path("d.txt").write_text("x")
    Path("folder").mkdir()
    lists = pa.list_(pa.float32())
    tables = {
        "twice": {"id": [1, 2, 1], "v": [[1.0], [2.0], [3.0]]},
        "ragged": {"id": [1, 2], "v": [[1.0, 2.0], [3.0]]},
        "null": {"id": [1, None], "v": [[1.0], [2.0]]},
        "hole": {"id": [1, 2], "v": bad([[1.0, 2.0], [None, 4.0]], lists)},
        "text": {"id": ["a", "b"], "v": [[1.0], [2.0]]},
        "words": {"id": [1, 2], "v": ["x", "y"]},
        "two": {"id": [1], "v": [[1.0]], "w": [[1.0]]},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), f"{name}.parquet")
    before = sorted(path.name for path in tmp_path.iterdir())
    faults = {
        ("a.pt",): "--table: name at least one",
        ("a.pt", "--table", "t"): "--table t: write NAME=KEY",
        ("a.pt", "--table", "t=x"): f"--table t=x: no file has this key; there are '{KEY}', 'whole'",
        ("a.pt", "--table", f"t={KEY}", "--table", "t=line"): "there is a table 't' already",
        ("a.pt", "--table", "t=line"): "has the shape (3,): name a matrix of rows",
        ("a.pt", "--table", "t=whole"): "holds torch.int32: name a tensor of floats",
        ("a.pt", "--table", "t=text"): "is a str: name a tensor",
        ("a.pt", "b.pt", "--table", f"t={KEY}"): "is whole in 2 files: name one of them",
        ("nan.pt", "--table", f"t={KEY}"): "nan.pt: embedding_bags.t1.weight: values holds NaN or infinity",
        ("large.pt", "--table", f"t={KEY}", "--type", "float16"): "4 numbers are too large for type='float16'",
        ("a.pt", "--table", f"t={KEY}", "--type", "int8"): "Table.type",
        ("a.pt", "--table", f"t={KEY}", "--optimizer", "adagrat"): "Table.optimizer",
        ("a.pt", "--table", f"t={KEY}", "--optimizer", "adam:lr"): "write NAME:SETTING=VALUE",
        ("a.pt", "--table", f"t={KEY}", "--optimizer", "adam:lr=-1"): "lr=-1",
        ("code.pt", "--table", "t=x"): "code.pt: is no file of plain tensors that can be read without executing it",
        ("cut.pt", "--table", "t=x"): "cut.pt: is no file of plain tensors",
        ("d.txt", "--table", "t=x"): "d.txt: name files that end in .pt, .pth, .safetensors, .parquet",
        ("folder", "--table", "t=x"): "folder: is a folder: those of torch.distributed.checkpoint are not read",
        ("a.pt", "two.parquet", "--table", "t=x"): "import them one after the other",
        ("twice.parquet", "--table", "t=id"): "twice.parquet: the key 1 occurs twice: give each row once",
        ("ragged.parquet", "--table", "t=id"): "column 'v': row 1 has 1 numbers and the first has 2",
        ("null.parquet", "--table", "t=id"): "column 'id': row 1 is empty",
        ("hole.parquet", "--table", "t=id"): "column 'v': row 1 is empty",
        ("text.parquet", "--table", "t=id"): "column 'id' is string: keys are whole numbers",
        ("words.parquet", "--table", "t=id"): "column 'v' is string: values are numbers",
        ("two.parquet", "--table", "t=id"): "there are several columns of lists (v, w): name one",
        ("two.parquet", "--table", "t=x"): "no file has such columns; two.parquet has 'id', 'v', 'w'",
    }  # fmt: skip
    for given, sentence in faults.items():
        done = hotrow("checkpoint", "import", *given, "--to", "out")
        assert done.exit_code == 2, (given, done.output)
        assert sentence in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
        left = sorted(path.name for path in tmp_path.iterdir() if path.name != "out")
        assert left == before, given
        assert not checkpoint.exists("out")


def test_an_import_is_told_and_kept_in_the_manifest(hotrow: Command) -> None:  # noqa: F811
    torch.save({KEY: WEIGHT, "u": torch.ones(4, 2)}, "a.pt")
    given = ("a.pt", "--table", f"items={KEY}", "--table", "users=u", "--optimizer", "adam:lr=0.5", "--to", "out")
    done = hotrow("checkpoint", "import", *given)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"out/000001: table items: 200 rows of dim 3 from a.pt: {KEY}"
    manifest = SavedCheckpoint.open("out").manifest
    assert manifest.tables["users"].settings["optimizer"]["lr"] == 0.5
    assert not manifest.has_dense
    assert manifest.about["imported"]["users"] == {"from": "a.pt: u", "key": "u"}
    assert hotrow("checkpoint", "verify", "out").exit_code == 0
    assert "no dense tensors: this checkpoint holds tables alone" in hotrow("inspect", "out").stdout
    assert "--to out: there are checkpoints in it already" in hotrow("checkpoint", "import", *given).stderr
    tiers = {name: RamTier(hr.Table(**facts.settings)) for name, facts in manifest.tables.items()}
    with pytest.raises(hr.InputError, match="it holds tables alone, no dense tensors"):
        checkpoint.load("out", nn.Linear(1, 1), None, tiers)
