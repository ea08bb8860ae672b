"""What automatic switching does to a model: real gradients over a working day, against Sync on the same rows.

The day has fewer and longer steps than the counted one; traffic and stragglers keep their proportion to them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hotrow.data.batch import Batch
from hotrow.modes import Sync
from hotrow.reproduce.auto_throughput import DAY_S, DAYS, WORKERS, cluster
from hotrow.reproduce.days import interval
from hotrow.reproduce.results import Tell
from hotrow.reproduce.settings import LOCAL_BATCH, SET_S
from hotrow.reproduce.task import Model, TrainingTask
from hotrow.sim import Batches, ClusterConfig, SimCluster, SimResult
from hotrow.sim.auto import AutoPilot
from hotrow.switching import Auto

DAY_BATCHES = 1.2  # a step takes so many times a batch on an idle machine, on average over the day


def compared(task: TrainingTask, rule: Auto, seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """The model after the first day, on the test rows of the second; auto minus Sync, paired by seed."""
    batch_s = DAY_S / (DAY_BATCHES * task.train_rows / (WORKERS * LOCAL_BATCH))
    pairs = []
    for seed in seeds:
        pairs.append(pair := {"seed": seed, **_pair(task, rule, seed, batch_s)})
        tell(f"AUC, seed {seed}: Sync {pair['sync']:.5f}, auto {pair['auto']:.5f}, {len(pair['switches'])} switches")
    found = interval([pair["auto"] - pair["sync"] for pair in pairs])
    return {
        "batch_s": batch_s,
        "pairs": pairs,
        "auto_minus_sync": {"mean": found.mean, "low": found.low, "high": found.high, "pairs": found.pairs},
    }


def _pair(task: TrainingTask, rule: Auto, seed: int, batch_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("sync", "auto"):
        model = Model(task, SET_S, seed)
        dense_bytes = sum(each.numel() * each.element_size() for each in model.learner.parameters)
        config = cluster(DAYS["working day"], batch_s=batch_s, local_batch=LOCAL_BATCH, dense_bytes=dense_bytes)
        pilot = AutoPilot(rule, config, dense_bytes=dense_bytes) if name == "auto" else None
        result = _trained(model, config, pilot)
        found |= {name: model.auc(1), f"{name}_seconds": result.seconds}
        if pilot is not None:
            statistics = result.statistics
            found["switches"] = [{"time_s": each.time_s, "mode": each.mode} for each in pilot.decisions]
            found["short_steps"] = statistics.short_steps
            found["zero_weight_share"] = statistics.zero_weight / statistics.applied
            found["staleness"] = statistics.gradient.mean
        model.close()
    return found


def _trained(model: Model, config: ClusterConfig, pilot: AutoPilot | None) -> SimResult:
    """One day in Sync, or as a pilot says."""
    settings: dict[str, Any] = {
        "data": Batches((None, batch) for batch in _rows(model.task, model.seed)),
        "work": model.work,
        "watchers": (model.work,),
        "seed": model.seed,
    }
    run = SimCluster(Sync(), config, **settings) if pilot is None else pilot.cluster(**settings)
    return run.run()


def _rows(task: TrainingTask, seed: int) -> Iterator[Batch]:
    """The training rows of the first day, as they come: they need not be in memory all at once."""
    wanted = task.train_rows
    for batch in task.stream(seed).read_batches(0):
        yield batch if len(batch) <= wanted else batch.slice(0, wanted)
        wanted -= len(batch)
        if wanted <= 0:
            return
