"""A small model trained by threads in any mode, and what is compared of it."""

import threading
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.optim import KStepAdam
from hotrow.staleness import Inverse, Staleness
from hotrow.trainer import Progress, Report, Trainer
from unit.trainer.conftest import Net

EVERY = [
    Sync(),
    Async(),
    Async(staleness=Staleness(decay=Inverse(), by="version")),
    BulkSync(bulk=3),
    BoundedStaleness(bound=1),
    BackupWorkers(backups=1),
    GBA(tolerance=2),
    Hybrid(max_in_flight=1),
    Hybrid(max_in_flight=3),
    KStep(k=3, warmup=0),
]
every_mode = pytest.mark.parametrize("mode", EVERY, ids=lambda mode: str(mode.name))


DENSE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
    "adam": lambda p: torch.optim.Adam(p, lr=0.005),
    "k_step": lambda p: KStepAdam(p, lr=0.005),
}
ROWS = {"sgd": hr.SGD(lr=0.05), "adagrad": hr.Adagrad(lr=0.02), "adam": hr.Adam(lr=0.005), "k_step": hr.Adagrad()}


def trainer_of(
    mode: Mode, workers: int = 1, optimizer: str = "adam", model: type[Net] = Net, **settings: object
) -> Trainer:
    torch.manual_seed(0)
    optimizer = "k_step" if mode.name == "k_step" else optimizer
    table = hr.Table(dim=4, optimizer=ROWS[optimizer], init=hr.Normal(std=0.1), seed=3)
    given = {"global_batch": 64, "threads": 1, "report_every_s": 0, **settings}
    return Trainer(model(), table, optimizer=DENSE[optimizer], mode=mode, workers=workers, **given)  # type: ignore[arg-type]


def losses(reports: Iterable[Report]) -> list[float]:
    return [report.loss for report in reports if isinstance(report, Progress)]


def weights(trainer: Trainer) -> list[np.ndarray]:
    (chunk,) = trainer.tables.tiers["default"].export()
    rows = np.hstack([chunk.values, chunk.state])[np.argsort(chunk.keys)]
    return [*(each.detach().numpy().copy() for each in trainer.model.parameters()), rows]


def largest_difference(left: Trainer, right: Trainer) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(weights(left), weights(right), strict=True))


def threads_of_workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("worker-")]
