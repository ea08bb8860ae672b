"""Two trainers and two shards beside two ranks of TorchRec, and Paddle's parameter server where it is."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.cluster.stretches import contestant, race, trainer_of
from hotrow.bench.paddle_peer import PaddlePeer
from hotrow.bench.rounds import BenchProgress, Contestant, Figures, Seconds, median_ratio
from hotrow.bench.torchrec_ranks import TorchRecRanks
from hotrow.bench.train_peers import torchrec_present
from hotrow.data.source import Source
from hotrow.modes import Hybrid, Sync
from hotrow.runtime.settings import Ray

PEERS = ("torchrec", "paddle")


def measure(plan: ClusterPlan, source: Source, file: Path, watch: BenchProgress) -> Figures:
    """For each dim and network; `vs_torchrec_d16` is of the network where it is worse."""
    found: Figures = {}
    for dim in plan.dims:
        for name, hidden in plan.networks.items():
            seconds = _race(plan, source, file, dim, name, hidden, watch)
            found |= {f"{name}_d{dim}_{key}": value for key, value in _figures(seconds).items()}
        for peer in PEERS:
            ratios = [found[f"{name}_d{dim}_vs_{peer}"] for name in plan.networks]
            found[f"vs_{peer}_d{dim}"] = None if None in ratios else min(ratio or 0 for ratio in ratios)
    return found


def _race(
    plan: ClusterPlan, source: Source, file: Path, dim: int, name: str, hidden: Hidden, watch: BenchProgress
) -> Mapping[str, Seconds]:
    with ExitStack() as stack:
        ours = stack.enter_context(closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2), dim=dim)))
        contestants: dict[str, Contestant] = {
            "hybrid": contestant(plan, source, ours, Hybrid()),
            "sync": contestant(plan, source, ours, Sync()),
        }
        if torchrec_present():
            ranks = stack.enter_context(closing(TorchRecRanks(plan.train, dim, hidden, file)))
            contestants["torchrec"] = lambda turn: _inner_step(plan, ranks, turn)
        if plan.paddle is not None:
            paddle = stack.enter_context(closing(PaddlePeer(plan.paddle, plan.train, dim, hidden, file)))
            contestants["paddle"] = lambda turn: paddle.segment(turn) / plan.steps
        return race(plan, contestants, f"{name}, dim {dim}: beside peers", watch)


def _inner_step(plan: ClusterPlan, ranks: TorchRecRanks, turn: int) -> float:
    """Seconds of a step of the slowest rank, in the same steps of the stretch in which ours is timed."""
    ranks.segment(turn)
    steps = plan.steps - plan.skipped - plan.tail
    return max((each[plan.skipped - 1 + steps] - each[plan.skipped - 1]) / steps for each in ranks.moments)


def _figures(seconds: Mapping[str, Seconds]) -> Figures:
    found: Figures = {f"{who}_step_ms": 1e3 * float(np.median(each)) for who, each in seconds.items()}
    for peer in PEERS:
        found[f"vs_{peer}"] = median_ratio(seconds.get(peer), seconds["hybrid"])
        found[f"sync_vs_{peer}"] = median_ratio(seconds.get(peer), seconds["sync"])
    return found
