"""A small data set with a planted truth, a config for it, and a run that is trained on it in a second."""

import csv
import socket
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotrow.run import Run, load_config

USERS, ITEMS = 40, 30
NAMES = ("clicked?", "user id", "item.no", "price in €")
CONFIG = """
[data]
train = "train.csv"
test = "test.csv"
label = "clicked?"
ids = ["user id", "item.no"]
numbers = [{ column = "price in €", transform = "standard" }]

[model]
name = "lr"

[tables.default]
dim = 1
optimizer = { name = "adagrad", lr = 0.3 }

[dense]
optimizer = { name = "adam", lr = 0.02 }

[run]
global_batch = 128
epochs = 2
autocast = "off"
threads = 1
tensorboard = false
"""


def clicks(rows: int, seed: int) -> tuple[list[list[str]], NDArray[np.float64]]:
    """Rows as texts, and the log-odds that their labels were drawn from."""
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(7)
    of_user, of_item = truth.normal(0, 1.5, USERS), truth.normal(0, 1.5, ITEMS)
    users, items, prices = rng.integers(0, USERS, rows), rng.integers(0, ITEMS, rows), rng.lognormal(size=rows)
    odds = of_user[users] + of_item[items] - 0.5 * prices
    clicked = rng.random(rows) < 1 / (1 + np.exp(-odds))
    columns = zip(clicked * 1, users, items, prices, strict=True)
    return [[str(y), f"ü{user}", str(item), f"{price:.3f}"] for y, user, item, price in columns], odds


def write_csv(path: Path, rows: list[list[str]], *, labels: bool = True) -> Path:
    first = 0 if labels else 1
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([NAMES[first:], *(row[first:] for row in rows)])
    return path


def write_data(folder: Path, config: str = CONFIG) -> Path:
    """Files and a config; returns the config's path."""
    write_csv(folder / "train.csv", clicks(3000, seed=1)[0])
    write_csv(folder / "test.csv", clicks(1000, seed=2)[0])
    path = folder / "small.toml"
    path.write_text(config, encoding="utf-8")
    return path


def trained(config: Path, *changes: str) -> Path:
    """The folder of a run over it, beside the config."""
    with Run(load_config(config, (f"run.folder={config.parent / 'runs'}", *changes))) as run:
        for _ in run:
            pass
    return run.folder


def free_port() -> int:
    """A port of this machine that the system picks."""
    with socket.socket() as picked:
        picked.bind(("127.0.0.1", 0))
        return int(picked.getsockname()[1])
