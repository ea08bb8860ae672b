"""Part `tiered`: DeepFM above a table ten times its budget of GPU memory, beside the same with all rows there.

The budget counts everything: the rows that GPU memory holds, and the hash table of those below. `tiered_vs_hbm` is the
speed of training with rows in pinned host memory (PinnedTier) as a share of that in GPU memory; `_lfu` evicts by
frequency, `_rows` has no network. `_host` has the rows in the native store, `_disk` a part of them on disk; they are
left out where the native core is missing.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.host_tables import host_tables
from hotrow.bench.gpu.networks import DeepFmNetwork
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.table_twin import require
from hotrow.bench.gpu.tiered_run import STAGES, TieredRun, TieredTimes, WorkingTable, seconds_in_memory, synchronize
from hotrow.bench.gpu.training import ADAGRAD, OwnTable, Training, TrainingBatch, adam, made_batches, seeded
from hotrow.bench.gpu.workload import exact_gradients, keys_of, matrix_precision, zipf_ranks
from hotrow.store.hbm import HbmRows, HbmSpec, HbmTier, WorkingSet
from hotrow.store.hbm.pinned import PinnedTier
from hotrow.store.hbm.rows import joined_rows

CHECKED = 5  # large batches


def check(device: torch.device, plan: GpuPlan) -> None:
    """Rows after some large batches are those of a table that has all in GPU memory, to 1e-6."""
    small = replace(plan, ids=plan.check_samples * plan.fields, distinct=plan.check_rows, batches=2 * CHECKED)
    ids = zipf_ranks(device, small).reshape(CHECKED, 2, small.ids)
    random = torch.Generator(device).manual_seed(plan.seed)
    gradients = [exact_gradients(small.ids, plan.dim, random) for _ in range(small.batches)]
    spec = HbmSpec(dim=plan.dim, capacity=2 * plan.check_rows, rule=ADAGRAD, group_slots=max(4, plan.check_group))
    below = PinnedTier(spec, device)
    wanted = HbmTier(replace(spec, capacity=4 * plan.check_rows), device)
    upper = HbmTier(below.spec(int(plan.check_rows * plan.check_share), groups=8), device)
    with WorkingSet(upper, below) as working:
        _train_both(working, upper, wanted, ids, gradients)
    require(upper.stats().evicted > 0, "no row was displaced from GPU memory")
    require(working.moved.up_ahead > 0, "no row was read ahead")
    require(working.moved.up > len(below), "no row that was displaced came back")
    found, theirs = (_sorted(rows) for rows in (below.export(), wanted.export()))
    require(torch.equal(found.keys, theirs.keys), "the tiers hold other keys than GPU memory does")
    for ours, other in ((found.values, theirs.values), (found.state, theirs.state)):
        torch.testing.assert_close(ours, other, rtol=1e-6, atol=1e-6)
    for name, column in theirs.fields.items():
        require(torch.equal(found.fields[name], column), f"{name} differs")


def _train_both(
    working: WorkingSet[Any], upper: HbmTier, wanted: HbmTier, ids: Tensor, gradients: Sequence[Tensor]
) -> None:
    folded = [[upper.batch(keys_of(part)) for part in large] for large in ids]
    for number, parts in enumerate(folded):
        working.begin(parts)
        for following in folded[number + 1 : number + 2]:
            working.prefetch(following)
        for place, part in enumerate(parts):
            step = 2 * number + place
            working.apply(working.find(part), gradients[step], step=step)
            wanted.apply(wanted.find_or_init(wanted.batch(part.keys)), gradients[step], step=step)


def _sorted(chunks: Iterator[HbmRows]) -> HbmRows:
    rows = joined_rows([replace(chunk, changed=None).to("cpu") for chunk in chunks])
    return rows.select(rows.keys.argsort())


def measure(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    study = _Study(clock.device, plan)
    base = {"": study.in_memory(network=True), "_rows": study.in_memory(network=False)}
    for name, msamples in base.items():
        yield f"tiered_hbm{name}_msamples", msamples
    spec = HbmSpec(dim=plan.dim, capacity=plan.tiered_rows, rule=ADAGRAD)
    begin = perf_counter()
    below = PinnedTier(spec, clock.device)
    yield "pinned_gb", below.host_bytes / 1e9
    yield "pinned_lock_s", perf_counter() - begin
    yield from _pinned(study, below, base)
    del below
    for name, open_tier in host_tables(spec):
        with open_tier() as lower:
            study.fill(partial(_make_below, lower, torch.device("cpu")))
            yield from _rates(name, lower, study, torch.device("cpu"))
            yield from study.tiered(f"tiered_{name}", lower, base[""], network=True)


def _pinned(study: "_Study", below: PinnedTier, base: dict[str, float]) -> Iterator[tuple[str, float]]:
    study.fill(partial(_make_below, below, study.device))
    yield from _rates("pinned", below, study, study.device)
    yield from study.tiered("tiered", below, base[""], network=True)
    yield from study.tiered("tiered_lfu", below, base[""], network=True, eviction="lfu")
    yield from study.tiered("tiered_rows", below, base["_rows"], network=False)


def _make_below(lower: Any, device: torch.device, keys: Tensor) -> None:
    lower.read(keys.to(device), 0)


def _rates(name: str, lower: Any, study: "_Study", device: torch.device) -> Iterator[tuple[str, float]]:
    """Billions of rows a second that the tier reads and writes, of the size of a batch's."""
    keys = keys_of(torch.randperm(study.plan.tiered_rows)[: study.plan.tiered_moved]).to(device)
    rows = lower.read(keys, 0)
    yield f"{name}_read_brows", len(keys) / study.median_s(lambda: lower.read(keys, 0)) / 1e9
    yield f"{name}_write_brows", len(keys) / study.median_s(lambda: lower.write(rows)) / 1e9


