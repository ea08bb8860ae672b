"""What the life of a row costs: eviction, rows in shared memory, 16-bit values.

In each contest a plain table (float32, no limit, memory of its own) meets a rival that differs from it in just this.
The plain one is the same in all of them and each rival is freed before the next is filled: never more than two tables.
"""

from contextlib import closing
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.growth import beyond_row, fill, grow
from hotrow.bench.plan import StorePlan
from hotrow.bench.rounds import WARM_UP_ROUNDS, BenchProgress, Contestant, Figures, interleave, median_ratio, timed
from hotrow.bench.shared_memory import lack_of_room, temporary_segment
from hotrow.bench.workload import HotrowStore, Workload, draw
from hotrow.config import Table
from hotrow.store import RamTier


def measure_life(
    plan: StorePlan, work: Workload, all_keys: NDArray[np.uint64], plain: RamTier, watch: BenchProgress
) -> Figures:
    """All contests of one dim; `plain` holds all keys."""
    return {
        **measure_eviction(plan, all_keys, plain, watch),
        "shm_vs_anon": measure_shared(plan, work, all_keys, plain, watch),
        "bf16_vs_fp32": measure_bfloat16(plan, work, all_keys, plain, watch),
    }


def measure_eviction(plan: StorePlan, all_keys: NDArray[np.uint64], plain: RamTier, watch: BenchProgress) -> Figures:
    """A full LRU table with room for half of the keys: in every batch there are some that push others out."""
    capacity = max(plan.rows // 2, 1)
    table = Table(dim=plain.dim, optimizer=plain.table.optimizer, capacity=capacity, eviction="lru")
    watch.stage(f"dim {plain.dim}: filling the LRU table", plan.fill_batches)
    grown = grow(table, all_keys[:capacity], plan.ids, threads=plan.threads, watch=watch)
    rival = grown.tier
    overhead = beyond_row(rival, grown.memory.bytes)  # now: later there is a list of evicted keys, of bounded size
    fill(rival, all_keys[capacity:], np.empty((plan.ids, rival.dim), np.float32), watch)
    rival.take_evicted_keys()  # a list that is full would make listing free
    watch.stage(f"dim {plain.dim}: drawing ids for eviction", 1)
    work = draw(replace(plan, pool=plan.eviction_batches), plan.rows)  # a batch that came before would find its rows
    before = rival.stats().evicted
    watch.stage(f"dim {plain.dim}: eviction, interleaved", plan.eviction_rounds + WARM_UP_ROUNDS)
    ratio = step_rate_ratio(work, rival, plain, plan.eviction_rounds, watch)
    evicted = rival.stats().evicted - before
    return {
        "evict_step_vs_plain": ratio,
        "evicted_per_batch": evicted / sum(batch.unique for batch in work.batches),
        "bytes_per_row_overhead_lru": overhead,
    }


def measure_shared(
    plan: StorePlan, work: Workload, all_keys: NDArray[np.uint64], plain: RamTier, watch: BenchProgress
) -> float | None:
    """The same table in a shared-memory segment; None where there is no room for it."""
    if lack_of_room(plan, plain.dim) is not None:
        return None
    with temporary_segment("shared") as segment:
        table = Table(name="shared", dim=plain.dim, optimizer=plain.table.optimizer, segment=segment)
        watch.stage(f"dim {plain.dim}: filling shared memory", plan.fill_batches)
        with closing(grow(table, all_keys, plan.ids, threads=plan.threads, watch=watch).tier) as rival:
            watch.stage(f"dim {plain.dim}: shared memory, interleaved", plan.rounds + WARM_UP_ROUNDS)
            return step_rate_ratio(work, rival, plain, plan.rounds, watch)


def measure_bfloat16(
    plan: StorePlan, work: Workload, all_keys: NDArray[np.uint64], plain: RamTier, watch: BenchProgress
) -> float | None:
    """The same table with values of 16 bits."""
    table = Table(dim=plain.dim, optimizer=plain.table.optimizer, type="bfloat16")
    watch.stage(f"dim {plain.dim}: filling the bfloat16 table", plan.fill_batches)
    rival = grow(table, all_keys, plan.ids, threads=plan.threads, watch=watch).tier
    watch.stage(f"dim {plain.dim}: bfloat16, interleaved", plan.rounds + WARM_UP_ROUNDS)
    return step_rate_ratio(work, rival, plain, plan.rounds, watch)


def step_rate_ratio(work: Workload, rival: RamTier, plain: RamTier, rounds: int, watch: BenchProgress) -> float | None:
    """The rival's step rate as a multiple of the plain table's."""
    gradients = work.gradients(plain.dim)

    def stepping(tier: RamTier) -> Contestant:
        ours = HotrowStore(tier, work.ids)
        return timed(lambda turn: ours.step(work.batch(turn).keys, gradients))

    seconds = interleave({"rival": stepping(rival), "plain": stepping(plain)}, rounds, watch)
    return median_ratio(seconds["plain"], seconds["rival"])
