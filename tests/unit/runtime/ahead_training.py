"""A small model over two tables, trained in line or a step ahead, and everything that is compared of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import hotrow as hr
from hotrow.data import Batch, FeatureBlock
from hotrow.modes import KStep, Sync
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


@dataclass(frozen=True)
class Shape:
    """What a step is made of."""

    workers: int = 1
    parts: int = 1  # batches a step
    k_step: bool = False
    average: Literal["batch", "present"] = "batch"

    @property
    def samples(self) -> int:
        """Of a batch."""
        return SAMPLES // self.parts

    def mode(self, look_ahead: Any) -> Sync | KStep:
        return KStep(k=3, warmup=0, look_ahead=look_ahead) if self.k_step else Sync(look_ahead=look_ahead)


ONE = Shape()
THREE = Shape(parts=3)
TWO_WORKERS = Shape(workers=2, parts=4)
REPLICAS = Shape(workers=2, parts=2, k_step=True)
SHAPES = {"one batch": ONE, "three batches": THREE, "two workers": TWO_WORKERS, "replicas": REPLICAS}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
several = pytest.mark.parametrize("shape", [THREE, TWO_WORKERS, REPLICAS], ids=[*SHAPES][1:])
STEPS = 10
SWAP = hr.Swap(period=3 * SAMPLES, decay=0.5)
TABLES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": hr.SGD(lr=0.1)},
    "adagrad": {"optimizer": hr.Adagrad(lr=0.1)},
    "rowwise": {"optimizer": hr.RowwiseAdagrad(lr=0.1)},
    "decayed": {"optimizer": hr.DecayedAdagrad(lr=0.1, rate=0.9)},
    "adam": {"optimizer": hr.Adam(lr=0.1)},
    "adam by step": {"optimizer": hr.Adam(lr=0.1, correction="global")},
    "ftrl": {"optimizer": hr.FTRL(lr=0.1)},
    "swap": {"optimizer": hr.Adagrad(lr=0.1, initial=0.5, swap=SWAP)},
    "float16": {"type": "float16"},
    "bfloat16": {"type": "bfloat16"},
    "lru": {"capacity": 150},
    "lfu": {"capacity": 150, "eviction": "lfu"},
    "lru of less than two batches": {"capacity": 90},
    "refuse": {"capacity": 100, "eviction": "refuse"},
    "at least": {"admission": hr.AtLeast(count=3)},
    "chance": {"admission": hr.Chance(probability=0.3)},
    "expiry": {"expiry": 2 * SAMPLES},
    "all": {
        "optimizer": hr.Adam(lr=0.1, swap=SWAP),
        "type": "bfloat16",
        "capacity": 90,
        "eviction": "lfu",
        "admission": hr.AtLeast(count=2),
        "expiry": 4 * SAMPLES,
    },
}


def batches_of(steps: int, seed: int = 0, keys: int = 400, shape: Shape = ONE) -> list[Batch]:
    """Ids of which some come in most batches and others once: one per feature in one table, bags in the other.

    Of several batches a step, the last step has one less; in KStep it has all, or the speed of workers would decide
    which of them trains.
    """
    random = np.random.default_rng(seed)

    def drawn(count: int) -> NDArray[np.int64]:
        return (random.zipf(1.15, count) % keys).astype(np.int64)

    made = []
    count = steps * shape.parts - (shape.parts > 1 and not shape.k_step)
    for number in range(count):
        samples = shape.samples if number < count - 1 else shape.samples // 3
        bounds = np.concatenate([[0], np.cumsum(random.integers(0, 4, 2 * samples))])
        parts = (
            FeatureBlock("ones", "one", ("a", "b"), drawn(2 * samples)),
            FeatureBlock("bags", "bags", ("c", "d"), drawn(int(bounds[-1])), bounds=bounds),
        )
        labels = random.integers(0, 2, (samples, 1)).astype(np.float32)
        made.append(Batch(parts, np.zeros((samples, 0), np.float32), labels=labels))
    return made


def trainer_of(look_ahead: Any, model: Callable[[], nn.Module] = Net, shape: Shape = ONE, **table: Any) -> Trainer:
    torch.manual_seed(0)
    tables = {name: hr.Table(**{"dim": DIM, "init": hr.Normal(std=0.3), **table}) for name in ("ones", "bags")}
    return Trainer(
        model(),
        tables,
        optimizer=lambda p: (hr.KStepAdam if shape.k_step else torch.optim.Adam)(p, lr=0.01),
        mode=shape.mode(look_ahead),
        global_batch=SAMPLES,
        local_batch=shape.samples,
        workers=shape.workers,
        embedding_average=shape.average,
        threads=2,
        report_every_s=0,
        not_finite="continue",
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


def run(look_ahead: Any, batches: list[Batch], shape: Shape = ONE, **table: Any) -> Outcome:
    """One fit, closed."""
    trainer = trainer_of(look_ahead, shape=shape, **table)
    try:
        reports = list(trainer.fit(batches))
        assert isinstance(reports[-1], TrainingEnded)
        return outcome_of(trainer, reports)
    finally:
        trainer.close()