class _Study:
    """Runs over one stream of large batches."""

    def __init__(self, device: torch.device, plan: GpuPlan) -> None:
        self.device, self.plan = device, plan
        self._parts = plan.tiered_parts
        count = plan.tiered_warm + plan.tiered_batches * plan.tiered_segments + 1  # one is read ahead
        stream = replace(plan, ids=plan.samples * plan.fields, distinct=plan.tiered_rows, batches=count * self._parts)
        batches = made_batches(zipf_ranks(device, stream), plan.samples, plan.seed)
        self._large = [batches[n : n + self._parts] for n in range(0, len(batches), self._parts)]

    @property
    def _samples(self) -> int:
        """Of a segment."""
        return self.plan.tiered_batches * self._parts * self.plan.samples

    def fill(self, make: Callable[[Tensor], object]) -> None:
        """Make all rows of a table."""
        begin, rows, step = perf_counter(), self.plan.tiered_rows, self.plan.tiered_moved
        for first in range(0, rows, step):
            make(keys_of(torch.arange(first, min(first + step, rows), device=self.device)))
        synchronize(self.device)
        print(f"made {rows:,} rows in {perf_counter() - begin:.1f} s", file=sys.stderr)

    def in_memory(self, *, network: bool) -> float:
        """Million samples a second with all rows in GPU memory."""
        tier = HbmTier(HbmSpec(dim=self.plan.dim, capacity=2 * self.plan.tiered_rows, rule=ADAGRAD), self.device)
        self.fill(tier.find_or_init)
        step, warm, size = self._step(OwnTable(tier), network), self.plan.tiered_warm, self.plan.tiered_batches
        with matrix_precision("high"):
            seconds_in_memory(step, self.device, self._large[:warm])
            times = [
                seconds_in_memory(step, self.device, self._large[first : first + size])
                for first in range(warm, len(self._large) - 1, size)
            ]
        return self._samples / median(times) / 1e6

    def tiered(
        self, name: str, lower: Any, in_memory: float, *, network: bool, eviction: str = "lru"
    ) -> Iterator[tuple[str, float]]:
        """The same through a working set: speed, GPU memory, rows and shares of time."""
        row_bytes = HbmTier(HbmSpec(dim=self.plan.dim, capacity=128, rule=ADAGRAD), self.device).stats().bytes / 128
        table_bytes, index_bytes = row_bytes * self.plan.tiered_rows, getattr(lower, "device_bytes", 0)
        budget = table_bytes * self.plan.tiered_share - index_bytes
        # Three in five rows of GPU memory are of one batch: buckets of 256 have room for all of theirs.
        spec = lower.spec(max(256, int(budget / (row_bytes + 4))), eviction=eviction, groups=8)
        upper = HbmTier(spec, self.device)
        working = WorkingSet(upper, lower)
        table = WorkingTable(working, upper)
        run = TieredRun(table, self._step(table, network), iter(self._large))
        with matrix_precision("high"):
            run.run(self.plan.tiered_warm)
            times = [run.run(self.plan.tiered_batches) for _ in range(self.plan.tiered_segments)]
        working.close()
        middle = sorted(times, key=lambda each: each.seconds)[len(times) // 2]
        yield f"{name}_msamples", self._samples / middle.seconds / 1e6
        yield f"{name}_vs_hbm", self._samples / middle.seconds / 1e6 / in_memory
        yield f"{name}_hbm_share", (upper.stats().bytes + index_bytes) / table_bytes
        yield from self._shares(name, middle)

    def _shares(self, name: str, times: TieredTimes) -> Iterator[tuple[str, float]]:
        """Of the time of the run; and rows, in thousands per mini-batch."""
        total = sum(times.stages.values())
        for stage in STAGES:
            yield f"{name}_{stage}_share", times.stages[stage] / total
        for stage in ("read", "write", "wait"):
            yield f"{name}_{stage}_share", getattr(times, f"{stage}_s") / times.seconds
        yield f"{name}_hidden_share", times.hidden
        parts = self.plan.tiered_batches * self._parts
        yield f"{name}_krows_up", times.rows_up / parts / 1e3
        yield f"{name}_krows_down", times.rows_down / parts / 1e3

    def _step(self, table: OwnTable, network: bool) -> Callable[[TrainingBatch], object]:
        if not network:
            return _RowsOnly(table, self.plan, self.device)
        make = partial(DeepFmNetwork, self.plan.fields, self.plan.dim, kernels=True)
        net = seeded(make, self.device, self.plan.seed)
        return Training(net, table, adam(net)).step

    def median_s(self, call: Callable[[], object]) -> float:
        """Of calls that end on the host."""
        times = []
        for _ in range(self.plan.tiered_segments + 1):
            synchronize(self.device)
            begin = perf_counter()
            call()
            synchronize(self.device)
            times.append(perf_counter() - begin)
        return median(times[1:])


class _RowsOnly:
    """Steps of a table alone: the same gradients for every batch."""

    def __init__(self, table: OwnTable, plan: GpuPlan, device: torch.device) -> None:
        random = torch.Generator(device).manual_seed(plan.seed)
        self._table = table
        self._gradients = torch.randn(plan.samples * plan.fields, plan.dim, device=device, generator=random)

    def __call__(self, batch: TrainingBatch) -> None:
        self._table.rows(batch.ids).grad = self._gradients
        self._table.update()
