"""Trainers on a cluster and in one process as contestants: each trains the stretch of a round, and is timed in it.

A mode begins with every fit: connections are made and pipelines fill. So the first steps of a stretch do not count.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.cluster.processor import processes, spent_s
from hotrow.bench.network import network
from hotrow.bench.peers import EPS
from hotrow.bench.rounds import BenchProgress, Contestant, Seconds, interleave
from hotrow.client import LocalTables
from hotrow.client.sharded import ShardedTables
from hotrow.config import Table, Uniform
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.source import Source
from hotrow.data.splits import RowRange
from hotrow.models.layers import Activation
from hotrow.modes import Mode
from hotrow.optim.sparse import Adagrad, AnyOptimizer
from hotrow.run.cluster_status import figures_of
from hotrow.runtime.settings import Local, Ray
from hotrow.trainer import Trainer
from hotrow.trainer.reports import Progress
from hotrow.types import RoleKind

WARM_UP = 1  # rounds; every stretch has steps of its own that do not count
FILL = 1 << 16  # rows made at once


def trainer_of(
    plan: ClusterPlan,
    hidden: Hidden,
    engine: Ray | Local,
    *,
    dim: int | None = None,
    wrapped: Callable[[nn.Module], nn.Module] = lambda network: network,
    filled: bool = True,
    seed: int = 0,
    rows: AnyOptimizer | None = None,
    activation: Activation = "relu",
    **settings: Any,
) -> Trainer:
    """The DeepFM of `hotrow bench train` on an engine, its table filled; local batches are half a global one."""
    dim = plan.dims[0] if dim is None else dim
    job = plan.train
    model, dense = network(job, dim, hidden, seed, activation)
    given: dict[str, Any] = {
        "global_batch": plan.samples,
        "local_batch": plan.samples // 2,
        "threads": 1,
        "optimizer": dense,
    }
    trainer = Trainer(
        wrapped(model),
        Table(dim=dim, optimizer=rows or Adagrad(lr=job.lr, eps=EPS), init=Uniform(bound=0.01)),
        engine=engine,
        report_every_s=0,
        **(given | settings),
    )
    try:
        fill(trainer, plan.rows if filled else 0)
    except BaseException:
        trainer.close()
        raise
    return trainer


def fill(trainer: Trainer, rows: int) -> None:
    """Make all rows, as peers have them from the start."""
    client = trainer.tables
    assert isinstance(client, LocalTables | ShardedTables)
    for start in range(0, rows, FILL):
        keys = np.arange(start, min(start + FILL, rows))
        part = FeatureBlock("default", "one", ("c0",), keys)
        client.lookup(Batch((part,), np.empty((len(keys), 0), np.float32), None), learn=True)


@dataclass(frozen=True, slots=True)
class StretchRate:
    """What a sample takes while data flow: not in the first steps of a stretch, nor in the last."""

    seconds: float
    processor: dict[str, float]  # seconds of each process


def stretch(plan: ClusterPlan, trainer: Trainer, source: Source) -> StretchRate:
    """Train on some rows."""
    start, pids = trainer.samples, processes(trainer)
    moments: list[tuple[int, float, dict[str, float]]] = []
    for report in trainer.fit(source):
        if isinstance(report, Progress):
            spent = {name: spent_s(pid) for name, pid in pids.items()}
            moments.append((report.samples - start, time.perf_counter(), spent))
    first, last = plan.skipped * plan.samples, moments[-1][0] - plan.tail * plan.samples
    inner = [moment for moment in moments if first <= moment[0] <= last]
    (begun, began_s, before), (ended, ended_s, after) = inner[0], inner[-1]
    samples = ended - begun
    return StretchRate((ended_s - began_s) / samples, {name: (after[name] - before[name]) / samples for name in pids})


def race(
    plan: ClusterPlan, contestants: Mapping[str, Contestant], label: str, watch: BenchProgress
) -> dict[str, Seconds]:
    """Seconds of a global batch, by contestant and round."""
    watch.stage(label, plan.rounds + WARM_UP)
    return interleave(contestants, plan.rounds, watch, burst=1, warm_up=WARM_UP)


def contestant(
    plan: ClusterPlan, source: Source, trainer: Trainer, mode: Mode, paces: list[StretchRate] | None = None
) -> Contestant:
    """Seconds of a global batch in a mode, in the stretch that belongs to a round; `paces` takes all of them."""

    def run(turn: int) -> float:
        trainer.switch(mode)
        pace = stretch(plan, trainer, part_of(plan, source, turn))
        if paces is not None:
            paces.append(pace)
        return pace.seconds * plan.samples

    return run


def part_of(plan: ClusterPlan, source: Source, turn: int) -> Source:
    """The rows of a round."""
    segment = plan.train.segment
    return RowRange(source, turn * segment, (turn + 1) * segment)


def figures(trainer: Trainer, kind: RoleKind) -> list[Mapping[str, float]]:
    """What all roles of a kind tell of themselves."""
    facts = trainer.cluster
    assert facts is not None
    return [told for role, told in figures_of(facts).items() if role.kind == kind]
