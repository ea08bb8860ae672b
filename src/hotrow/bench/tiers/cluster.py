"""The part `cluster`: shards with rows on disk that are told of batches ahead of their lookup, and that are not.

One cluster trains all stretches, with hints and without by turns, so both have the same file and the same memory. No
batch comes twice in a mode: its rows would be side by side in the file then, and faster to read.
"""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from hotrow.bench.network import network
from hotrow.bench.rounds import BenchProgress, Contestant, Figures, interleave, median_ratio
from hotrow.bench.tiers.counted import MeasuredStretch, TierCounts
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.bench.tiers.speed import stream_file, tiered_table
from hotrow.bench.train import FILL, rarest_first, stretch_of
from hotrow.client.sharded import ShardedTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.loader import Loader
from hotrow.data.source import Source
from hotrow.modes import Hybrid, Mode, Sync
from hotrow.runtime.settings import Ray, Resources
from hotrow.trainer import Trainer

MODES: tuple[Mode, ...] = (Sync(look_ahead=0), Hybrid())
CPUS = dict.fromkeys(("trainer", "shard"), Resources(cpus=0.5))


def measure_cluster(plan: TiersPlan, folder: Path, watch: BenchProgress) -> Figures:
    """Steps of one trainer and one shard with hints and without, by mode, at the smallest dim."""
    dim = min(plan.dims)
    source = stream_file(replace(plan, rounds=2 * plan.rounds + plan.warm_up), folder, watch)
    model, dense = network(plan.train, dim, plan.hidden)
    figures: Figures = {"dim": float(dim)}
    trainer = Trainer(
        model,
        tiered_table(plan, dim, folder),
        engine=Ray(trainers=1, shards=1, **CPUS),
        optimizer=dense,
        global_batch=plan.samples,
        threads=1,
        report_every_s=3600,
    )
    with closing(trainer):
        _fill(plan, trainer)
        for place, mode in enumerate(MODES):
            watch.stage(f"dim {dim}: {mode.name} on a cluster, interleaved", plan.rounds + plan.warm_up)
            trainer.switch(mode)
            stretches: dict[str, list[MeasuredStretch]] = {"hinted": [], "unhinted": []}
            contestants = {
                name: _contestant(plan, trainer, source, kept, hints=name == "hinted", half=(place + half) % 2)
                for half, (name, kept) in enumerate(stretches.items())
            }
            seconds = interleave(contestants, plan.rounds, watch, burst=1, warm_up=plan.warm_up)
            kept = {name: taken[plan.warm_up :] for name, taken in stretches.items()}
            figures |= {f"{mode.name}_{key}": value for key, value in cluster_figures(kept).items()}
            figures[f"{mode.name}_hint_gain"] = median_ratio(seconds["unhinted"], seconds["hinted"])
    return figures


def cluster_figures(stretches: dict[str, list[MeasuredStretch]]) -> Figures:
    """Medians over the rounds, with hints and without."""
    figures: Figures = {}
    for name, taken in stretches.items():
        late = [1 - each.counts.moved_ahead / max(each.counts.moved_up, 1) for each in taken]
        figures |= {
            f"{name}_step_ms": 1e3 * float(np.median([each.seconds / each.steps for each in taken])),
            f"{name}_disk_wait_ms": 1e3 * float(np.median([each.counts.wait_s / each.steps for each in taken])),
            f"{name}_disk_wait_share": float(np.median([each.counts.wait_s / each.seconds for each in taken])),
            f"{name}_late_share": float(np.median(late)),
            f"{name}_moved_up_per_step": float(np.median([each.counts.moved_up / each.steps for each in taken])),
        }
    waits = zip(stretches["hinted"], stretches["unhinted"], strict=True)
    figures["wait_left"] = float(np.median([one.counts.wait_s / max(two.counts.wait_s, 1e-9) for one, two in waits]))
    return figures


def _contestant(
    plan: TiersPlan, trainer: Trainer, source: Source, kept: list[MeasuredStretch], *, hints: bool, half: int
) -> Contestant:
    """`half`: of the stretches, those of the other contestant are the others."""

    def contestant(turn: int) -> float:
        loader = Loader(stretch_of(plan.train, source, 2 * turn + half), plan.samples)
        loader.loads_ahead = hints
        before, first, start = _counts(trainer), trainer.step, time.perf_counter()
        for _ in trainer.fit(loader):
            pass
        seconds, steps = time.perf_counter() - start, trainer.step - first
        kept.append(MeasuredStretch(seconds, steps, _counts(trainer) - before))
        return seconds / steps

    return contestant


def _counts(trainer: Trainer) -> TierCounts:
    stats = trainer.tables.tiers["default"].stats()
    return TierCounts(moved_up=stats.moved_up, moved_ahead=stats.moved_ahead, wait_s=stats.disk_wait_s)


def _fill(plan: TiersPlan, trainer: Trainer) -> None:
    """Make all rows, the rarest first."""
    client = trainer.tables
    assert isinstance(client, ShardedTables)
    keys, most = rarest_first(plan.train), min(FILL, plan.memory_rows // 4)
    for start in range(0, len(keys), most):
        part = FeatureBlock("default", "one", ("c0",), keys[start : start + most])
        client.lookup(Batch((part,), np.empty((len(part.keys), 0), np.float32), None), learn=True)
