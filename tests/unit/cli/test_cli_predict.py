"""`hotrow predict`: one probability for every row that can be read, and no file is lost."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hotrow.metrics import auc
from small_run import clicks, write_csv
from unit.cli.conftest import Command


@pytest.fixture
def rows(tmp_path: Path) -> list[list[str]]:
    found = clicks(400, seed=11)[0]
    write_csv(tmp_path / "in.csv", found, labels=False)
    return found


def read(path: str) -> tuple[list[int], list[float]]:
    with Path(path).open(newline="") as lines:
        header, *values = csv.reader(lines)
    assert header == ["row", "probability"]
    return [int(row) for row, _ in values], [float(chance) for _, chance in values]


def test_rows_come_in_their_order_with_probabilities_that_know(
    hotrow: Command, finished: Path, rows: list[list[str]]
) -> None:
    done = hotrow("predict", "in.csv", "out.csv", "--run", finished, "--json", "told.json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "400 predictions in out.csv\n"
    numbers, chances = read("out.csv")
    assert numbers == list(range(400))
    area = auc(np.array([float(row[0]) for row in rows]), np.array(chances))
    assert area is not None
    assert area > 0.8
    told = json.loads(Path("told.json").read_text())
    assert told == {"run": str(finished), "out": "out.csv", "rows": 400, "malformed": 0}


@pytest.mark.usefixtures("rows")
def test_parquet_holds_the_same_as_csv(hotrow: Command, finished: Path) -> None:
    for name in ("out.csv", "out.parquet"):
        assert hotrow("predict", "in.csv", name, "--run", finished).exit_code == 0
    numbers, chances = read("out.csv")
    table = pq.read_table("out.parquet")
    assert table["row"].to_pylist() == numbers
    assert table["probability"].to_numpy() == pytest.approx(np.array(chances), abs=1e-7)


def test_malformed_rows_are_left_out_counted_and_told(
    hotrow: Command, finished: Path, rows: list[list[str]], tmp_path: Path
) -> None:
    rows[3] = ["0", "u", "i", "cheap"]
    write_csv(tmp_path / "in.csv", rows, labels=False)
    done = hotrow("predict", "in.csv", "out.csv", "--run", finished)
    assert done.exit_code == 0
    assert read("out.csv")[0] == [row for row in range(400) if row != 3]
    assert "1 malformed line was left out; the first: in.csv line 5: price in € 'cheap' is no number" in done.stderr


@pytest.mark.usefixtures("rows")
def test_a_file_that_is_there_stays_unless_force_is_given(hotrow: Command, finished: Path) -> None:
    Path("out.csv").write_text("mine")
    done = hotrow("predict", "in.csv", "out.csv", "--run", finished)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "hotrow: out.csv: exists: name another file, or give --force to replace it\n"
    assert Path("out.csv").read_text() == "mine"
    assert hotrow("predict", "in.csv", "out.csv", "--run", finished, "--force").exit_code == 0
    assert len(read("out.csv")[0]) == 400


def test_columns_to_keep_stand_beside_the_probabilities_as_they_were(
    hotrow: Command, finished: Path, rows: list[list[str]], tmp_path: Path
) -> None:
    rows[3] = ["0", "u", "i", "cheap"]  # is left out
    write_csv(tmp_path / "in.csv", rows)
    kept = ("--keep", "user id", "--keep", "price in €", "--keep", "clicked?")
    for name in ("out.csv", "out.parquet"):
        done = hotrow("predict", "in.csv", name, "--run", finished, *kept)
        assert done.exit_code == 0, done.stderr
    with Path("out.csv").open(newline="", encoding="utf-8") as lines:
        header, *values = csv.reader(lines)
    assert header == ["row", "user id", "price in €", "clicked?", "probability"]
    good = [row for place, row in enumerate(rows) if place != 3]
    assert [value[1:4] for value in values] == [[row[1], row[3], row[0]] for row in good]
    table = pq.read_table("out.parquet")
    assert table.column_names == header
    assert table["price in €"].to_pylist() == [row[3] for row in good]
    assert hotrow("predict", "in.csv", "plain.csv", "--run", finished).exit_code == 0
    assert [(int(value[0]), float(value[4])) for value in values] == list(zip(*read("plain.csv"), strict=True))


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("in.csv", "out.csv", "--keep", "when"), "in.csv: there is no column 'when'; its columns are"),
        (("in.csv", "out.csv", "--keep", "row"), "--keep row: predictions have a column of this name"),
        (("in.csv", "out.csv", "--keep", "item.no", "--keep", "item.no"), "--keep item.no: is given twice"),
        (("in.csv", "out.txt"), "out.txt: predictions are written as .csv or .parquet"),
        (("no.csv", "out.csv"), "no.csv: there is no such file"),
        (("in.csv", "in.csv", "--force"), "in.csv: is the input file: write to another file"),
        (("bad.csv", "out.csv"), "bad.csv: there is no column 'price in €'; its columns are 'a', 'b'"),
    ],
)
def test_faults_are_sentences_and_leave_nothing_behind(
    arguments: tuple[str, ...], told: str, hotrow: Command, finished: Path, tmp_path: Path
) -> None:
    Path("bad.csv").write_text("a,b\n1,2\n")
    before = sorted(tmp_path.iterdir())
    done = hotrow("predict", *arguments, "--run", finished)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_written_in_another_way_is_predicted_with_its_settings(
    hotrow: Command, finished: Path, rows: list[list[str]]
) -> None:
    lines = Path("in.csv").read_text(encoding="utf-8")
    Path("semicolons.csv").write_text(lines.replace(",", ";"), encoding="utf-8")
    refused = hotrow("predict", "semicolons.csv", "out.csv", "--run", finished)
    assert refused.exit_code == 2
    assert 'set data.delimiter = ";"' in refused.stderr
    done = hotrow("predict", "semicolons.csv", "out.csv", "--run", finished, "--set", "data.delimiter=;")
    assert done.exit_code == 0, done.stderr
    hotrow("predict", "in.csv", "same.csv", "--run", finished)
    assert Path("out.csv").read_text() == Path("same.csv").read_text()
    assert len(read("out.csv")[0]) == len(rows)


def test_settings_that_a_trained_run_cannot_change_are_refused(hotrow: Command, finished: Path) -> None:
    for change in ("data.ids=['x']", "run.epochs=3", "delimiter=;"):
        done = hotrow("predict", "in.csv", "out.csv", "--run", finished, "--set", change)
        assert done.exit_code == 2
        assert f"--set {change}: a trained run takes data.delimiter, data.quote" in done.stderr


def test_evaluate_takes_them_too(hotrow: Command, finished: Path) -> None:
    lines = (finished.parents[1] / "test.csv").read_text(encoding="utf-8")
    Path("semicolons.csv").write_text(lines.replace(",", ";"), encoding="utf-8")
    done = hotrow("evaluate", "--run", finished, "--on", "semicolons.csv", "--set", "data.delimiter=;")
    assert done.exit_code == 0, done.stderr
    assert "1,000" in done.stdout
