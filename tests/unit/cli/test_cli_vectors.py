"""`hotrow vectors`: the rows of a checkpoint as a file, all of them or those of given ids."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from hotrow.data.keys import Keyspace
from hotrow.run.restored import Restored
from hotrow.store import RamTier
from small_run import CONFIG, ITEMS, USERS, trained, write_data
from unit.cli.conftest import Command

FM = CONFIG.replace('name = "lr"', 'name = "fm"').replace("dim = 1\n", "dim = 4\n").replace("epochs = 2", "epochs = 1")
TWO = FM.replace('"item.no"]', '{ column = "item.no", table = "items" }]')


@pytest.fixture(scope="module")
def fm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(write_data(tmp_path_factory.mktemp("fm"), FM))


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(write_data(tmp_path_factory.mktemp("two"), TWO))


def rows_of(folder: Path, table: str = "default") -> dict[int, list[float]]:
    """key -> value, by loading the checkpoint."""
    with Restored(folder) as run:
        chunks = list(run.trainer.tables.tiers[table].export())
        keys = np.concatenate([chunk.keys for chunk in chunks]).tolist()
        return dict(zip(keys, np.concatenate([chunk.values for chunk in chunks]).tolist(), strict=True))


def test_every_row_is_written_with_its_weight_apart_and_without_optimizer_state(hotrow: Command, fm: Path) -> None:
    done = hotrow("vectors", fm, "out.parquet", "--json", "told.json")
    assert done.exit_code == 0, done.stderr
    table = pq.read_table("out.parquet")
    assert table.schema.names == ["key", "weight", "vector"]
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 3)
    found = zip(*(table[name].to_pylist() for name in table.schema.names), strict=True)
    assert {key: [weight, *vector] for key, weight, vector in found} == rows_of(fm)
    assert json.loads(Path("told.json").read_text())["rows"] == USERS + ITEMS == table.num_rows
    assert "table 'default' serves 'user id', 'item.no', so keys are ids XOR a hash" in done.stderr


def test_csv_and_numpy_hold_the_same_as_parquet(hotrow: Command, fm: Path) -> None:
    for name in ("out.parquet", "out.csv", "out.npy"):
        assert hotrow("vectors", fm, name).exit_code == 0
    table = pq.read_table("out.parquet")
    array = np.load("out.npy")
    assert array.dtype.names == ("key", "weight", "vector")
    assert array["vector"].shape == (USERS + ITEMS, 3)
    assert array["key"].tolist() == table["key"].to_pylist()
    assert array["weight"].tolist() == table["weight"].to_pylist()
    assert array["vector"].tolist() == table["vector"].to_pylist()
    texts = pa.csv.read_csv("out.csv", convert_options=pa.csv.ConvertOptions(column_types={"key": pa.uint64()}))
    assert texts.schema.names == ["key", "weight", "vector_0", "vector_1", "vector_2"]
    assert texts["key"].to_pylist() == table["key"].to_pylist()
    columns = np.stack([texts[f"vector_{place}"].to_numpy() for place in range(3)], axis=1)
    np.testing.assert_array_equal(columns.astype(np.float32), array["vector"])


def test_a_model_of_weights_alone_has_no_vector(hotrow: Command, finished: Path) -> None:
    assert hotrow("vectors", finished, "out.csv").exit_code == 0
    assert Path("out.csv").read_text().splitlines()[0] == "key,weight"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_ids_are_looked_up_as_training_reads_them_and_absent_ones_are_counted(
    hotrow: Command, fm: Path, suffix: str
) -> None:
    users = ["ü3", "never seen", "ü0", "ü3", "7"]
    if suffix == "csv":
        Path("ids.csv").write_text("other,user id\n" + "".join(f"x,{user}\n" for user in users), encoding="utf-8")
    else:
        pq.write_table(pa.table({"user id": pa.array(users).dictionary_encode()}), "ids.parquet")
    given = ("--ids", f"ids.{suffix}", "--feature", "user id")
    done = hotrow("vectors", fm, "out.parquet", *given, "--json", "told.json")
    assert done.exit_code == 0, done.stderr
    table = pq.read_table("out.parquet")
    assert table["id"].to_pylist() == ["ü3", "ü0", "ü3"]
    with Restored(fm) as run:
        keys = Keyspace(run.schema).keys("user id", ["ü3", "ü0", "ü3"])
        expected = np.empty((3, 4), np.float32)
        tier = run.trainer.tables.tiers["default"]
        assert isinstance(tier, RamTier)
        assert tier.find(keys, expected).absent == 0
    assert table["weight"].to_pylist() == expected[:, 0].tolist()
    assert table["vector"].to_pylist() == expected[:, 1:].tolist()
    assert "2 of 5 ids have no row in table 'default' and are left out; the first: 'never seen'" in done.stderr
    told = json.loads(Path("told.json").read_text())
    assert (told["ids"], told["absent"], told["rows"]) == (5, 2, 3)
    assert hotrow("vectors", fm, "out.npy", *given).exit_code == 0
    assert np.load("out.npy")["row"].tolist() == [0, 2, 3]  # places in the file of ids


def test_ids_that_need_several_passes_keep_their_order(
    hotrow: Command, fm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotrow.run.vectors.IDS_AT_ONCE", 7)
    users = [f"ü{number}" for number in reversed(range(USERS))]
    Path("ids.csv").write_text("anything\n" + "\n".join(users) + "\n", encoding="utf-8")  # the only column will do
    done = hotrow("vectors", fm, "out.parquet", "--ids", "ids.csv", "--feature", "user id")
    assert done.exit_code == 0, done.stderr
    assert pq.read_table("out.parquet")["id"].to_pylist() == users


def test_a_table_of_one_feature_has_ids_as_keys(hotrow: Command, two_tables: Path) -> None:
    done = hotrow("vectors", two_tables, "out.parquet", "--table", "items")
    assert done.exit_code == 0, done.stderr
    assert sorted(pq.read_table("out.parquet")["key"].to_pylist()) == list(range(ITEMS))
    assert "keys are ids that are whole numbers, and hashes of other texts" in done.stderr


def test_a_file_that_is_there_stays_unless_force_is_given(hotrow: Command, fm: Path) -> None:
    Path("out.csv").write_text("mine")
    assert "exists: name another file" in hotrow("vectors", fm, "out.csv").stderr
    assert Path("out.csv").read_text() == "mine"
    assert hotrow("vectors", fm, "out.csv", "--force").exit_code == 0


def test_faults_are_sentences_and_leave_nothing_behind(hotrow: Command, two_tables: Path, tmp_path: Path) -> None:
    Path("ids.csv").write_text("a,b\n1,2\n")
    faults = {
        ("nowhere", "out.csv"): "nowhere: there is no checkpoint in it",
        (two_tables, "out.txt"): "vectors are written as .parquet or .csv or .npy",
        (two_tables, "out.csv"): "has the tables 'default', 'items': name one with --table",
        (two_tables, "out.csv", "--table", "x"): "--table x: there is none of this name, there are 'default', 'items'",
        (two_tables, "out.csv", "--ids", "ids.csv"): "--ids and --feature go together",
        (two_tables, "out.csv", "--feature", "item.no"): "--ids and --feature go together",
        (two_tables, "out.csv", "--ids", "ids.csv", "--feature", "x"): "feature 'x': there is none; features are",
        (
            two_tables,
            "out.csv",
            "--ids",
            "ids.csv",
            "--feature",
            "item.no",
        ): "there is no column 'item.no'; its columns",
        (two_tables, "out.csv", "--ids", "no.csv", "--feature", "item.no"): "no.csv",
        (two_tables, "out.csv", "--table", "default", "--ids", "ids.csv", "--feature", "item.no"): (
            "--table default: feature 'item.no' is in table 'items': leave it out"
        ),
    }
    for given, sentence in faults.items():
        done = hotrow("vectors", *given)
        assert done.exit_code == 2, given
        assert sentence in done.stderr, done.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.csv"], given


def test_a_damaged_checkpoint_is_refused(hotrow: Command, tmp_path: Path) -> None:
    folder = trained(write_data(tmp_path, FM))
    (file,) = (folder / "checkpoint").glob("*/tables/0/*")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    done = hotrow("vectors", folder, "out.csv")
    assert done.exit_code == 2
    assert "was changed since it was saved" in done.stderr
    assert not Path("out.csv").exists()
