"""`hotrow bench store`: our table against torch's and those of peers, and against the machine.

A step is: look up a batch, sum the gradients of duplicate ids, Adagrad. Ours, the peers and the machine's limits take
turns in every round; what is compared has run in the same round, and the median over the rounds counts. Then our table
meets others of ours (bench/life.py). Row-wise Adagrad runs last, after all other tables are freed.
"""

import gc
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from hotrow.bench.growth import grow, measure_growth
from hotrow.bench.ids import random_order_keys
from hotrow.bench.life import measure_life
from hotrow.bench.limits import MachineLimits, step_limit
from hotrow.bench.pages import huge_share
from hotrow.bench.peers import EPS, Adapter, StorePeer
from hotrow.bench.plan import StorePlan
from hotrow.bench.rounds import (
    WARM_UP_ROUNDS,
    BenchProgress,
    Contestant,
    Figures,
    Seconds,
    interleave,
    median_ratio,
    mega_rate,
    timed,
)
from hotrow.bench.shared_memory import measure_attach
from hotrow.bench.torch_peers import TorchPeer
from hotrow.bench.workload import HotrowStore, UniquePeer, Workload, draw, torch_threads
from hotrow.config import Table
from hotrow.optim.sparse import Adagrad, RowwiseAdagrad
from hotrow.store import RamTier

SHARED = (
    "unique_mids",
    "bytes_per_row_overhead",
    "worst_growth_ms",
    "copy_gbps",
    "random_read_mrows",
    "evict_step_vs_plain",
    "bytes_per_row_overhead_lru",
    "shm_vs_anon",
    "bf16_vs_fp32",
    "attach_mrows",
)


def measure(plan: StorePlan, watch: BenchProgress, adapters: Sequence[Adapter] = ()) -> Figures:
    """All figures of all dims, under flat keys: d16_step_mids and so on; those in SHARED also without the dim."""
    figures: Figures = {}
    watch.stage("drawing ids", 1)
    work = draw(plan, plan.rows)
    all_keys = random_order_keys(plan.rows)
    watch.tick()
    with torch_threads(plan.threads):
        for dim in plan.dims:
            found = measure_dim(plan, work, all_keys, dim, adapters, watch)
            figures |= {f"d{dim}_{key}": value for key, value in found.items()}
    return figures | {key: figures[f"d{plan.dims[0]}_{key}"] for key in SHARED}


def measure_dim(
    plan: StorePlan,
    work: Workload,
    all_keys: NDArray[np.uint64],
    dim: int,
    adapters: Sequence[Adapter],
    watch: BenchProgress,
) -> Figures:
    table = Table(dim=dim, optimizer=Adagrad(lr=plan.lr, eps=EPS))
    tier, figures = measure_growth(table, all_keys, plan.ids, threads=plan.threads, watch=watch)
    figures |= measure_exact(plan, work, tier, adapters, watch)
    gc.collect()  # each group needs the memory of the one before
    figures |= measure_life(plan, work, all_keys, tier, watch)
    del tier
    gc.collect()
    figures |= measure_attach(plan, all_keys, dim, watch)
    return figures | measure_rowwise(plan, work, all_keys, dim, adapters, watch)


def measure_exact(
    plan: StorePlan, work: Workload, tier: RamTier, adapters: Sequence[Adapter], watch: BenchProgress
) -> Figures:
    """Adagrad: ours, torch, the peers, and the limits of the machine."""
    dim = tier.dim
    peers: dict[str, StorePeer] = {"torch": TorchPeer(plan.rows, dim, lr=plan.lr)}
    peers |= {each.name: each.store(plan.rows, dim, lr=plan.lr, rowwise=False) for each in adapters if each.store}
    limits = MachineLimits(plan.rows, dim, work.batches, threads=plan.threads, copy_bytes=plan.copy_bytes)
    ours, unique = HotrowStore(tier, plan.ids), UniquePeer(plan.ids)
    elsewhere = plan.pool // 2  # find must not profit from the step having warmed the same rows
    contestants = {
        **step_contestants(work, ours, peers, dim),
        "find": timed(lambda turn: ours.find(work.batch(turn + elsewhere).keys)),
        "unique": timed(lambda turn: unique.run(work.batch(turn).keys)),
        "random_read": limits.seconds_per_row,
        "copy": limits.seconds_per_byte,
    }
    watch.stage(f"dim {dim}: Adagrad, interleaved", plan.rounds + WARM_UP_ROUNDS)
    seconds = interleave(contestants, plan.rounds, watch)
    shares = {f"{name}_huge_share": huge_share(peer.values, peer.state) for name, peer in peers.items()}
    return {**exact_figures(work, tier, list(peers), seconds), **shares}


def exact_figures(work: Workload, tier: RamTier, peers: list[str], seconds: dict[str, Seconds]) -> Figures:
    ids, step = work.ids, seconds["step"]
    limit = step_limit(ids, work.mean_unique, tier.dim, tier.state_dim, seconds["random_read"], seconds["copy"])
    return {
        "step_mids": mega_rate(ids, step),
        **{f"{name}_mids": mega_rate(ids, seconds[name]) for name in peers},
        **{f"step_vs_{name}": median_ratio(seconds[name], step) for name in peers},
        "find_mids": mega_rate(ids, seconds["find"]),
        "unique_mids": mega_rate(ids, seconds["unique"]),
        "limit_mids": mega_rate(ids, limit),
        "limit_share": float(np.median(limit / step)),
        "random_read_mrows": mega_rate(1, seconds["random_read"]),
        "copy_gbps": float(1 / np.median(seconds["copy"]) / 1e9),
    }


def measure_rowwise(
    plan: StorePlan,
    work: Workload,
    all_keys: NDArray[np.uint64],
    dim: int,
    adapters: Sequence[Adapter],
    watch: BenchProgress,
) -> Figures:
    """Row-wise Adagrad: ours and the peers."""
    watch.stage(f"dim {dim}: filling the row-wise table", plan.fill_batches)
    table = Table(dim=dim, optimizer=RowwiseAdagrad(lr=plan.lr, eps=EPS))
    ours = HotrowStore(grow(table, all_keys, plan.ids, threads=plan.threads, watch=watch).tier, plan.ids)
    peers = {each.name: each.store(plan.rows, dim, lr=plan.lr, rowwise=True) for each in adapters if each.store}
    watch.stage(f"dim {dim}: row-wise Adagrad, interleaved", plan.rounds + WARM_UP_ROUNDS)
    seconds = interleave(step_contestants(work, ours, peers, dim), plan.rounds, watch)
    return {
        "rowwise_mids": mega_rate(plan.ids, seconds["step"]),
        **{f"{name}_rowwise_mids": mega_rate(plan.ids, seconds[name]) for name in peers},
        **{f"rowwise_vs_{name}": median_ratio(seconds[name], seconds["step"]) for name in peers},
    }


def step_contestants(work: Workload, ours: HotrowStore, peers: dict[str, StorePeer], dim: int) -> dict[str, Contestant]:
    """Everyone's step over the same ids with the same gradients."""
    gradients = work.gradients(dim)
    tensor = torch.from_numpy(gradients)

    def peer_step(peer: StorePeer) -> Callable[[int], None]:
        return lambda turn: peer.step(work.batch(turn).rows, tensor)

    return {
        "step": timed(lambda turn: ours.step(work.batch(turn).keys, gradients)),
        **{name: timed(peer_step(peer)) for name, peer in peers.items()},
    }
