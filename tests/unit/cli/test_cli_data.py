"""`hotrow data describe`: the figures of the data, and pictures whose shape tells the truth."""

import json
from pathlib import Path

import pytest

from hotrow.cli.description import BLOCKS, block, days_picture, skew_picture
from small_run import CONFIG, write_csv, write_data
from unit.cli.conftest import Command


def test_the_training_data_are_shown_kind_by_kind(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("data", "describe", write_data(tmp_path), "--json", "found.json")
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["rows", "3,000"]
    assert " ".join(lines[1][:-1]) == "mean of label clicked?"
    (user,) = [line for line in lines if line[:2] == ["user", "id"]]
    assert user[2:4] == ["40", "0"]
    (price,) = [line for line in lines if line[:3] == ["price", "in", "€"]]
    assert price[3] == "0"
    found = json.loads(Path("found.json").read_text())
    assert (found["rows"], found["ids"][0]["distinct"]) == (3000, 40)


def test_the_first_rows_alone_are_looked_at_if_asked_for(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("data", "describe", write_data(tmp_path), "--rows", "100")
    assert done.stdout.startswith("rows")
    assert "100 (the first ones; there are more)" in done.stdout.splitlines()[0]


def test_rows_that_a_split_leaves_out_are_mentioned(hotrow: Command, tmp_path: Path) -> None:
    split = "data.split={ by = 'rows', train = 2500, test = 500 }"
    done = hotrow("data", "describe", write_data(tmp_path, CONFIG.replace('test = "test.csv"', "")), "--set", split)
    assert done.exit_code == 0, done.stderr
    assert "2,500 (the train part: data.split leaves the others out)" in done.stdout.splitlines()[0]


def test_days_are_shown_one_by_one(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG.replace("[model]", 'time = { column = "when" }\n[model]'))
    lines = [f"1,u,i,1,2024-03-0{1 + (row > 3)}T0{row}:00:00" for row in range(6)]
    (tmp_path / "train.csv").write_text("\n".join(["clicked?,user id,item.no,price in €,when", *lines]) + "\n")
    shown = hotrow("data", "describe", config, "--set", "data.numbers=[]").stdout
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("2024")] == [
        ["2024-03-01", "4"],
        ["2024-03-02", "2"],
    ]
    assert "from" in shown
    assert "2024-03-02 05:00:00" in shown


def test_malformed_lines_are_counted_and_the_first_is_told(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path)
    write_csv(tmp_path / "train.csv", [["1", "u", "i", "1"]] * 300 + [["1", "u", "i", "dear"]])
    done = hotrow("data", "describe", config, "--set", "data.numbers=['price in €']")
    assert "malformed lines" in done.stdout
    assert "line 302: price in € 'dear' is no number" in done.stderr


def test_faults_are_sentences(hotrow: Command, tmp_path: Path) -> None:
    write_data(tmp_path)
    assert "no.toml: there is no such file" in hotrow("data", "describe", "no.toml").stderr
    done = hotrow("data", "describe", "small.toml", "--set", "data.ids=['usr']")
    assert done.exit_code == 2
    assert "there is no column 'usr'" in done.stderr


def heights(picture: str) -> list[int]:
    return [BLOCKS.index(each) for each in picture]


def test_a_skew_picture_falls_with_the_rank_and_ends_with_the_ids() -> None:
    zipf = [(rank, max(1, 1000 // rank)) for rank in range(1, 1001)]
    picture = skew_picture(zipf, ranks=1000, most=1000, width=10)
    assert heights(picture) == [7, 6, 6, 5, 4, 3, 2, 1, 0, 0]
    assert skew_picture(zipf[:10], ranks=1000, most=1000, width=10) == picture[:4]  # ten ids: a third of the way
    assert heights(skew_picture([(1, 1000), (10, 1000)], ranks=10, most=1000, width=4)) == [7, 7, 7, 7]
    assert skew_picture([(1, 5)], ranks=1, most=5, width=10) == BLOCKS[7] * 10
    assert skew_picture([], ranks=10, most=10) == ""


@pytest.mark.parametrize(("share", "height"), [(0.0, 0), (0.124, 0), (0.125, 1), (0.99, 7), (1.0, 7)])
def test_a_block_is_as_high_as_its_share(share: float, height: int) -> None:
    assert block(share) == BLOCKS[height]


def test_many_days_are_one_picture_of_bounded_width() -> None:
    days = {f"day {day}": 10 if day < 50 else 80 for day in range(100)}
    picture = days_picture(days, width=10)
    assert picture == BLOCKS[1] * 5 + BLOCKS[7] * 5
    assert len(days_picture({f"{day}": 1 for day in range(101)}, width=10)) <= 10
