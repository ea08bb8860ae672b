"""Clusters of trainers with and without a cache, and what a step costs them: seconds, processor time, bytes.

The model is a factorisation machine: its one dense parameter leaves the link to the embeddings. Bytes are those of the
connections between trainers and shard, with all frames and headers, counted by the shard: trainers send each other the
batches that they read, which is no traffic of embeddings.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from hotrow.bench.cache.bound import StepCost
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.skew import weights
from hotrow.bench.cluster.processor import processes, spent_s
from hotrow.bench.ids import keys_of
from hotrow.bench.rounds import BenchProgress
from hotrow.config import Cache, Table, Uniform
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.source import Source
from hotrow.data.splits import RowRange
from hotrow.models.fm import FM
from hotrow.modes import Hybrid, Mode
from hotrow.nn.inputs import InputShape
from hotrow.optim.sparse import AnyOptimizer
from hotrow.run.cluster_status import figures_of
from hotrow.runtime.settings import Ray
from hotrow.trainer import Trainer
from hotrow.trainer.reports import Progress

TAIL = 4  # steps after the timed ones: pipelines run dry


def columns(plan: CachePlan) -> list[str]:
    """Of the ids in a file."""
    return [f"id_{number}" for number in range(plan.features)]


def stretch_steps(plan: CachePlan) -> int:
    """Of one turn of a contestant: before the timed ones, timed, and after them."""
    return plan.cluster_warm + plan.cluster_steps + TAIL


def write_samples(plan: CachePlan, path: Path, exponent: float, watch: BenchProgress) -> Source:
    """A file with ids of a Zipf law, a row group for each step and a stretch for each round."""
    rng = np.random.default_rng(plan.seed)
    cumulative = np.cumsum(weights(plan.cluster_rows, exponent))
    keys = keys_of(rng.permutation(plan.cluster_rows)).view(np.int64)
    names, shape = columns(plan), (plan.global_samples, plan.features)
    watch.stage("writing the file", plan.rounds)
    writer: pq.ParquetWriter | None = None
    for _ in range(plan.rounds):
        for _ in range(stretch_steps(plan)):
            ranks = np.searchsorted(cumulative, rng.random(shape) * cumulative[-1], side="right")
            ids = keys[ranks.clip(max=plan.cluster_rows - 1)]
            labels = pa.array(rng.integers(0, 2, plan.global_samples), pa.int8())
            table = pa.table({"label": labels} | {name: ids[:, place] for place, name in enumerate(names)})
            writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
            writer.write_table(table, row_group_size=plan.global_samples)
        watch.tick()
    assert writer is not None
    writer.close()
    return source_of(path, plan)


def source_of(path: Path, plan: CachePlan) -> ParquetSource:
    """The file of a benchmark; all ids are of one table."""
    ids = [{"column": name, "space": "row"} for name in columns(plan)]
    return ParquetSource(path, Schema(label="label", numbers=[], ids=ids))


def part_of(plan: CachePlan, source: Source, turn: int) -> Source:
    """The rows of a round."""
    rows = stretch_steps(plan) * plan.global_samples
    return RowRange(source, turn * rows, (turn + 1) * rows)


def trainer_of(plan: CachePlan, optimizer: AnyOptimizer, cache: Cache | None, gbps: float = 0.0) -> Trainer:
    """A cluster of workers and one shard, as in the paper; one thread each."""
    model = FM(InputShape(0, dict.fromkeys(columns(plan), plan.dim)))
    return Trainer(
        model,
        Table(dim=plan.dim, optimizer=optimizer, init=Uniform(bound=0.01), cache=cache),
        mode=Hybrid(),
        engine=Ray(trainers=plan.workers, shards=1, link_gbps=gbps),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        global_batch=plan.global_samples,
        local_batch=plan.samples,
        threads=1,
        report_every_s=0,
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one moment."""

    at_s: float
    samples: int
    processor_s: Mapping[str, float]
    batches: float
    bytes_in: float  # of all trainers, from the shard
    bytes_out: float


def step_cost(plan: CachePlan, trainer: Trainer, mode: Mode, source: Source, skipped: int) -> StepCost:
    """Train on a stretch, and count and time its steps after the first `skipped`."""
    trainer.switch(mode)
    start = trainer.samples
    begun: Reading | None = None
    ended: Reading | None = None
    for report in trainer.fit(source):
        if not isinstance(report, Progress):
            continue
        now, done = time.perf_counter(), (report.samples - start) // plan.global_samples
        if begun is None and done >= skipped:
            begun = _read(trainer, report.samples, now)
        elif begun is not None and ended is None and done >= skipped + plan.cluster_steps:
            ended = _read(trainer, report.samples, now)
    assert begun is not None
    assert ended is not None
    return _cost(plan, begun, ended)


def _read(trainer: Trainer, samples: int, now: float) -> Reading:
    """`now`: when `samples` were counted. Both readings are later than it by about the same time, while steps go on.

    All roles are asked at once: where the shard was asked after the trainers, it had sent the bytes of more batches
    than they had counted.
    """
    assert trainer.cluster is not None
    told = figures_of(trainer.cluster)
    batches = sum(each["batches"] for role, each in told.items() if role.kind == "trainer")
    (shard,) = (each for role, each in told.items() if role.kind == "shard")
    spent = {role: spent_s(pid) for role, pid in processes(trainer).items()}
    return Reading(now, samples, spent, batches, shard["wire.bytes_out"], shard["wire.bytes_in"])


def _cost(plan: CachePlan, begun: Reading, ended: Reading) -> StepCost:
    steps = (ended.samples - begun.samples) / plan.global_samples
    batches = ended.batches - begun.batches
    return StepCost(
        seconds=(ended.at_s - begun.at_s) / steps,
        processor_s={role: (ended.processor_s[role] - spent) / steps for role, spent in begun.processor_s.items()},
        bytes_in=(ended.bytes_in - begun.bytes_in) / batches,
        bytes_out=(ended.bytes_out - begun.bytes_out) / batches,
    )
