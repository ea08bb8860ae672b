"""The part `capacity`: training throughput over id spaces up to 100 T parameters, and over rows on disk."""

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotrow.bench.rounds import BenchProgress, Figures, Seconds, interleave
from hotrow.bench.tiers.counted import MeasuredStretch, flatness, relative_rates
from hotrow.bench.tiers.plan import CapacityJob, TiersPlan
from hotrow.bench.tiers.stream import CapacityStream, stored_ids
from hotrow.bench.tiers.training import TierTraining
from hotrow.bench.train import FILL
from hotrow.bench.workload import torch_threads
from hotrow.config import Table
from hotrow.optim.sparse import SGD
from hotrow.store import Rows
from hotrow.store.tiered import TieredTier


@dataclass(frozen=True, slots=True)
class CapacityPoint:
    """One size: parameters of the id space, and rows on disk before training."""

    parameters: float
    rows: int

    @property
    def name(self) -> str:
        """In keys of figures: t100_r20m."""
        return f"t{self.parameters / 1e12:g}_r{self.rows / 1e6:g}m".replace(".", "p")


def points_of(plan: CapacityJob) -> list[CapacityPoint]:
    """All id spaces with the most rows, then fewer rows in the largest space."""
    most, largest = max(plan.stored_rows), max(plan.parameters)
    spaces = [CapacityPoint(each, most) for each in plan.parameters]
    return spaces + [CapacityPoint(largest, each) for each in plan.stored_rows if each != most]


def measure_capacity(plan: TiersPlan, folder: Path, watch: BenchProgress) -> Figures:
    """Training at all points, interleaved. The points of one number of rows share a table."""
    capacity = plan.capacity
    points = points_of(capacity)
    stretches: dict[str, list[MeasuredStretch]] = {point.name: [] for point in points}
    contestants, sizes = {}, {}
    with torch_threads(plan.threads), ExitStack() as opened:
        watch.stage("writing rows to disk", sum(-(-rows // FILL) for rows in capacity.stored_rows))
        runs: dict[int, TierTraining] = {}
        for rows in capacity.stored_rows:
            place = folder / f"rows-{rows}"
            place.mkdir()
            runs[rows] = opened.enter_context(closing(TierTraining(plan, capacity_table(plan, place))))
            store_rows(runs[rows], capacity, rows, watch)
        watch.stage("capacity, interleaved", capacity.rounds + capacity.warm_up)
        for seed, point in enumerate(points):
            stream = CapacityStream(plan, int(point.parameters) // capacity.dim, point.rows, seed)
            contestants[point.name] = runs[point.rows].contestant(plan, stream.round, stretches[point.name])
        seconds = interleave(contestants, capacity.rounds, watch, burst=1, warm_up=capacity.warm_up)
        sizes = {rows: run.tier.stats() for rows, run in runs.items()}
    kept = {name: taken[capacity.warm_up :] for name, taken in stretches.items()}
    largest = sizes[max(sizes)]
    return {
        **capacity_figures(plan, points, seconds, kept),
        "rows": float(largest.rows),
        "disk_rows": float(largest.disk_rows),
        "disk_bytes": float(largest.disk_bytes),
        "memory_bytes": float(largest.bytes),
        "disk_index_bytes_per_row": largest.disk_index_bytes / largest.disk_rows,
    }


def capacity_figures(
    plan: TiersPlan,
    points: list[CapacityPoint],
    seconds: dict[str, Seconds],
    stretches: dict[str, list[MeasuredStretch]],
) -> Figures:
    """Rates of each point, and how flat they are over the spaces, over the rows and over all."""
    relative = relative_rates(seconds)
    processor = {name: np.array([each.processor_s / each.steps for each in kept]) for name, kept in stretches.items()}
    by_processor = relative_rates(processor)
    most, largest = max(point.rows for point in points), max(point.parameters for point in points)
    figures: Figures = {
        "spaces_flatness": flatness([relative[each.name] for each in points if each.rows == most]),
        "rows_flatness": flatness([relative[each.name] for each in points if each.parameters == largest]),
        "capacity_flatness": flatness(list(relative.values())),
        "processor_flatness": flatness(list(by_processor.values())),
    }
    for point in points:
        taken, counts = seconds[point.name], [each.counts.moved_up / each.steps for each in stretches[point.name]]
        figures[f"{point.name}_samples_per_s"] = plan.samples / float(np.median(taken))
        figures[f"{point.name}_relative"] = relative[point.name]
        figures[f"{point.name}_processor_ms"] = 1e3 * float(np.median(processor[point.name]))
        figures[f"{point.name}_moved_up_per_step"] = float(np.median(counts))
    return figures


def capacity_table(plan: TiersPlan, folder: Path) -> Table:
    """The same memory for every size, everything counted: rows, index of the disk, rows on their way to it."""
    capacity = plan.capacity
    return Table(
        dim=capacity.dim,
        optimizer=SGD(lr=plan.lr),
        capacity=f"{capacity.memory_bytes}B",
        disk=f"{capacity.table_bytes}B",
        path=folder,
    )


def store_rows(run: TierTraining, plan: CapacityJob, rows: int, watch: BenchProgress) -> None:
    """Write whole rows into the file, then bring the hot ones into memory as training would."""
    tier = run.tier
    assert isinstance(tier, TieredTier)
    block = np.random.default_rng(1).normal(0, 0.01, (min(FILL, rows), tier.dim)).astype(np.float32)
    for start in range(0, rows, FILL):
        keys = stored_ids(plan, np.arange(start, min(start + FILL, rows))).view(np.uint64)
        fields = {name: np.ones(len(keys), np.uint32) for name in tier.fields}
        state = np.zeros((len(keys), tier.state_dim), np.float32)
        tier.disk.write(Rows(keys, block[: len(keys)], state, fields))
        watch.tick()
    tier.disk.flush()
    hot = stored_ids(plan, np.arange(plan.hot_ids))
    for start in range(0, len(hot), FILL):
        tier.find_or_init(hot[start : start + FILL])
