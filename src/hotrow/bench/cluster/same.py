"""Same numbers: Sync on a cluster beside one process, and AUC of what is not exact, by paired seeds."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import nn

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.stretches import trainer_of
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.modes import Hybrid, Mode, Sync
from hotrow.optim.sparse import SGD, Adagrad, Adam, AnyOptimizer
from hotrow.runtime.settings import Local, Ray
from hotrow.trainer import Trainer
from hotrow.trainer.dense import OptimizerMaker
from hotrow.trainer.reports import Progress
from hotrow.trainer.schedule import Schedule

LEARNED_IDS = 200_000  # few enough that these rows teach something about them
WARM_UP_SHARE = 0.1  # of the samples: rates rise, since rows that are late overshoot most in the first steps


@dataclass(frozen=True, slots=True)
class _Rule:
    rows: AnyOptimizer
    dense: OptimizerMaker
    tolerance: float  # of a loss, over 200 steps


def _dense_adagrad(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=0.01, initial_accumulator_value=1e-8)


# The network is smooth, and Adagrad begins with something in its sums. A ReLU whose input is 1e-9 goes one way in one
# order of adding up and the other way in another, and so does Adagrad's first step, the sign of a gradient: two runs
# of one process that cut batches differently come apart by 1e-4 with them.
RULES = {
    "sgd": _Rule(SGD(lr=0.1), lambda parameters: torch.optim.SGD(parameters, lr=0.1), 1e-5),
    "adagrad": _Rule(Adagrad(lr=0.01, initial=1e-8), _dense_adagrad, 1e-5),
    "adam": _Rule(Adam(lr=0.001), lambda parameters: torch.optim.Adam(parameters, lr=0.001), 1e-4),
}


def measure_sync(plan: ClusterPlan, watch: BenchProgress) -> Figures:
    """Losses of every step on two trainers and two shards, and of one process with whole global batches."""
    watch.stage("Sync on a cluster and in one process", len(RULES))
    stream = SyntheticSource(_stream(plan, plan.same_steps * plan.learned_batch, 0))
    found: Figures = {"sync_equals_local": 1.0}
    for name, rule in RULES.items():
        losses = []
        for engine, parts in ((Ray(trainers=2, shards=2), 2), (Local(), 1)):
            given = {"local_batch": plan.learned_batch // parts, "rows": rule.rows, "optimizer": rule.dense}
            with closing(_learning(plan, engine, activation="tanh", **given)) as trainer:
                losses.append([report.loss for report in trainer.fit(stream) if isinstance(report, Progress)])
        apart = float(np.max(np.abs(np.subtract(losses[0], losses[1])) / np.abs(losses[1])))
        found[f"sync_{name}_apart_millionths"] = 1e6 * apart
        if len(losses[0]) != plan.same_steps or apart > rule.tolerance:
            found["sync_equals_local"] = 0.0
        watch.tick()
    return found


def measure_auc(plan: ClusterPlan, folder: Path, watch: BenchProgress) -> Figures:
    """Hybrid beside Sync, and rows in halves beside rows in floats, each pair from the same start on the same rows."""
    watch.stage("AUC by paired seeds", 4 * plan.seeds)
    far = Ray(trainers=2, shards=2, delay_s=plan.delay_s)
    jobs: tuple[tuple[str, Ray, Mode], ...] = (
        ("sync", Ray(trainers=2, shards=2), Sync()),
        ("sync_halves", Ray(trainers=2, shards=2, values="fp16-scaled"), Sync()),
        ("hybrid", far, Hybrid(max_in_flight=plan.in_flight)),
        ("hybrid_halves", far.model_copy(update={"values": "fp16-scaled"}), Hybrid(max_in_flight=plan.in_flight)),
    )
    areas = {}
    for name, engine, mode in jobs:
        with closing(_learning(plan, engine, mode=mode)) as trainer:
            areas[name] = list(_areas(plan, trainer, folder, watch))
    found: Figures = {f"auc_{name}": mean(each) for name, each in areas.items()}
    for key, one, other in (
        ("auc_gap_hybrid_sync", "hybrid", "sync"),
        ("auc_gap_fp16_scaled", "sync_halves", "sync"),
        ("auc_gap_hybrid_fp16_scaled", "hybrid_halves", "sync"),
    ):
        gaps = np.subtract(areas[one], areas[other])
        found |= {key: float(gaps.mean()), f"{key}_worst": float(gaps[np.abs(gaps).argmax()])}
    return found


def _areas(plan: ClusterPlan, trainer: Trainer, folder: Path, watch: BenchProgress) -> Iterator[float]:
    for seed in range(1, plan.seeds + 1):
        trainer.load(_start(plan, seed, folder))
        stream = _stream(plan, plan.learned_rows, seed)
        for _ in trainer.fit(SyntheticSource(stream)):
            pass
        area = trainer.evaluate(SyntheticSource(stream, "test")).metrics["auc"]
        assert area is not None
        watch.tick()
        yield area


def _start(plan: ClusterPlan, seed: int, folder: Path) -> Path:
    """A state without rows, whose network is the seed's."""
    start = folder / f"start-{seed}"
    if not start.exists():
        with closing(_learning(plan, Local(), seed=seed)) as trainer:
            trainer.save(start)
    return start


def _learning(plan: ClusterPlan, engine: Ray | Local, **settings: Any) -> Trainer:
    """As a user would train: rows by Adagrad at a rate that suits them, rates that rise at first."""
    batch = plan.learned_batch
    given: dict[str, Any] = {"rows": Adagrad(lr=0.01), "global_batch": batch, "local_batch": batch // 2}
    given["schedule"] = Schedule(warmup=int(WARM_UP_SHARE * plan.learned_rows))
    return trainer_of(plan, plan.networks["narrow"], engine, filled=False, **(given | settings))


def _stream(plan: ClusterPlan, rows: int, seed: int) -> SyntheticConfig:
    return SyntheticConfig(rows=rows, test_rows=plan.judged_rows, ids=min(LEARNED_IDS, plan.rows), seed=seed)
