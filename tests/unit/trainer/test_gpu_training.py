"""Training with rows in GPU memory is training in memory: the same losses in every mode, the same checkpoints."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.client.gpu_tables import GpuTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.modes import Mode
from hotrow.nn.inputs import Inputs
from hotrow.runtime.device import Device
from hotrow.trainer import Progress, Trainer

ROWS = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DEVICE = Device(str(ROWS), ROWS, 10**9)  # without a GPU: Triton's interpreter, with tensors in host memory
IDS, SAMPLES = 200, 16

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.layers(x.flat).squeeze(1)
        return odds


def batches(count: int, seed: int = 3) -> list[Batch]:
    """The label depends on the ids."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        ids = rng.integers(0, IDS, (SAMPLES, 2))
        part = FeatureBlock("default", "one", ("user", "item"), ids.reshape(-1))
        labels = (ids.sum(1, keepdims=True) % 3 == 0).astype(np.float32)
        made.append(Batch((part,), np.zeros((SAMPLES, 0), np.float32), labels))
    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Runs of the next trainers have a GPU."""
    monkeypatch.setattr("hotrow.runtime.open_backend.device_of", lambda _: DEVICE)
    return monkeypatch


def made(mode: Mode | None = None, hbm: int | str = 128, **settings: Any) -> Trainer:
    """The table has more ids than one bucket of 128 rows."""
    table = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.2), hbm=hbm, **settings.pop("table", {}))
    step = SAMPLES * settings.get("workers", 1)
    given: dict[str, Any] = {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01), "global_batch": step} | settings
    return Trainer(Net(), table, mode=mode, threads=1, report_every_s=0, **given)


def losses(trainer: Trainer, count: int = 10, seed: int = 3) -> list[float]:
    return [each.loss for each in trainer.fit(batches(count, seed)) if isinstance(each, Progress)]


def rows_of(trainer: Trainer) -> Any:
    return trainer.tables.tiers["default"].whole_rows(np.arange(IDS))


def check_same(ours: Trainer, theirs: Trainer) -> None:
    mine, other = rows_of(ours), rows_of(theirs)
    np.testing.assert_allclose(mine.values, other.values, atol=1e-5)
    np.testing.assert_allclose(mine.state, other.state, atol=1e-5)
    for name, column in other.fields.items():
        assert (mine.fields[name] == column).all(), name
    for (name, tensor), expected in zip(
        ours.model.state_dict().items(), theirs.model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(tensor.cpu(), expected, atol=1e-5, rtol=1e-4, msg=name)


MODES = [
    (hr.Sync(), 1),
    (hr.Sync(), 2),
    (hr.GBA(tolerance=1), 1),
    (hr.Hybrid(), 1),
    (hr.Async(), 1),
]


@pytest.mark.parametrize(("mode", "workers"), MODES, ids=lambda each: getattr(each, "name", str(each)))
def test_losses_and_rows_equal_those_of_a_run_in_memory(gpu: pytest.MonkeyPatch, mode: Mode, workers: int) -> None:
    with closing(made(mode, workers=workers)) as ours:
        found = losses(ours)
        assert isinstance(ours.tables, GpuTables)
        assert ours.tables.working["default"].moved.down > 0, "the table fits: nothing was tested"
        gpu.undo()
        with closing(made(mode, hbm=0, workers=workers)) as theirs:
            np.testing.assert_allclose(found, losses(theirs), atol=1e-5)
            check_same(ours, theirs)
            assert next(iter(ours.predict(batches(1, 9)))) == pytest.approx(
                next(iter(theirs.predict(batches(1, 9)))), abs=1e-5
            )
