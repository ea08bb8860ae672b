"""A trainer starts from the checkpoint of another one, and its first reports tell the differences."""

from pathlib import Path

import pytest
import torch

import hotrow as hr
from hotrow.trainer import Remark
from unit.trainer.conftest import Made, make_trainer


def test_the_first_reports_tell_the_differences_and_training_counts_on(tmp_path: Path) -> None:
    first = make_trainer()
    list(first.fit(Made(640)))
    first.save(tmp_path)
    first.close()
    other = make_trainer(seed=1, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    assert other.load(tmp_path, strict=False) is None
    assert (other.samples, other.step) == (640, 10)
    told = [report.sentence for report in other.fit(Made(64)) if isinstance(report, Remark)]
    assert "the dense optimizer is Adam in the checkpoint and SGD here: its state starts fresh" in told
    assert "table 'default': seed is 0 in the checkpoint and 1 here: new rows start with it" in told
    assert other.samples == 704
    other.save(tmp_path / "again")
    other.close()


def test_names_need_a_load_that_may_differ(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.save(tmp_path)
    for names in ({"map": {"a": "b"}}, {"skip": ["a"]}):
        with pytest.raises(hr.ConfigError, match="give strict=False too"):
            trainer.load(tmp_path, **names)
    trainer.close()
