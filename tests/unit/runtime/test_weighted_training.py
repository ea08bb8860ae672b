"""Sample weights through whole runs: the global batch stays what it is, in threads and on a cluster."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader
from hotrow.data.schema import Schema
from hotrow.modes import Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.store import RamTier
from unit.runtime.cluster_threads import SAMPLES, batches, cluster
from unit.runtime.small_training import every_mode, largest_difference, losses, trainer_of
from unit.trainer.conftest import Made, Net

WEIGHTED = Schema(label="y", numbers=["n"], ids=["a", "b"], weight="w")


def made(rows: int, *, repeated: bool = False) -> Made:
    """Rows with weights of 0 to 3; or each row as often as it weighs, without weights."""
    source = Made(rows, schema=WEIGHTED)
    weights = np.random.default_rng(5).integers(0, 4, rows)
    if repeated:
        source.table = source.table.take(pa.array(np.repeat(np.arange(rows), weights)))
        source.schema = Schema(label="y", numbers=["n"], ids=["a", "b"])
    else:
        source.table = source.table.append_column("w", pa.array(weights))
    return source


@pytest.mark.parametrize("workers", [2, 4])
def test_sync_with_weights_and_many_workers_is_one_with_the_whole_batch(workers: int) -> None:
    rows = 64 * 20 - 23
    one, many = trainer_of(Sync(), 1, "sgd"), trainer_of(Sync(), workers, "sgd")
    np.testing.assert_allclose(losses(many.fit(made(rows))), losses(one.fit(made(rows))), atol=1e-5)
    assert largest_difference(one, many) < 1e-5
    unweighted = trainer_of(Sync(), 1, "sgd")
    list(unweighted.fit(Made(rows)))
    assert largest_difference(one, unweighted) > 1e-3


def test_integer_weights_are_repeated_rows_but_for_the_mean_weight_in_the_learning_rate() -> None:
    """One step of SGD: sum(w l) / n with lr is sum(w l) / sum(w) with lr * sum(w) / n."""
    rows = 64
    weighted, repeated = made(rows), made(rows, repeated=True)
    scale = repeated.rows() / rows

    def after_a_step(source: Made, lr: float, size: int) -> hr.Trainer:
        torch.manual_seed(0)
        table = hr.Table(dim=4, optimizer=hr.SGD(lr=lr), init=hr.Normal(std=0.1), seed=3)
        trainer = hr.Trainer(Net(), table, optimizer=lambda p: torch.optim.SGD(p, lr=lr), global_batch=size, threads=1)
        list(trainer.fit(source))
        assert trainer.step == 1
        return trainer

    one = after_a_step(weighted, 0.1, rows)
    other = after_a_step(repeated, 0.1 * scale, repeated.rows())
    for left, right in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
    seen = np.unique(repeated.table["a"].to_numpy())
    assert len(seen) > 10
    keys = [key for _, batch in Loader(repeated, 1000) for key in batch.parts[0].keys.tolist()]
    left_rows, right_rows = (np.empty((len(keys), 4), np.float32) for _ in range(2))
    for trainer, out in ((one, left_rows), (other, right_rows)):
        tier = trainer.tables.tiers["default"]
        assert isinstance(tier, RamTier)
        tier.find(np.array(keys), out)
        trainer.close()
    np.testing.assert_allclose(left_rows, right_rows, rtol=1e-4, atol=1e-6)


@every_mode
def test_every_mode_trains_on_weighted_samples(mode: Mode) -> None:
    trainer = trainer_of(mode, 2)
    list(trainer.fit(made(640)))
    assert trainer.samples > 0
    found = trainer.evaluate(made(640))
    assert found.metrics["auc"] is not None
    trainer.close()


def test_an_evaluation_of_repeated_rows_is_that_of_their_weights() -> None:
    trainer = trainer_of(Sync(), 1)
    list(trainer.fit(Made(640)))
    weighted, repeated = trainer.evaluate(made(500)), trainer.evaluate(made(500, repeated=True))
    assert weighted.rows == 500
    for name, value in repeated.metrics.items():
        assert weighted.metrics[name] == pytest.approx(value, abs=1e-6), name


class Plain(Net):
    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(output[:, None], labels)


def test_a_loss_without_weights_is_not_given_weighted_samples() -> None:
    trainer = trainer_of(Sync(), 1, model=Plain)
    with pytest.raises(hr.InputError, match=r"data.weight: the loss of Plain takes no weights: give it a third param"):
        list(trainer.fit(made(640)))
    assert trainer.samples == 0
    list(trainer.fit(Made(640)))
    trainer.close()


def weighted_batches(count: int, factor: float) -> Iterator[tuple[Lease, Batch]]:
    chance = np.random.default_rng(9)
    for lease, batch in batches(count):
        weights = chance.integers(0, 4, len(batch))
        yield lease, replace(batch, weights=(factor * weights).astype(np.float32))


def on_a_cluster(leases: Iterator[tuple[Lease, Batch]], mode: Mode, trainers: int) -> list[float]:
    """Losses of the steps."""
    state = RunState()
    with cluster(state, trainers, 0) as there:
        engine = TrainingLoop(there.site, state, mode=mode, facts=RunFacts(trainers, SAMPLES, 2 * SAMPLES))
        pool = LeaseQueue(leases)
        pool.open_epoch()
        steps = engine.steps(pool, 0)
        found = [float(sum(each.loss * SAMPLES for each in step.batches) / step.samples) for step in steps]
        engine.rest()
        engine.close()
    return found


@pytest.mark.parametrize(("mode", "trainers"), [(Sync(), 1), (hr.GBA(), 2)], ids=["sync", "gba"])
def test_weights_travel_to_the_trainers_of_a_cluster(mode: Mode, trainers: int) -> None:
    first = on_a_cluster(weighted_batches(2, 1.0), mode, trainers)[0]
    doubled = on_a_cluster(weighted_batches(2, 2.0), mode, trainers)[0]
    plain = on_a_cluster(batches(2), mode, trainers)[0]
    assert doubled == pytest.approx(2 * first, rel=1e-5)
    assert abs(first - plain) > 0.05
    assert on_a_cluster(weighted_batches(2, 0.0), mode, trainers) == [0.0]
