"""Predictions carry the numbers of their rows, whatever was left out between them, and appear whole or not at all."""

import csv
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data import text
from hotrow.data.blocks import blocks
from hotrow.data.config import DataConfig, open_source
from hotrow.data.schema import Schema
from hotrow.errors import ConfigError, FileError
from hotrow.run.predictions import Predicted, PredictionFile, numbered, places
from hotrow.run.restored import Restored
from small_run import clicks, write_csv

SCHEMA = Schema(label="clicked?", numbers=["n"], ids=["id"])


def slow_places(lines: str) -> list[int]:
    """g: a good line, m: a malformed one, b: a blank one."""
    rows = [kind for kind in lines if kind != "b"]
    return [number for number, kind in enumerate(rows) if kind == "g"]


@given(st.text("gmb", max_size=30), st.integers(0, 5))
def test_places_count_malformed_lines_and_leave_blank_ones_out(lines: str, before: int) -> None:
    numbers = {kind: [before + place + 1 for place, each in enumerate(lines) if each == kind] for kind in "gmb"}
    found = places(len(numbers["g"]), before + len(lines), numbers["m"], numbers["b"])
    assert found.tolist() == slow_places(lines)


def source_rows(config: DataConfig, path: Path) -> list[tuple[int, str]]:
    source = open_source(config, str(path), labels=False, schema=SCHEMA)
    found = [(numbers, record) for record, numbers in numbered(source)]
    return [
        (int(number), str(value))
        for numbers, record in found
        for number, value in zip(numbers, record["id"].to_pylist(), strict=True)
    ]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "blocks", partial(blocks, size=10))  # bytes: some blocks hold no good row at all


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_text_file_have_the_numbers_that_any_reader_of_csv_gives_them(
    seed: int, header: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["good", "bad number", "short", "blank"], 60, p=[0.5, 0.2, 0.2, 0.1])
    texts = {"good": "id{0},{0}", "bad number": "id{0},x", "short": "id{0}", "blank": ""}
    lines = [texts[kind].format(place) for place, kind in enumerate(kinds)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([*(["id,n"] if header else []), *lines]) + "\n")
    columns = None if header else ("id", "n")
    config = DataConfig(train=str(path), label="clicked?", numbers=["n"], ids=["id"], malformed=100, columns=columns)
    rows = [line for line in lines if line]
    expected = [(number, line.split(",")[0]) for number, line in enumerate(rows) if "," in line and ",x" not in line]
    assert source_rows(config, path) == expected


def test_rows_of_a_parquet_file_are_numbered_through_all_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [float(row) if row % 3 else 1e300 for row in range(50)]  # no float32 holds this: malformed
    pq.write_table(pa.table({"id": [f"id{row}" for row in range(50)], "n": values}), path, row_group_size=7)
    config = DataConfig(format="parquet", train=str(path), label="clicked?", numbers=["n"], ids=["id"], malformed=50)
    assert source_rows(config, path) == [(row, f"id{row}") for row in range(50) if row % 3]


def test_a_run_predicts_every_good_row_with_its_number(finished: Path, tmp_path: Path) -> None:
    rows, _ = clicks(3000, seed=8)
    bad = {0, 17, 2999}
    whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
    write_csv(whole, rows, labels=False)
    write_csv(broken, [["0", "u", "i", "dear"] if row in bad else rows[row] for row in range(len(rows))], labels=False)
    with Restored(finished) as run:
        reference = np.concatenate([some.values for some in run.predict(run.unlabelled(str(whole)))])
        source = run.unlabelled(str(broken))
        found = list(run.predict(source))
        assert max(len(some.rows) for some in found) <= run.trainer.global_batch
    numbers = np.concatenate([some.rows for some in found])
    assert numbers.tolist() == [row for row in range(3000) if row not in bad]
    assert source.trouble.malformed == 3
    assert np.allclose(np.concatenate([some.values for some in found]), reference[numbers], atol=1e-6)


def some(start: int, stop: int, labels: int = 1) -> Predicted:
    rows = np.arange(start, stop)
    chances = np.arange(len(rows) * labels) / 100
    return Predicted(rows, chances.astype(np.float32).reshape(-1, labels))


def test_a_csv_file_has_plain_names_and_whole_numbers(tmp_path: Path) -> None:
    with PredictionFile(tmp_path / "out.csv", SCHEMA) as file:
        file.write(some(0, 2))
        file.write(some(5, 6))
    assert (tmp_path / "out.csv").read_text() == "row,probability\n0,0\n1,0.01\n5,0\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_several_labels_have_a_column_each_however_odd_their_names(tmp_path: Path) -> None:
    schema = Schema(label=['bought, "really"', "clicked"], ids=["id"])
    with PredictionFile(tmp_path / "out.csv", schema) as file:
        file.write(some(0, 1, labels=2))
    with (tmp_path / "out.csv").open(newline="") as lines:
        assert list(csv.reader(lines)) == [
            ["row", 'probability_bought, "really"', "probability_clicked"], ["0", "0", "0.01"]]  # fmt: skip


def test_a_parquet_file_holds_the_same(tmp_path: Path) -> None:
    with PredictionFile(tmp_path / "out.parquet", SCHEMA) as file:
        file.write(some(0, 2))
        file.write(some(5, 6))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.types == [pa.int64(), pa.float32()]
    assert table["row"].to_pylist() == [0, 1, 5]
    assert table["probability"].to_numpy() == pytest.approx([0, 0.01, 0])


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_file_that_was_not_finished_does_not_appear(name: str, tmp_path: Path) -> None:
    file = PredictionFile(tmp_path / name, SCHEMA)
    file.write(some(0, 2))
    with pytest.raises(KeyboardInterrupt), file:
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_replaced_only_if_asked_for_and_only_by_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists: name another file, or give --force"):
        PredictionFile(path, SCHEMA)
    with pytest.raises(KeyboardInterrupt), PredictionFile(path, SCHEMA, force=True):
        raise KeyboardInterrupt
    assert path.read_text() == "mine"
    with PredictionFile(path, SCHEMA, force=True) as file:
        file.write(some(0, 1))
    assert path.read_text().startswith("row,")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("out.txt", "predictions are written as .csv or .parquet"),
        ("none/out.csv", "the folder .* does not exist"),
        ("folder.csv", "is a folder"),
        ("locked/out.csv", "cannot be written"),
    ],
)
def test_places_that_cannot_be_written_are_told_before_anything_is_read(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "locked").symlink_to("/proc/self")  # a folder in which nobody can make files
    with pytest.raises((ConfigError, FileError), match=told):
        PredictionFile(tmp_path / name, SCHEMA, force=True)
