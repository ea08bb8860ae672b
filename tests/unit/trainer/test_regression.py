"""Numbers as labels: what is learnt, how it is judged, and what is predicted."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from torch import Tensor

import hotrow as hr
from hotrow.data.loader import Loader
from hotrow.data.schema import Schema
from hotrow.trainer import EarlyStopping, Progress, TrainingEnded
from unit.trainer.conftest import Made, Net, make_trainer

PRICES = Schema(label="price", numbers=["n"], ids=["a", "b"])


def prices(rows: int, seed: int = 0, *, counts: bool = False) -> Made:
    """Numbers from -40 to 60 that follow the ids and n; or counts."""
    source = Made(rows, seed, PRICES)
    a, b, n = (source.table[name].to_numpy() for name in ("a", "b", "n"))
    level = np.random.default_rng(4).normal(0, 1, (2, 40))
    signal = level[0][a] + level[1][b] + n
    rng = np.random.default_rng(seed)
    values = rng.poisson(np.exp(0.5 * signal)).astype(float) if counts else 10 + 10 * signal + rng.normal(size=rows)
    source.table = source.table.append_column("price", pa.array(values))
    return source


@pytest.mark.parametrize("loss", ["squared", {"name": "huber", "delta": 5.0}])
def test_numbers_are_learnt_judged_by_their_errors_and_predicted_as_they_are(loss: Any) -> None:
    trainer = make_trainer(loss=loss)
    reports = list(trainer.fit(prices(2500), valid=prices(300, 1), epochs=4))
    assert all(report.auc is None for report in reports if isinstance(report, Progress))
    found = trainer.evaluate(prices(1000, 2))
    assert list(found.metrics) == ["rmse", "mae", "r2", "bias"]
    assert found.metrics["r2"] is not None
    assert found.metrics["r2"] > 0.5
    (predicted,) = trainer.predict(batch for _, batch in Loader(prices(1000, 2), 1000))
    labels = prices(1000, 2).table["price"].to_numpy()
    assert predicted.shape == (1000,)
    assert predicted.min() < 0
    error = predicted.astype(np.float64) - labels.astype(np.float32)
    assert found.metrics["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-6)
    assert found.metrics["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-6)
    trainer.close()


def test_counts_are_predicted_as_the_exponential_of_the_output() -> None:
    trainer = make_trainer(loss="poisson")
    list(trainer.fit(prices(2500, counts=True), epochs=3))
    found = trainer.evaluate(prices(1000, 2, counts=True))
    (predicted,) = trainer.predict(batch for _, batch in Loader(prices(1000, 2, counts=True), 1000))
    assert predicted.min() > 0
    assert found.metrics["bias"] == pytest.approx(
        predicted.mean() - prices(1000, 2, counts=True).table["price"].to_numpy().mean(), abs=1e-4
    )
    assert found.metrics["r2"] is not None
    assert found.metrics["r2"] > 0.2
    trainer.close()


def test_a_regression_stops_early_by_its_rmse_where_less_is_better(tmp_path: Path) -> None:
    trainer = make_trainer(task="regression")
    *_, ended = trainer.fit(
        prices(600), valid=prices(300, 1), epochs=3, early_stopping=EarlyStopping(), best=tmp_path / "best"
    )
    assert isinstance(ended, TrainingEnded)
    assert ended.best is not None
    assert ended.best.metric == "rmse"
    assert trainer.evaluate(prices(300, 1)).metrics["rmse"] == pytest.approx(ended.best.value, rel=1e-5)
    trainer.close()


@pytest.mark.parametrize(("metric", "rising"), [("rmse", False), ("mae", False), ("r2", True), ("auc", True)])
def test_metrics_have_a_direction(metric: Any, rising: bool) -> None:
    assert EarlyStopping(metric=metric).rising is rising


def test_a_metric_of_the_other_task_is_refused_at_the_first_validation(tmp_path: Path) -> None:
    trainer = make_trainer(loss="squared")
    with pytest.raises(
        hr.ConfigError, match=r"early_stopping.metric='auc': the validation has no such metric, it has r"
    ):
        list(
            trainer.fit(
                prices(100), valid=prices(100), early_stopping=EarlyStopping(metric="auc"), best=tmp_path / "best"
            )
        )
    trainer.close()


class Middle(Net):
    """Its own loss; what it says is a number."""

    task = "regression"

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        return (output - labels[:, 0]).abs().mean()


def test_a_model_may_say_that_its_own_loss_is_of_numbers() -> None:
    table = hr.Table(dim=4)
    trainer = hr.Trainer(Middle(), table, global_batch=64, threads=1)
    assert trainer.task == "regression"
    list(trainer.fit(prices(300)))
    assert "rmse" in trainer.evaluate(prices(100)).metrics
    trainer.close()


def test_several_labels_are_judged_one_by_one() -> None:
    schema = Schema(label=["price", "n"], ids=["a", "b"])

    class Two(Net):
        def forward(self, x: Any) -> Tensor:
            output: Tensor = x.flat[:, :2]
            return output

    made = prices(200)
    made.schema = schema
    trainer = hr.Trainer(Two(), hr.Table(dim=4), loss="squared", global_batch=64, threads=1)
    list(trainer.fit(made))
    assert list(trainer.evaluate(made).metrics)[:5] == ["rmse", "mae", "r2", "bias", "rmse_2"]
    trainer.close()


def test_a_label_that_is_no_class_is_refused_without_the_setting() -> None:
    trainer = make_trainer()
    with pytest.raises(hr.InputError, match="loss = 'squared' predicts the number itself"):
        list(trainer.fit(prices(100)))
    trainer.close()
