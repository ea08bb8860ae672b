"""Caches of embedding workers on a cluster of processes: rows count the gradients that are in them."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from torch.optim import SGD

import hotrow as hr
from hotrow.chaos.counting import TABLE, CountingModel, counting_table, ids_of
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.trainer import Progress, Remark, Trainer
from integration.on_ray.small_cluster import asked, check_settled
from integration.on_ray.test_ray_losses import kill

pytestmark = pytest.mark.usefixtures("one_ray", "quick_stop")

BATCH, REPEATS = 64, 4
CAPACITY = 300
CACHE = hr.Cache(capacity=CAPACITY, staleness=3)
ROWS = 2_048  # samples, of 512 ids


def batches() -> Iterator[Batch]:
    nothing = np.zeros((BATCH, 0), np.float32)
    for start in range(0, ROWS, BATCH):
        ids = ids_of(np.arange(start, start + BATCH), REPEATS)
        yield Batch((FeatureBlock(TABLE, "one", ("sample",), ids),), nothing, np.zeros((BATCH, 1), np.float32))


def counted(trainer: Trainer) -> NDArray[np.float64]:
    """By id, how often a gradient is in its row."""
    found = np.zeros(ROWS)
    for chunk in trainer.tables.tiers[TABLE].export():
        found[chunk.keys.astype(np.int64)] = chunk.values[:, 0]
    return found


def test_every_gradient_reaches_the_shards_and_those_that_a_killed_worker_had_are_counted() -> None:
    table = counting_table(BATCH, f"cached-embedding-{os.getpid()}", CACHE)
    engine = hr.Ray(trainers=2, shards=2, embedding_workers=2, replace_lost=0)
    trainer = Trainer(
        CountingModel(),
        table,
        optimizer=lambda parameters: SGD(parameters, lr=1.0),
        engine=engine,
        mode=hr.Hybrid(scale="local", max_in_flight=3),
        global_batch=2 * BATCH,
        local_batch=BATCH,
        threads=1,
        report_every_s=0,
    )
    expected = np.bincount(ids_of(np.arange(ROWS), REPEATS), minlength=ROWS).astype(np.float64)
    list(trainer.fit(batches()))
    assert np.array_equal(counted(trainer), expected)
    trainer.switch(hr.Async())
    list(trainer.fit(batches()))
    assert np.array_equal(counted(trainer), 2 * expected)
    for role in ("embedding worker 0", "embedding worker 1"):
        figures = asked(trainer, role)
        assert figures[f"cache_hits.{TABLE}"] > 100
        assert [figures[name] for name in (f"cache_changed.{TABLE}", f"cache_batches.{TABLE}", "kept")] == [0, 0, 0]
    counts = trainer.statistics.counts
    assert counts[f"cache_hits.{TABLE}"] > 200
    assert not counts.get("cached_rows_lost")

    victim, told = "embedding worker 1", []
    for report in trainer.fit(batches()):
        if isinstance(report, Remark):
            told.append(report.sentence)
        if isinstance(report, Progress) and victim and report.samples > 2 * ROWS + ROWS // 3:
            kill(trainer, victim)
            victim = ""
    short = 3 * expected - counted(trainer)
    counts = trainer.statistics.counts
    assert counts["embedding_workers_lost"] == 1
    assert 0 < counts["cached_rows_lost"] <= CAPACITY + 2 * BATCH
    assert any("cached rows since their last write-back are lost" in sentence for sentence in told)
    most = CACHE.staleness + 2  # of a row: each trainer has one batch in flight
    assert 0 < short.clip(min=0).sum() <= most * (counts["cached_rows_lost"] + 2 * BATCH)
    assert short.max() <= most
    twice = counts.get("lost_batches_dropped", 0) + counts.get("rows_applied_twice", 0)
    assert (-short).clip(min=0).sum() <= BATCH * twice
    check_settled(trainer)
    trainer.close()
