"""The example configs and the notebook run as they stand, on a slice of their data."""

import gzip
import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hotrow.cli import app
from hotrow.run import load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
DataDir = Callable[[str], Path]


def slice_of(source: Path, rows: int, path: Path, *, header: bool) -> Path:
    """The first rows of a packed file, plain."""
    with gzip.open(source, "rt", encoding="utf-8", newline="") as lines, path.open("w", newline="") as file:
        file.writelines(islice(lines, rows + header))
    return path


def trained(tmp_path: Path, example: str, *changes: str) -> dict[str, Any]:
    """The figures of a run of an example."""
    given = [f"run.folder={tmp_path / 'runs'}", "run.tensorboard=false", "run.autocast=off", *changes]
    arguments = ["train", str(EXAMPLES / example), "--json", str(tmp_path / "figures.json")]
    done = CliRunner().invoke(app, [*arguments, *(part for change in given for part in ("--set", change))])
    assert done.exit_code == 0, done.stderr
    figures: dict[str, Any] = json.loads((tmp_path / "figures.json").read_text())
    assert Path(figures["report"]).exists()
    return figures


def test_frappe_trains_validates_and_tests(tmp_path: Path, data_dir: DataDir) -> None:
    folder = data_dir("frappe_x1")
    files = {"train": ("train_rebuilt", 12_000), "valid": ("valid", 2000), "test": ("test", 2000)}
    paths = {
        part: slice_of(folder / f"{name}.csv.gz", rows, tmp_path / f"{part}.csv", header=True)
        for part, (name, rows) in files.items()
    }
    changes = [f"data.{part}={path}" for part, path in paths.items()]
    figures = trained(tmp_path, "frappe.toml", *changes, "run.epochs=3", "run.global_batch=512")
    assert figures["samples"] == 36_000
    assert figures["test_auc"] > 0.75
    assert figures["valid_auc"] > 0.75


@pytest.mark.parametrize("changes", [(), ("model=lr", "tables.default.dim=1")], ids=["deepfm", "lr"])
def test_criteo_trains_on_its_first_rows(changes: tuple[str, ...], tmp_path: Path, data_dir: DataDir) -> None:
    rows = slice_of(data_dir("criteo_dac80k") / "criteo_dac80k.tsv.gz", 6000, tmp_path / "rows.tsv", header=False)
    split = 'data.split={by="rows", train=4000, valid=1000, test=1000}'
    figures = trained(tmp_path, "criteo.toml", f"data.train={rows}", split, "run.epochs=2", *changes)
    assert figures["samples"] == 8000
    assert figures["test_auc"] > 0.6
    assert figures["rows"]["default"] > 10_000


def test_avazu_reads_the_real_format(tmp_path: Path, data_dir: DataDir) -> None:
    rows = data_dir("avazu_9k") / "avazu_9k.csv.gz"  # one hour: a part by chance stands for the last day
    split = 'data.split={by="fraction", test=0.2}'
    changes = ("model.hidden=[32]", "run.global_batch=256", "tables.default.dim=5")
    figures = trained(tmp_path, "avazu.toml", f"data.train={rows}", split, *changes)
    assert figures["test_auc"] > 0.6
    assert figures["counts"]["malformed_lines"] == 0


def test_the_demo_comes_near_to_its_teacher(tmp_path: Path) -> None:
    small = ("data.rows=100_000", "data.test_rows=20_000", "data.ids=2000", "run.global_batch=512")
    figures = trained(tmp_path, "demo.toml", *small)
    assert figures["best_auc"] - 0.08 < figures["test_auc"] < figures["best_auc"]


def adult_line(rng: random.Random) -> str:
    """A person in the format of UCI's file; those with more education earn more."""
    school = rng.randrange(1, 17)
    income = ">50K" if rng.random() < school / 20 else "<=50K"
    work, country = rng.choice(["Private", "?", "State-gov"]), rng.choice(["United-States", "?"])
    cells = [rng.randrange(17, 90), work, rng.randrange(20_000, 400_000), f"school {school}", school, "Divorced"]
    cells += ["Sales", "Husband", "White", rng.choice(["Male", "Female"]), 0, 0, rng.randrange(1, 99), country, income]
    return ", ".join(map(str, cells))


def test_adult_learns_a_text_label(tmp_path: Path) -> None:
    rng = random.Random(3)
    (tmp_path / "adult.data").write_text("".join(adult_line(rng) + "\n" for _ in range(2000)))
    figures = trained(tmp_path, "adult.toml", f"data.train={tmp_path / 'adult.data'}")
    assert figures["test_auc"] > 0.7
    assert figures["counts"]["malformed_lines"] == 0


def test_ratings_are_predicted_as_numbers(tmp_path: Path) -> None:
    rng = random.Random(5)
    kind = [rng.gauss(0, 0.7) for _ in range(60)]
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    lines = []
    for row in range(3000):
        user, item = rng.randrange(40), rng.randrange(60)
        stars = min(5, max(1, round(3.5 + kind[user] + kind[item])))
        lines.append(f"{user}\t{item}\t{stars}\t{row}\n")
    (tmp_path / "ml.inter").write_text(header + "".join(lines))
    figures = trained(tmp_path, "ratings.toml", f"data.train={tmp_path / 'ml.inter'}")
    assert figures["test_r2"] > 0.5
    assert figures["best"]["metric"] == "rmse"


def test_weights_make_up_for_non_clicks_that_were_left_out(tmp_path: Path) -> None:
    rng = random.Random(7)
    lines = ["clicked,user,item,weight"]
    while len(lines) < 4000:
        clicked = rng.random() < 0.05
        if clicked or rng.random() < 0.1:
            lines.append(f"{clicked:d},{rng.randrange(20)},{rng.randrange(20)},{(1 if clicked else 10) / 6.9:.4f}")
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    figures = trained(tmp_path, "weighted.toml", f"data.train={tmp_path / 'clicks.csv'}")
    assert 0.8 < figures["test_calibration"] < 1.25  # of all impressions: 5 % click, not the 35 % of the rows kept
    assert figures["test_logloss"] < 0.25


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.toml"))])
def test_every_example_is_a_whole_config_named_after_its_file(name: str) -> None:
    assert load_config(EXAMPLES / name).run.name == name.removesuffix(".toml")


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        text = "".join(cell["source"]).replace("ROWS = 500_000", "ROWS = 60_000")
        exec(compile(text, f"cell {number}", "exec"), names)
    assert names["trainer"].samples == 60_000
    assert 0.7 < names["found"].metrics["auc"] < names["limit"]
    assert (tmp_path / "checkpoint" / "000001" / "manifest.json").exists()


def test_the_demo_learns_and_knows_the_best(tmp_path: Path) -> None:
    small = ["data.rows=60000", "data.test_rows=20000", "data.ids=2000", "run.global_batch=1024", "run.torch_threads=1"]
    figures = trained(tmp_path, "demo.toml", *small)
    assert figures["samples"] == 60_000
    assert 0.65 < figures["test_auc"] < figures["best_auc"]


def test_movielens_goes_day_by_day(tmp_path: Path, data_dir: DataDir) -> None:
    ratings = slice_of(data_dir("movielens_100k") / "ml-100k.inter.gz", 20_000, tmp_path / "ml.inter", header=True)
    figures = trained(tmp_path, "movielens.toml", f"data.train={ratings}", "data.split.last=5")
    assert 0.6 < figures["test_auc"] < 0.9
    assert figures["samples"] < 20_000
