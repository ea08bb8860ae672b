"""A small model over two tables, trained in line or a step ahead, and everything that is compared of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import hotrow as hr
from hotrow.data import Batch, FeatureBlock
from hotrow.modes import Sync
from hotrow.nn.inputs import Inputs
from hotrow.trainer import Progress, Report, Trainer, TrainingEnded

SAMPLES = 48
DIM = 4
COUNTS = ("rows", "created", "evicted", "expired", "turned_away", "saturated", "refused", "absent", "unadmitted")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.layers(x.flat).squeeze(1)
        return odds


def batches_of(steps: int, seed: int = 0, keys: int = 400) -> list[Batch]:
    """Ids of which some come in most batches and others once: one per feature in one table, bags in the other."""
    random = np.random.default_rng(seed)

    def drawn(count: int) -> NDArray[np.int64]:
        return (random.zipf(1.15, count) % keys).astype(np.int64)

    made = []
    for step in range(steps):
        samples = SAMPLES if step < steps - 1 else SAMPLES // 3
        bounds = np.concatenate([[0], np.cumsum(random.integers(0, 4, 2 * samples))])
        parts = (
            FeatureBlock("ones", "one", ("a", "b"), drawn(2 * samples)),
            FeatureBlock("bags", "bags", ("c", "d"), drawn(int(bounds[-1])), bounds=bounds),
        )
        labels = random.integers(0, 2, (samples, 1)).astype(np.float32)
        made.append(Batch(parts, np.zeros((samples, 0), np.float32), labels=labels))
    return made


def trainer_of(look_ahead: Any, model: Callable[[], nn.Module] = Net, **table: Any) -> Trainer:
    torch.manual_seed(0)
    tables = {name: hr.Table(**{"dim": DIM, "init": hr.Normal(std=0.3), **table}) for name in ("ones", "bags")}
    return Trainer(
        model(),
        tables,
        optimizer=lambda p: torch.optim.Adam(p, lr=0.01),
        mode=Sync(look_ahead=look_ahead),
        global_batch=SAMPLES,
        threads=2,
        report_every_s=0,
    )


@dataclass
class Outcome:
    """Of a run."""

    losses: list[float]
    arrays: dict[str, NDArray[Any]]  # rows with all their fields, counts, dense parameters

    def differs(self, other: "Outcome") -> str | None:
        """The first difference, in bits; None: there is none."""
        if self.losses != other.losses:
            return "losses"
        for name, mine in self.arrays.items():
            if not np.array_equal(mine, other.arrays[name], equal_nan=True):
                return name
        return None


def outcome_of(trainer: Trainer, reports: Iterable[Report]) -> Outcome:
    losses = [report.loss for report in reports if isinstance(report, Progress)]
    return Outcome(losses, arrays_of(trainer))


def arrays_of(trainer: Trainer) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, tier in trainer.tables.tiers.items():
        assert isinstance(tier, hr.store.RamTier)
        chunks = list(tier.export())
        keys = np.concatenate([chunk.keys for chunk in chunks])
        order = np.argsort(keys)
        columns = {"keys": keys}
        columns |= {each: np.concatenate([getattr(chunk, each) for chunk in chunks]) for each in ("values", "state")}
        columns |= {each: np.concatenate([chunk.fields[each] for chunk in chunks]) for each in tier.fields}
        found |= {f"{name}.{each}": column[order] for each, column in columns.items()}
        stats = tier.stats()
        found[f"{name} counts"] = np.array([getattr(stats, each) for each in COUNTS])
        if tier.table.policy in ("lru", "lfu"):
            sequence = [tier.eviction_order(partition) for partition in range(tier.partitions)]
            found[f"{name} eviction order"] = np.concatenate(sequence)
    for name, parameter in trainer.model.named_parameters():
        found[name] = parameter.detach().numpy().copy()
    return found


def run(look_ahead: Any, batches: list[Batch], **table: Any) -> Outcome:
    """One fit, closed."""
    trainer = trainer_of(look_ahead, **table)
    try:
        reports = list(trainer.fit(batches))
        assert isinstance(reports[-1], TrainingEnded)
        return outcome_of(trainer, reports)
    finally:
        trainer.close()
