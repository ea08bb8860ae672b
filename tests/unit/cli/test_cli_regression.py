"""A regression from its config: trained, evaluated, predicted, and shown by its errors."""

import csv
import json
from pathlib import Path

import pytest

from hotrow.errors import ConfigError
from hotrow.run import load_config
from hotrow.run.config import as_toml
from small_run import CONFIG, write_data
from unit.cli.conftest import Command

REGRESSION = (
    CONFIG.replace('label = "clicked?"', 'label = "price in €"\nweight = "clicked?"')
    .replace('numbers = [{ column = "price in €", transform = "standard" }]', "malformed = 0")
    .replace('name = "lr"', 'name = "lr"\nloss = "huber"')
)


def test_a_config_with_a_loss_of_numbers_trains_evaluates_and_predicts_numbers(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path, REGRESSION)
    done = hotrow("train", config, "--json", "told.json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(Path("told.json").read_text())
    assert {"test_rmse", "test_mae", "test_r2", "test_bias"} <= set(told)
    assert told["valid_rmse"] is None  # a key of every regression
    assert not [key for key in told if "auc" in key or "logloss" in key]
    assert "test RMSE" in done.stdout
    assert "AUC" not in done.stdout
    page = (tmp_path / "runs" / "small" / "report.html").read_text(encoding="utf-8")
    assert "<dt>Test RMSE</dt>" in page
    assert "<dt>Test MAE</dt>" in page
    assert "Predictions and labels" in page
    assert "ROC curve" not in page
    assert "Test AUC" not in page
    evaluated = hotrow("evaluate", "--run", "small", "--json", "evaluated.json")
    assert evaluated.exit_code == 0, evaluated.stderr
    assert json.loads(Path("evaluated.json").read_text())["rmse"] == pytest.approx(told["test_rmse"])
    assert hotrow("predict", tmp_path / "test.csv", "out.csv", "--run", "small").exit_code == 0
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert set(rows[0]) == {"row", "prediction"}
    assert len(rows) == 1000
    assert max(float(row["prediction"]) for row in rows) > 1  # a sigmoid could not


def test_a_loss_is_written_into_the_run_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(REGRESSION.replace('loss = "huber"', 'loss = { name = "huber", delta = 2.5 }'), encoding="utf-8")
    config = load_config(path)
    assert config.model.predicts == "regression"
    assert config.model.settings == {}
    (tmp_path / "again.toml").write_text(as_toml(config), encoding="utf-8")
    assert load_config(tmp_path / "again.toml").model == config.model


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ('loss = "hubert"', "loss"),
        ('loss = { name = "huber", delta = 0 }', "model.loss.huber.delta=0"),
        ('task = "regression"\nloss = "logistic"', "task='regression': loss 'logistic' is one of classification"),
        ('task = "ranking"', "model.task='ranking'"),
    ],
)
def test_a_loss_that_cannot_be_is_refused(tmp_path: Path, model: str, fault: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(CONFIG.replace('name = "lr"', f'name = "lr"\n{model}'), encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        load_config(path)
    assert fault in str(told.value)
