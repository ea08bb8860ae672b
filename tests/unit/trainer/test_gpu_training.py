"""Training with rows in GPU memory is training in memory: the same losses in every mode, the same checkpoints."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.cli.report_lines import ending
from hotrow.client.gpu_tables import GpuTables
from hotrow.data import ArrowSource, Schema
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.nn.inputs import Inputs
from hotrow.runtime.device import Device
from hotrow.trainer import Progress, Remark, Trainer, TrainingEnded

ROWS = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DEVICE = Device(str(ROWS), ROWS, 10**9)  # without a GPU: Triton's interpreter, with tensors in host memory
IDS, SAMPLES = 500, 16  # six batches have more ids than a bucket of 128 rows

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
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Runs of the next trainers have a GPU."""
    monkeypatch.setattr("hotrow.runtime.open_backend.device_of", lambda _: DEVICE)
    return monkeypatch


def made(mode: Mode | None = None, hbm: int | str = 128, **settings: Any) -> Trainer:
    """A trainer whose table gets one bucket of GPU memory, unless hbm says otherwise."""
    table = hr.Table(**{"dim": 4, "optimizer": hr.Adagrad(lr=0.2), "hbm": hbm} | settings.pop("table", {}))
    step = SAMPLES * settings.get("workers", 1)
    given: dict[str, Any] = {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01), "global_batch": step} | settings
    return Trainer(Net(), table, mode=mode, threads=1, report_every_s=0, **given)


def losses(trainer: Trainer, count: int = 6, seed: int = 3) -> list[float]:
    return [each.loss for each in trainer.fit(batches(count, seed)) if isinstance(each, Progress)]


def rows_of(trainer: Trainer) -> Any:
    tier: Any = trainer.tables.tiers["default"]
    return tier.whole_rows(np.arange(IDS))


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
        assert ours.tables.working["default"].upper.stats().evicted > 0, "the table fits: nothing was tested"
        gpu.undo()
        with closing(made(mode, hbm=0, workers=workers)) as theirs:
            np.testing.assert_allclose(found, losses(theirs), atol=1e-5)
            check_same(ours, theirs)
            assert next(iter(ours.predict(batches(1, 9)))) == pytest.approx(
                next(iter(theirs.predict(batches(1, 9)))), abs=1e-5
            )


def test_k_step_trains_copies_of_the_network_there(gpu: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"workers": 2, "optimizer": lambda p: hr.KStepAdam(p, lr=0.01)}
    mode = hr.KStep(k=2, warmup=0)
    with closing(made(mode, **settings)) as ours:
        found = losses(ours, 8)
        gpu.undo()
        with closing(made(mode, hbm=0, **settings)) as theirs:
            np.testing.assert_allclose(found, losses(theirs, 8), atol=1e-5)
            check_same(ours, theirs)


def test_workers_of_their_own_pace_lose_no_gradient_while_rows_move(gpu: pytest.MonkeyPatch) -> None:
    """Each row's version counts its updates: as many as batches have its id."""
    data = batches(12)
    with closing(made(hr.Async(), workers=3, table={"optimizer": hr.SGD(lr=0.1)})) as ours:
        list(ours.fit([batch.slice(start, start + 8) for batch in data for start in (0, 8)]))
        assert isinstance(ours.tables, GpuTables)
        assert ours.tables.working["default"].upper.stats().evicted > 0, "the table fits: nothing was tested"
        versions = rows_of(ours).fields["version"].astype(np.int64)
    expected = np.zeros(IDS, np.int64)
    for batch in data:
        for start in (0, 8):
            expected[np.unique(batch.parts[0].keys[2 * start : 2 * start + 16])] += 1
    assert (versions == np.where(expected > 0, expected + 1, 0)).all()


