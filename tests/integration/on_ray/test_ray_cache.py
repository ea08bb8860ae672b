"""Rows that trainers keep, on a cluster of processes: Hybrid learns, predicts, saves and switches with a cache."""

from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.trainer import Progress, Remark, Trainer
from integration.on_ray.small_cluster import DIM, Net, asked, batches, check_settled, losses, whole_rows
from integration.on_ray.test_ray_losses import kill

pytestmark = pytest.mark.usefixtures("one_ray", "quick_stop")


def table_of(staleness: int) -> hr.Table:
    cache = hr.Cache(capacity=100, staleness=staleness)  # of 240 ids
    return hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.2), init=hr.Normal(std=0.1), seed=3, cache=cache)


@pytest.mark.slow
def test_hybrid_with_a_cache_learns_and_leaves_no_change_behind(tmp_path: Path) -> None:
    given = {"global_batch": 16, "report_every_s": 0, "threads": 1}
    engine = hr.Ray(trainers=2, shards=2)
    trainer = Trainer(Net(), table_of(5), engine=engine, mode=hr.Hybrid(max_in_flight=3), **given)  # type: ignore[arg-type]
    shown = batches(2, 200, seed=5)
    before = trainer.evaluate(shown).metrics["auc"]
    found = losses(trainer.fit(batches(100, 8), progressive=True))
    saved = trainer.save(tmp_path / "saved")
    rows, after = whole_rows(trainer), trainer.evaluate(shown).metrics["auc"]
    assert all(np.isfinite(found))
    assert before is not None
    assert after is not None
    assert after > before + 0.05
    check_settled(trainer)
    for role in ("trainer 0", "trainer 1"):
        figures = asked(trainer, role)
        assert figures["cache_hits.default"] > 100
        assert figures["cache_changed.default"] == 0
    with pytest.raises(hr.ConfigError, match=r"tables.default.cache: mode 'gba'"):
        trainer.switch(hr.GBA())
    trainer.switch(hr.Async())
    list(trainer.fit(batches(20, 8, seed=7)))
    trainer.load(saved)
    loaded = whole_rows(trainer)
    assert loaded.keys() == rows.keys()
    assert all(np.array_equal(loaded[key], row) for key, row in rows.items())
    list(trainer.fit(batches(4, 8, seed=9)))  # rows that were cached before the load are not used
    assert trainer.evaluate(shown).metrics["auc"] is not None
    trainer.close()


@pytest.mark.slow
def test_a_killed_trainer_loses_its_unwritten_changes_and_the_run_goes_on() -> None:
    engine = hr.Ray(trainers=3, shards=2, replace_lost=0)
    given = {"global_batch": 24, "report_every_s": 0, "threads": 1}
    trainer = Trainer(Net(), table_of(1_000), engine=engine, mode=hr.Hybrid(max_in_flight=3), **given)  # type: ignore[arg-type]
    told, victim = [], "trainer 1"
    for report in trainer.fit(batches(120, 8)):
        if isinstance(report, Remark):
            told.append(report.sentence)
        if isinstance(report, Progress) and victim and report.samples > 300:
            kill(trainer, victim)
            victim = ""
    assert trainer.samples == 120 * 8
    assert 0 < trainer.statistics.counts["cached_rows_lost"] <= 100
    assert any("cached rows since their last write-back are lost" in sentence for sentence in told)
    for role in ("trainer 0", "trainer 2"):
        assert asked(trainer, role)["cache_changed.default"] == 0
    assert all(np.isfinite(row).all() for row in whole_rows(trainer).values())
    trainer.close()
