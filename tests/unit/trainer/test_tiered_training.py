"""Training with rows on disk is training in memory: the same losses, and checkpoints that fit either table."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.data import ArrowSource, Schema
from hotrow.modes import Mode
from hotrow.nn.inputs import Inputs
from hotrow.store.tiered import TieredTier
from hotrow.trainer import Progress, Trainer

SAMPLES, IDS, CAPACITY = 2048, 3000, 700


def source() -> ArrowSource:
    draw = np.random.default_rng(3)
    users, items = draw.zipf(1.2, SAMPLES) % IDS, draw.integers(0, IDS, SAMPLES) + IDS
    clicked = (users + items) % 3 == 0
    return ArrowSource(
        pa.table({"y": clicked * 1, "user": users, "item": items}), Schema(label="y", ids=["user", "item"])
    )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.last(x.flat).squeeze(1)
        return odds


def made(mode: Mode, folder: Path | None, workers: int = 1) -> Trainer:
    disk = {} if folder is None else {"capacity": CAPACITY, "disk": "8MB", "path": folder}
    table = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.2), **disk)
    return Trainer(
        Net(),
        table,
        optimizer=lambda p: torch.optim.Adam(p, lr=0.01),
        mode=mode,
        workers=workers,
        global_batch=64,
        threads=1,
        report_every_s=0,
    )


def losses(trainer: Trainer) -> Iterator[float]:
    for report in trainer.fit(source()):
        if isinstance(report, Progress):
            yield report.loss


def rows_of(trainer: Trainer) -> dict[int, bytes]:
    (tier,) = trainer.tables.tiers.values()
    return {key: chunk.values[at].tobytes() for chunk in tier.export() for at, key in enumerate(chunk.keys.tolist())}


@pytest.mark.parametrize("look_ahead", [0, 1])
def test_losses_and_rows_have_the_bits_of_training_in_memory(look_ahead: int, tmp_path: Path) -> None:
    mode = hr.Sync(look_ahead=look_ahead)
    with closing(made(mode, tmp_path)) as tiered, closing(made(mode, None)) as memory:
        assert list(losses(tiered)) == list(losses(memory))
        assert rows_of(tiered) == rows_of(memory)
        (tier,) = tiered.tables.tiers.values()
        assert isinstance(tier, TieredTier)
        assert tier.stats().disk_rows > 1000
        assert tier.moved_ahead > 0


@pytest.mark.parametrize("mode", [hr.Async(), hr.GBA(), hr.Hybrid()], ids=lambda mode: mode.name)
def test_threads_that_move_rows_at_the_same_time_train_every_sample(mode: Mode, tmp_path: Path) -> None:
    with closing(made(mode, tmp_path, workers=4)) as tiered:
        assert all(map(np.isfinite, losses(tiered)))
        assert tiered.samples == SAMPLES
        (tier,) = tiered.tables.tiers.values()
        data = source()
        ids = {hr_id for batch in data.read() for name in ("user", "item") for hr_id in batch[name].to_pylist()}
        assert len(tier) == len(ids)
        assert isinstance(tier, TieredTier)
        assert tier.verify() == []


def test_a_checkpoint_fits_a_table_with_and_without_a_disk(tmp_path: Path) -> None:
    mode = hr.Sync(look_ahead=0)
    (tmp_path / "disk").mkdir()
    with closing(made(mode, tmp_path / "disk")) as tiered:
        list(losses(tiered))
        tiered.save(tmp_path / "one")
        rows = rows_of(tiered)
        with closing(made(mode, None)) as memory:
            memory.load(tmp_path / "one")
            assert rows_of(memory) == rows
            memory.save(tmp_path / "two")
        tiered.load(tmp_path / "two")
        assert rows_of(tiered) == rows


def test_deltas_of_a_table_on_disk_are_a_full_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with (
        closing(made(hr.Sync(look_ahead=0), tmp_path / "disk")) as tiered,
        closing(made(hr.Sync(look_ahead=0), None)) as memory,
    ):
        for number in range(3):
            list(losses(tiered))
            tiered.save(tmp_path / "chain", delta=number > 0)
        memory.load(tmp_path / "chain")
        assert rows_of(memory) == rows_of(tiered)
