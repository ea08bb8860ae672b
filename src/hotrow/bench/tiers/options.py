"""The part `options`: the same training with one setting of the disk tier changed at a time."""

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotrow.bench.rounds import BenchProgress, Figures, Seconds, interleave, median_ratio
from hotrow.bench.tiers.counted import MeasuredStretch
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.bench.tiers.speed import stream_file, tiered_table
from hotrow.bench.tiers.training import TierTraining, core_binder
from hotrow.bench.train import rarest_first, stretch_of
from hotrow.bench.workload import torch_threads
from hotrow.store.ssd import DiskIo
from hotrow.store.tiered import TieredTier


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of a contestant; those of the first one are the defaults of a table."""

    name: str
    direct: bool = True
    io: DiskIo = "auto"
    bound: bool = False
    ahead: bool = True


VARIANTS = (
    Variant("base"),
    Variant("buffered", direct=False),
    Variant("threads", io="threads"),
    Variant("inline", ahead=False),
    Variant("bound", bound=True),
)
# How many times faster training is with an option: the contestant without it, the one with it.
GAINS = {
    "direct_gain": ("buffered", "base"),
    "uring_gain": ("threads", "base"),
    "ahead_gain": ("inline", "base"),
    "binding_gain": ("base", "bound"),
}


def measure_options(plan: TiersPlan, folder: Path, watch: BenchProgress) -> Figures:
    """Steps of all variants at the largest dim, interleaved; each has a table of its own."""
    dim = max(plan.dims)
    source = stream_file(plan, folder, watch)
    order = rarest_first(plan.train)
    binder = core_binder(plan.threads)
    variants = [each for each in VARIANTS if not each.bound or binder is not None]
    watch.stage(f"dim {dim}: options, interleaved", plan.rounds + plan.warm_up)
    stretches: dict[str, list[MeasuredStretch]] = {each.name: [] for each in variants}
    contestants, kinds = {}, {}
    with torch_threads(plan.threads), ExitStack() as opened:
        for each in variants:
            place = folder / each.name
            place.mkdir()
            table = tiered_table(plan, dim, place, direct_io=each.direct)
            run = opened.enter_context(
                closing(TierTraining(plan, table, io=each.io, binder=binder if each.bound else None))
            )
            run.fill(order)
            contestants[each.name] = run.contestant(
                plan, lambda turn: stretch_of(plan.train, source, turn), stretches[each.name], ahead=each.ahead
            )
            kinds[each.name] = _disk_kind(run)
        seconds = interleave(contestants, plan.rounds, watch, burst=1, warm_up=plan.warm_up)
    kept = {name: taken[plan.warm_up :] for name, taken in stretches.items()}
    used = {"direct_used": float(kinds["base"][0]), "uring_used": float(kinds["base"][1] == "uring")}
    bound = None if binder is None else float(len(binder.plan.bindings))  # 0 on one NUMA node
    return {"dim": float(dim), **used, "bound_threads": bound, **option_figures(seconds, kept)}


def option_figures(seconds: dict[str, Seconds], stretches: dict[str, list[MeasuredStretch]]) -> Figures:
    """Times of each variant, and the gain of each option; None where a variant was not measured."""
    figures: Figures = {}
    for name, taken in seconds.items():
        waits = [each.counts.wait_s / each.steps for each in stretches[name]]
        figures[f"{name}_step_ms"] = 1e3 * float(np.median(taken))
        figures[f"{name}_disk_wait_ms"] = 1e3 * float(np.median(waits))
    for key, (without, with_it) in GAINS.items():
        there = without in seconds and with_it in seconds
        figures[key] = median_ratio(seconds[without], seconds[with_it]) if there else None
    return figures


def _disk_kind(run: TierTraining) -> tuple[bool, str]:
    """Whether the file is read past the page cache, and by which calls."""
    assert isinstance(run.tier, TieredTier)
    stats = run.tier.disk.stats()
    return stats.direct, stats.io
