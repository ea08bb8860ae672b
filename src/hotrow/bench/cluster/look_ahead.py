"""Sync with look-ahead under delay: the same losses, and how near it comes to what the rows of two steps allow.

The job is bound by the wire: a small network and small batches. Sync in line waits for a look-up, then for a push: two
round trips. With look-ahead the rows that two steps share are pushed, updated and read in one round trip, and
everything else is hidden. So a step takes at least what it takes without delay, and one round trip.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.stretches import contestant, race, trainer_of
from hotrow.bench.rounds import BenchProgress, Figures, median_ratio
from hotrow.data.source import Source
from hotrow.data.splits import RowRange
from hotrow.modes import Async, Hybrid, Mode, Sync
from hotrow.runtime.settings import Ray
from hotrow.trainer import Trainer
from hotrow.trainer.reports import Progress

TOLERANCE = 1e-5  # of losses on two trainers, whose sums have no fixed order


def measure(plan: ClusterPlan, source: Source, watch: BenchProgress) -> Figures:
    """Equality first, then the modes on one delayed cluster, and Sync on one without delay."""
    job = replace(plan, samples=plan.ahead_samples)
    return _equality(job, source, watch) | _speed(job, source, watch)


def _equality(plan: ClusterPlan, source: Source, watch: BenchProgress) -> Figures:
    """Losses and rows of some steps in line and ahead: the same bits on one trainer, within a tolerance on two."""
    watch.stage("Sync in line and with look-ahead", 4)
    rows = RowRange(source, 0, plan.ahead_steps * plan.samples)
    apart = {}
    for trainers in (1, 2):
        runs = []
        for look_ahead in (0, 1):
            engine = Ray(trainers=trainers, shards=2)
            settings: dict[str, Any] = {"local_batch": plan.samples // trainers}
            with closing(trainer_of(plan, plan.networks["narrow"], engine, filled=False, **settings)) as trainer:
                trainer.switch(Sync(look_ahead=look_ahead))
                runs.append((_losses(trainer, rows), _checksum(trainer)))
            watch.tick()
        (in_line, before), (ahead, after) = runs
        apart[trainers] = float(np.max(np.abs(np.subtract(in_line, ahead))))
        if trainers == 1:
            same_bits = in_line == ahead and before == after
    return {
        "sync_ahead_equals_sync": float(same_bits and apart[2] <= TOLERANCE),
        "sync_ahead_two_trainers_apart_millionths": 1e6 * apart[2],
    }


def _speed(plan: ClusterPlan, source: Source, watch: BenchProgress) -> Figures:
    hidden = plan.networks["narrow"]
    modes: dict[str, Mode] = {
        "sync": Sync(look_ahead=0),
        "sync_ahead": Sync(look_ahead=1),
        "hybrid": Hybrid(max_in_flight=plan.in_flight),
        "async": Async(),
    }
    with (
        closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2, delay_s=plan.delay_s))) as far,
        closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2))) as near,
    ):
        contestants = {name: contestant(plan, source, far, mode) for name, mode in modes.items()}
        contestants |= {f"near_{name}": contestant(plan, source, near, modes[name]) for name in ("sync", "sync_ahead")}
        label = f"look-ahead, {1e3 * plan.delay_s:.0f} ms to the shards, batches of {plan.samples:,}"
        seconds = race(plan, contestants, label, watch)
    bound = np.minimum(seconds["near_sync"], seconds["near_sync_ahead"]) + 2 * plan.delay_s
    steps = {f"ahead_{name}_step_ms": 1e3 * float(np.median(each)) for name, each in seconds.items()}
    return {
        "sync_ahead_vs_sync_delay": median_ratio(seconds["sync"], seconds["sync_ahead"]),
        "sync_ahead_bound_share": median_ratio(bound, seconds["sync_ahead"]),
        "sync_ahead_vs_sync_near": median_ratio(seconds["near_sync"], seconds["near_sync_ahead"]),
        "hybrid_vs_sync_ahead_delay": median_ratio(seconds["sync_ahead"], seconds["hybrid"]),
        "async_vs_sync_ahead_delay": median_ratio(seconds["sync_ahead"], seconds["async"]),
        "ahead_bound_ms": 1e3 * float(np.median(bound)),
        **steps,
    }


def _losses(trainer: Trainer, source: Source) -> Sequence[float]:
    return [report.loss for report in trainer.fit(source) if isinstance(report, Progress)]


def _checksum(trainer: Trainer) -> float:
    """Of all values and states, in float64: equal where all rows are."""
    sums = [
        float(np.sum(chunk.values, dtype=np.float64)) + float(np.sum(chunk.state, dtype=np.float64))
        for tier in trainer.tables.tiers.values()
        for chunk in tier.export()
    ]
    return float(np.sum(np.sort(sums)))
