"""Engine local with caches: one worker trains as without them, several lose nothing, and readers see every change."""

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.cache.local import CachedLocalTables
from hotrow.modes import Mode
from hotrow.trainer import Trainer
from unit.runtime.small_training import DENSE, largest_difference, losses
from unit.trainer.conftest import Made, Net

SWAP = hr.Adagrad(lr=0.02, swap=hr.Swap(period=640, decay=0.5))
MODES = [hr.Hybrid(max_in_flight=1), hr.Async()]


def trainer_of(mode: Mode, rows: hr.Adagrad, cache: hr.Cache | None, workers: int = 1) -> Trainer:
    torch.manual_seed(0)
    table = hr.Table(dim=4, optimizer=rows, init=hr.Normal(std=0.1), seed=3, cache=cache)
    given = {"global_batch": 60, "threads": 1, "report_every_s": 0}
    return Trainer(Net(), table, optimizer=DENSE["adam"], mode=mode, workers=workers, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [hr.SGD(lr=0.05), hr.Adagrad(lr=0.02), hr.RowwiseAdagrad(lr=0.02)])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.name))
@pytest.mark.parametrize("cache", [hr.Cache(capacity=20, staleness=2, policy="lfu"), hr.Cache(capacity="1MB")])
def test_one_worker_with_a_cache_trains_as_without(mode: Mode, rows: hr.Adagrad, cache: hr.Cache) -> None:
    cached, plain = trainer_of(mode, rows, cache), trainer_of(mode, rows, None)
    np.testing.assert_allclose(losses(cached.fit(Made(1_280))), losses(plain.fit(Made(1_280))), rtol=0, atol=1e-5)
    assert largest_difference(cached, plain) < 1e-5
    for each in (cached, plain):
        each.close()


@pytest.mark.parametrize("mode", [hr.Hybrid(max_in_flight=3), hr.Async()], ids=lambda mode: str(mode.name))
def test_several_workers_learn_and_readers_see_every_change(mode: Mode) -> None:
    trainer = trainer_of(mode, SWAP, hr.Cache(capacity=500, staleness=1_000), workers=3)
    found = losses(trainer.fit(Made(2_400)))
    assert np.isfinite(found).all()
    tables = trainer.tables
    assert isinstance(tables, CachedLocalTables)
    assert all(cache.changed_rows == 0 for cache in tables.caches("default"))
    (chunk,) = tables.tiers["default"].export()
    assert (chunk.state >= 0).all()
    assert (chunk.fields["version"] > 1).all()  # every id was trained
    counts = trainer.statistics.counts
    assert counts["cache_hits.default"] > counts["cache_misses.default"] > 0
    assert counts["cache_written.default"] > 0
    trainer.close()


def test_a_switch_and_a_prediction_flush() -> None:
    trainer = trainer_of(hr.Async(), hr.Adagrad(lr=0.02), hr.Cache(capacity=500, staleness=1_000), workers=2)
    tables = trainer.tables
    assert isinstance(tables, CachedLocalTables)
    seen = []
    for number, _ in enumerate(trainer.fit(Made(1_280))):
        if number == 4:
            before = sum(cache.changed_rows for cache in tables.caches("default"))
            next(trainer.predict(Made(64)))
            seen.append((before > 0, sum(cache.changed_rows for cache in tables.caches("default"))))
        if number == 8:
            trainer.switch(hr.Hybrid())
    assert seen == [(True, 0)]
    with pytest.raises(hr.ConfigError, match=r"tables.default.cache: mode 'sync'"):
        trainer.switch(hr.Sync())
    trainer.close()
