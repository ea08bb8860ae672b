"""How the step's rate falls as the table grows, beside how the machine's random reads fall over the same memory."""

import numpy as np

from hotrow.bench.growth import fill
from hotrow.bench.ids import keys_of
from hotrow.bench.limits import MachineLimits, step_limit
from hotrow.bench.peers import EPS
from hotrow.bench.plan import CURVE_DIM, StorePlan
from hotrow.bench.rounds import WARM_UP_ROUNDS, BenchProgress, interleave, timed
from hotrow.bench.workload import HotrowStore, draw
from hotrow.config import Table
from hotrow.optim.sparse import Adagrad
from hotrow.store import RamTier

Point = dict[str, float]


def measure_curve(plan: StorePlan, watch: BenchProgress) -> list[Point]:
    """One point for each of `plan.curve_rows`; the same table grows from one to the next."""
    table = Table(dim=CURVE_DIM, optimizer=Adagrad(lr=plan.lr, eps=EPS))
    tier = RamTier(table, threads=plan.threads)
    points = []
    for rows in plan.curve_rows:
        _grow_to(tier, rows, plan, watch)
        points.append(_measure_point(tier, rows, plan, watch))
    return points


def _grow_to(tier: RamTier, rows: int, plan: StorePlan, watch: BenchProgress) -> None:
    missing = np.random.default_rng(rows).permutation(np.arange(len(tier), rows))
    watch.stage(f"curve: growing to {rows:,} rows", -(-len(missing) // plan.ids))
    fill(tier, keys_of(missing), np.zeros((plan.ids, tier.dim), np.float32), watch)


def _measure_point(tier: RamTier, rows: int, plan: StorePlan, watch: BenchProgress) -> Point:
    work = draw(plan, rows)
    limits = MachineLimits(rows, tier.dim, work.batches, threads=plan.threads, copy_bytes=plan.copy_bytes)
    ours, gradients = HotrowStore(tier, plan.ids), work.gradients(tier.dim)
    watch.stage(f"curve: {rows:,} rows", plan.rounds + WARM_UP_ROUNDS)
    seconds = interleave(
        {
            "step": timed(lambda turn: ours.step(work.batch(turn).keys, gradients)),
            "find": timed(lambda turn: ours.find(work.batch(turn + plan.pool // 2).keys)),
            "random_read": limits.seconds_per_row,
            "copy": limits.seconds_per_byte,
        },
        plan.rounds,
        watch,
    )
    limit = step_limit(plan.ids, work.mean_unique, tier.dim, tier.state_dim, seconds["random_read"], seconds["copy"])
    slow, median, fast = np.percentile(seconds["step"], [75, 50, 25])
    return {
        "rows": rows,
        "step_mids": plan.ids / median / 1e6,
        "step_mids_low": plan.ids / slow / 1e6,
        "step_mids_high": plan.ids / fast / 1e6,
        "find_mids": plan.ids / float(np.median(seconds["find"])) / 1e6,
        "limit_mids": plan.ids / float(np.median(limit)) / 1e6,
        "random_read_mrows": 1 / float(np.median(seconds["random_read"])) / 1e6,
    }
