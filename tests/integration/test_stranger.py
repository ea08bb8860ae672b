"""The path of somebody who comes with a file of his own, in real processes: new, edit, describe, train, stop, go on,
evaluate, predict."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotrow.metrics import auc

NAMES = ["Geklickt? (ja/nein)", "Nutzer.ID", 'Artikel "Nr."', "Preis in €, brutto", "was; sonst"]
ROWS, NEW_ROWS = 6000, 1500
WAIT_S = 120


def hotrow(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from hotrow.cli import main; main()", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes)  # type: ignore[call-overload, no-any-return]


def done(folder: Path, *arguments: str) -> str:
    """What a command says; it must go well."""
    process = hotrow(folder, *arguments)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    return out


def write_clicks(path: Path, rows: int, seed: int, *, labels: bool) -> NDArray[np.bool_]:
    """A file with odd names; who clicks depends on user, item and price. Returns who clicked."""
    rng, truth = np.random.default_rng(seed), np.random.default_rng(3)
    of_user, of_item = truth.normal(0, 1.5, 60), truth.normal(0, 1.5, 50)
    users, items, prices = rng.integers(0, 60, rows), rng.integers(0, 50, rows), rng.lognormal(size=rows)
    clicked: NDArray[np.bool_] = rng.random(rows) < 1 / (1 + np.exp(prices - of_user[users] - of_item[items]))
    columns = [clicked * 1, [f"Müller, {user}" for user in users], items, prices.round(2), ["-"] * rows]
    first = 0 if labels else 1
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES[first:], *zip(*columns[first:], strict=True)])
    return clicked


def edit(config: Path) -> None:
    """What a person changes in the starter."""
    text = config.read_text()
    for before, after in (
        ('"clicks.csv"', '"../Klicks März.csv"'),
        ('label = "clicked"', 'label = "Geklickt? (ja/nein)"'),
        ('ids = ["user", "item"]', """ids = ["Nutzer.ID", 'Artikel "Nr."']"""),
        ('column = "price"', 'column = "Preis in €, brutto"'),
        ("global_batch = 1024", "global_batch = 128"),
        ("epochs = 10 ", "epochs = 1_000_000 "),
        ("early_stopping =", "# early_stopping ="),
    ):
        assert before in text
        text = text.replace(before, after)
    config.write_text(text)


def interrupted(folder: Path, *arguments: str) -> tuple[int, str]:
    """A training run that gets a Ctrl-C once it has told its first progress."""
    process = hotrow(folder, *arguments)
    events, end = folder / "runs/mine/events.jsonl", time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < end:
        if events.exists() and '"progress"' in events.read_text():
            process.send_signal(signal.SIGINT)
            break
        time.sleep(0.02)
    _, err = process.communicate(timeout=WAIT_S)
    return process.returncode, err


def test_somebody_with_a_file_of_his_own_gets_predictions(tmp_path: Path) -> None:
    write_clicks(tmp_path / "Klicks März.csv", ROWS, seed=1, labels=True)
    assert done(tmp_path, "new", "mine").startswith("mine/train.toml\n")
    edit(tmp_path / "mine/train.toml")

    described = done(tmp_path, "data", "describe", "mine/train.toml")
    assert "Nutzer.ID" in described
    assert 'Artikel "Nr."' in described

    code, told = interrupted(tmp_path, "train", "mine/train.toml", "--json", "cut.json")
    assert code == 130, told
    cut = json.loads((tmp_path / "cut.json").read_text())
    assert "resume with: hotrow train mine/train.toml --resume" in told
    assert (cut["stopped"], cut["test_auc"]) == ("interrupted", None)

    with_rest = trained_rows(described) * (epochs := cut["samples"] // trained_rows(described) + 6)
    out = done(tmp_path, "train", "mine/train.toml", "--resume", "--set", f"run.epochs={epochs}", "--json", "all.json")
    figures = json.loads((tmp_path / "all.json").read_text())
    assert figures["samples"] == with_rest  # not one batch twice, not one left out
    assert out.splitlines()[-1] == "runs/mine/report.html"
    assert trained_in_all(tmp_path / "runs/mine/events.jsonl") == with_rest

    evaluated = done(tmp_path, "evaluate", "--json", "evaluated.json")
    assert evaluated.split()[:2] == ["AUC", f"{figures['test_auc']:.4f}"]

    clicked = write_clicks(tmp_path / "neu.csv", NEW_ROWS, seed=2, labels=False)
    assert done(tmp_path, "predict", "neu.csv", "out.csv") == f"{NEW_ROWS:,} predictions in out.csv\n"
    with (tmp_path / "out.csv").open() as file:
        header, *found = csv.reader(file)
    assert header == ["row", "probability"]
    assert [int(row) for row, _ in found] == list(range(NEW_ROWS))
    chances = np.array([float(chance) for _, chance in found])
    assert (auc(clicked, chances) or 0) > 0.8
    assert (auc(clicked, np.roll(chances, 1)) or 1) < 0.6  # in another order they say nothing


def trained_rows(described: str) -> int:
    """Rows of an epoch, as `describe` says."""
    return int(described.split()[1].replace(",", ""))


def trained_in_all(events: Path) -> int:
    """Samples by the log of the run: the last progress before the stop, and the ones of the rest."""
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [event["resumed"] for event in told if event["kind"] == "start"] == [False, True]
    return int(max(event["samples"] for event in told if event["kind"] == "progress"))
