"""Modes with a delay on the way to the shards: what Hybrid hides of it, and how near it comes to what can be had.

All roles share the cores of one machine here, so what computing takes at least is the processor time of all of them
over the cores. It is measured without delay, where it is the same work.
"""

from contextlib import closing

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.cluster.processor import cores
from hotrow.bench.cluster.stretches import WARM_UP, StretchRate, contestant, figures, race, trainer_of
from hotrow.bench.cluster.talk import Talk
from hotrow.bench.rounds import BenchProgress, Figures, median_ratio
from hotrow.data.source import Source
from hotrow.modes import Async, Hybrid, Sync
from hotrow.runtime.settings import Ray
from hotrow.trainer import Trainer


def measure(plan: ClusterPlan, source: Source, talk: Talk, watch: BenchProgress) -> Figures:
    """For each network: Sync, Async and Hybrid on one delayed cluster, Hybrid on one without delay, and the bound."""
    found: Figures = {}
    for name, hidden in plan.networks.items():
        found |= {f"{name}_{key}": value for key, value in _network(plan, source, name, hidden, talk, watch).items()}
    worst = ("hybrid_vs_async_delay", "hybrid_bound_share", "hybrid_near_share")
    return found | {
        "hybrid_vs_sync_delay": found["narrow_hybrid_vs_sync_delay"],
        **{key: min(found[f"{name}_{key}"] or 0 for name in plan.networks) for key in worst},
    }


def _network(plan: ClusterPlan, source: Source, name: str, hidden: Hidden, talk: Talk, watch: BenchProgress) -> Figures:
    hybrid = Hybrid(max_in_flight=plan.in_flight)
    paces: list[StretchRate] = []  # of the cluster without delay
    far_away = Ray(trainers=2, shards=2, delay_s=plan.delay_s)
    with (
        closing(trainer_of(plan, hidden, far_away)) as far,
        closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2))) as near,
    ):
        contestants = {
            "sync": contestant(plan, source, far, Sync()),
            "async": contestant(plan, source, far, Async()),
            "hybrid": contestant(plan, source, far, hybrid),
            "near": contestant(plan, source, near, hybrid, paces),
            "near_sync": contestant(plan, source, near, Sync()),
        }
        seconds = race(plan, contestants, f"{name}, {1e3 * plan.delay_s:.0f} ms to the shards: modes", watch)
        down, up = _bytes_of_batch(near)
    # A global batch is one local batch for each of two trainers, so a trainer does one in the time of a step.
    parts = {
        "compute": np.array([sum(pace.processor.values()) * plan.samples / cores() for pace in paces[WARM_UP:]]),
        "down": np.full(plan.rounds, down / talk.bytes_per_s),
        "up": np.full(plan.rounds, up / talk.bytes_per_s),
        "round_trip": np.full(plan.rounds, (2 * plan.delay_s + talk.round_trip_s) / plan.in_flight),
    }
    bound = np.maximum.reduce(list(parts.values()))
    return {
        "hybrid_vs_sync_delay": median_ratio(seconds["sync"], seconds["hybrid"]),
        "hybrid_vs_async_delay": median_ratio(seconds["async"], seconds["hybrid"]),
        "hybrid_vs_sync_near": median_ratio(seconds["near_sync"], seconds["near"]),
        "hybrid_bound_share": median_ratio(bound, seconds["hybrid"]),
        "hybrid_near_share": median_ratio(seconds["near"], seconds["hybrid"]),
        **{f"delay_{mode}_step_ms": 1e3 * float(np.median(seconds[mode])) for mode in ("sync", "async", "hybrid")},
        "near_sync_step_ms": 1e3 * float(np.median(seconds["near_sync"])),
        "near_hybrid_step_ms": 1e3 * float(np.median(seconds["near"])),
        **{f"bound_{part}_ms": 1e3 * float(np.median(each)) for part, each in parts.items()},
    }


def _bytes_of_batch(trainer: Trainer) -> tuple[float, float]:
    """What a trainer receives and sends for one local batch."""
    told = figures(trainer, "trainer")
    batches = sum(each["batches"] for each in told)
    return sum(each["bytes_received"] for each in told) / batches, sum(each["bytes_sent"] for each in told) / batches
