"""`hotrow train --load`: a new run from any checkpoint; each difference is told once, what is unused is refused."""

import json
from pathlib import Path

import pytest
import torch

from hotrow.run import Run, load_config
from small_run import CONFIG, write_data
from unit.cli.conftest import Command

NET = """
from torch import nn


class Old(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.first = nn.Linear(2 + shape.numbers, 4)
        self.last = nn.Linear(4, 1)

    def forward(self, x):
        import torch

        return self.last(self.first(torch.cat([x.flat, x.numbers], 1)).relu()).squeeze(1)


class New(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.start = nn.Linear(2 + shape.numbers, 4)
        self.more = nn.Linear(4, 1)

    def forward(self, x):
        import torch

        return self.more(self.start(torch.cat([x.flat, x.numbers], 1)).relu()).squeeze(1)
"""
TWO_TABLES = CONFIG.replace('"item.no"]', '{ column = "item.no", table = "TABLE" }]')
ONE_EPOCH = ("--set", "run.epochs=1")


def config_with(folder: Path, model: str, table: str) -> Path:
    (folder / "net.py").write_text(NET)
    return write_data(folder, TWO_TABLES.replace('"lr"', f'"net.py:{model}"').replace("TABLE", table))


def words(text: str) -> str:
    """With one blank between two of them, however wide a column is."""
    return " ".join(text.split())


@pytest.fixture
def old(hotrow: Command, tmp_path: Path) -> Path:
    """A run with the tables default and goods, the layers first and last, and Adam."""
    done = hotrow("train", config_with(tmp_path, "Old", "goods"), *ONE_EPOCH)
    assert done.exit_code == 0, done.stderr
    return Path("runs/small")


def test_a_new_run_starts_from_a_checkpoint_that_differs(hotrow: Command, old: Path, tmp_path: Path) -> None:
    config = config_with(tmp_path, "New", "items")
    config.write_text(config.read_text().replace('name = "adam"', 'name = "sgd"').replace('"adagrad"', '"adam"'))
    names = ("--map", "goods=items", "--map", "first=start", "--skip", "last")
    done = hotrow("train", config, "--load", old / "checkpoint", *names, *ONE_EPOCH)
    assert done.exit_code == 0, done.stderr
    assert "run runs/small-2, from runs/small/checkpoint (3,000 samples)\n" in done.stderr
    assert "samples 6,000 " in words(done.stdout)
    lines = [
        "table 'goods' of the checkpoint is table 'items' here",
        "table 'items': optimizer.name is 'adagrad' in the checkpoint and 'adam' here: values are taken, optimizer "
        "state starts as in a new row",
        "dense layer 'first' of the checkpoint is 'start' here",
        "dense layer 'last' (bias, weight) of the checkpoint is left out",
        "dense layer 'more' (bias, weight) is not in the checkpoint: it starts fresh",
        "the dense optimizer is Adam in the checkpoint and SGD here: its state starts fresh",
    ]
    events = [json.loads(line) for line in Path("runs/small-2/events.jsonl").read_text().splitlines()]
    for line in lines:
        assert done.stderr.count(f"note: {line}\n") == 1
        assert sum(line in map(str, event.values()) for event in events) == 1
    again = hotrow("train", config, "--resume", "--set", "run.name=small-2", "--set", "run.epochs=2")
    assert again.exit_code == 0, again.stderr
    assert "samples 9,000 " in words(again.stdout)


def test_the_same_model_starts_with_what_was_saved_and_with_the_measured_numbers(old: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("\n".join((tmp_path / "train.csv").read_text().splitlines()[:200]) + "\n")
    config = load_config(tmp_path / "small.toml", ["run.folder=runs"])
    with Run(config, start_from=old) as exact, Run(config, load=old) as loaded:
        assert loaded.config.data == exact.config.data
        assert loaded.trainer.samples == exact.trainer.samples == 3000
        assert loaded.trainer.step == exact.trainer.step
        for one, other in zip(exact.trainer.model.parameters(), loaded.trainer.model.parameters(), strict=True):
            assert torch.equal(one, other)
        assert {name: len(tier) for name, tier in loaded.trainer.tables.tiers.items()} == {"default": 40, "goods": 30}


def test_imported_tables_start_a_run_with_a_fresh_network(hotrow: Command, tmp_path: Path) -> None:
    torch.save({"weight": torch.full((30, 1), 0.5)}, "items.pt")
    assert hotrow("checkpoint", "import", "items.pt", "--table", "goods=weight", "--to", "imported").exit_code == 0
    config = config_with(tmp_path, "Old", "goods")
    done = hotrow("train", config, "--load", "imported", *ONE_EPOCH)
    assert done.exit_code == 0, done.stderr
    assert "note: table 'default' is not in the checkpoint: it starts empty\n" in done.stderr
    assert "note: the checkpoint holds tables alone: the network starts fresh\n" in done.stderr
    assert "rows of table goods 30 " in words(done.stdout)  # no new ones: the keys are those of the run


REFUSED = {
    "unused table": (("--load", "small"), "table 'goods' is not in this run: leave it out with --skip goods, or give"),
    "unused layer": (
        ("--load", "runs/small", "--map", "goods=items"),
        "dense tensor 'first.bias' is not in this model: leave it out with --skip first, or give its name here with",
    ),
    "no checkpoint": (("--load", "nowhere"), "checkpoint nowhere: there is none in it"),
    "unknown name": (("--load", "small", "--skip", "godds"), "--skip godds: checkpoint .* has no table or dense layer"),
    "no pair": (("--load", "small", "--map", "goods"), "--map goods: give the name in the checkpoint and the one here"),
    "mapped twice": (("--load", "small", "--map", "a=b", "--map", "a=c"), "--map a=c: 'a' is mapped to 'b' already"),
    "map alone": (("--map", "goods=items"), "--map: is for the checkpoint that a run starts from: name it with --load"),
    "skip alone": (("--skip", "goods"), "--skip: is for the checkpoint that a run starts from: name it with --load"),
    "resume too": (("--load", "small", "--resume"), "--load small: starts a new run, --resume does not go with it"),
    "from too": (("--load", "small", "--from", "small"), "starts a new run, --load does not go with it: give one of"),
}


def test_what_cannot_be_loaded_is_told_in_a_sentence_and_no_folder_is_left(
    hotrow: Command, old: Path, tmp_path: Path
) -> None:
    config = config_with(tmp_path, "New", "items")
    for options, told in REFUSED.values():
        done = hotrow("train", config, *options)
        assert done.exit_code == 2, options
        text = words(done.stderr)
        assert told.split(".*")[0].strip() in text, text
        assert told.split(".*")[-1].strip() in text, text
    assert [path.name for path in Path("runs").iterdir()] == [old.name]