def test_a_checkpoint_goes_on_in_memory_and_back_in_gpu_memory(gpu: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with closing(made()) as ours:
        losses(ours, 4)
        ours.save(tmp_path)
        after = losses(ours, 3, seed=8)
        losses(ours, 2, seed=9)
        ours.load(tmp_path)  # over rows that GPU memory has
        np.testing.assert_allclose(losses(ours, 3, seed=8), after, atol=1e-6)
    gpu.undo()
    with closing(made(hbm=0)) as theirs:
        theirs.load(tmp_path)
        np.testing.assert_allclose(losses(theirs, 3, seed=8), after, atol=1e-5)
        theirs.save(tmp_path)
        further = losses(theirs, 3, seed=10)
    gpu.setattr("hotrow.runtime.open_backend.device_of", lambda _: DEVICE)
    with closing(made()) as ours:
        ours.load(tmp_path)
        np.testing.assert_allclose(losses(ours, 3, seed=10), further, atol=1e-5)


def test_a_checkpoint_of_changes_has_what_changed_in_gpu_memory(gpu: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with closing(made()) as ours:
        losses(ours, 2)
        ours.save(tmp_path, keep=2, delta=True)
        losses(ours, 2, seed=8)
        reports = ours.fit(batches(6, 9))
        for report in reports:
            if isinstance(report, Progress):
                break
        ours.save_in_background(tmp_path, keep=2, delta=True)
        list(reports)  # rows change and move while it is written
        ours.finish_saving()
    gpu.undo()
    with closing(made(hbm=0)) as theirs, closing(made(hbm=0)) as again:
        losses(theirs, 2)
        losses(theirs, 2, seed=8)
        next(each for each in theirs.fit(batches(6, 9)) if isinstance(each, Progress))
        again.load(tmp_path)
        assert again.step == theirs.step == 5
        check_same(again, theirs)


def test_a_failed_load_leaves_the_rows(gpu: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with closing(made()) as ours:
        losses(ours, 3)
        before = rows_of(ours)
        with pytest.raises(InputError):
            ours.load(tmp_path / "none")
        losses(ours, 1, seed=4)
        assert (rows_of(ours).fields["version"] >= before.fields["version"]).all()


def test_look_ahead_is_off_and_refused_where_rows_are_in_gpu_memory(gpu: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="look_ahead=1: rows of table 'default' are in GPU memory"):
        made(hr.Sync(look_ahead=1))
    with closing(made(hr.Sync(look_ahead=1), hbm=0)) as in_memory:
        assert not isinstance(in_memory.tables, GpuTables)


def test_reports_say_where_rows_are_and_why_others_are_not(gpu: pytest.MonkeyPatch) -> None:
    def remarks(**settings: Any) -> list[str]:
        with closing(made(**settings)) as ours:
            return [each.sentence for each in ours.fit(batches(1)) if isinstance(each, Remark)]

    assert f"table 'default': {ROWS} has room for 128 rows" in remarks()
    (stays,) = [each for each in remarks(hbm="auto", table={"capacity": 500}) if "default" in each]
    assert stays.startswith("table 'default' stays in host memory: capacity=500 would evict rows")
    gpu.undo()
    assert "hbm of table 'default' has no effect: the rows of this run are in host memory" in remarks()


def test_a_fit_that_ended_before_its_data_leaves_nothing_to_the_next_one(gpu: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(2)
    columns = {"clicked": chance.integers(0, 2, 30 * SAMPLES), "user": chance.integers(0, IDS, 30 * SAMPLES)}
    source = ArrowSource(pa.table(columns), Schema(label="clicked", ids=["user"]))
    model = hr.models.build("lr", hr.InputShape(numbers=0, fields={"user": 1}))
    for progressive in (False, True):
        with closing(hr.Trainer(model, hr.Table(dim=1, hbm=128), global_batch=SAMPLES, threads=1)) as ours:
            list(ours.fit(source))  # makes the rows below
            assert isinstance(ours.tables, GpuTables)
            moved = ours.tables.working["default"].moved
            list(ours.fit(source, most_samples=ours.samples + 10 * SAMPLES, progressive=progressive))
            moved.up = moved.up_ahead = moved.reread = 0
            list(ours.fit(source, progressive=progressive))
            assert moved.reread <= 1  # what was on its way when the second one ended
            assert 0 < moved.up_ahead <= moved.up  # all of them where readers are not starved


def test_the_end_of_a_run_counts_hits_and_moves(gpu: pytest.MonkeyPatch) -> None:
    with closing(made()) as ours:
        *_, end = ours.fit(batches(8))
    assert isinstance(end, TrainingEnded)
    assert end.counts["gpu_capacity.default"] == 128
    assert end.counts["gpu_down.default"] > 0
    assert end.counts["gpu_hits.default"] + end.counts["gpu_up.default"] == sum(
        len(np.unique(batch.parts[0].keys)) for batch in batches(8)
    )


def test_the_end_of_each_run_tells_what_gpu_memory_has_and_what_moved_in_it(gpu: pytest.MonkeyPatch) -> None:
    """All rows find room, so they go down at the end of each run alone."""
    data = batches(8)
    distinct = len(np.unique(np.concatenate([batch.parts[0].keys for batch in data])))
    with closing(made(hbm=1024)) as ours:
        *_, first = ours.fit(data)
        *_, second = ours.fit(data)
    assert isinstance(first, TrainingEnded)
    assert isinstance(second, TrainingEnded)
    held = {"gpu_rows.default": distinct, "gpu_capacity.default": 1024, "gpu_down.default": distinct}
    assert {name: first.counts[name] for name in held} == held
    assert {name: second.counts.get(name) for name in held} == held
    assert "gpu_up.default" not in second.counts
    (line,) = [line for line in ending(second) if line.startswith("GPU memory")]
    assert f"{distinct} of 1,024 rows, 100.0% of lookups were hits, 0 rows came up, {distinct} went down" in line
