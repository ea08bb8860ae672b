"""Time of an epoch over links of 1 Gb/s and others: Hybrid with a cache, without, Sync with look-ahead, HET AR.

All train the same rows, in turns. The link of each worker is emulated by a token bucket in each direction; what the
server's own link would hold back is not. Of the bounds, the one "on own cores" is computed: it is what the measured
processor time and bytes would allow where every role has a core.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotrow.bench.cache import all_gather, clusters
from hotrow.bench.cache.bound import StepCost
from hotrow.bench.cache.cells import cache_of
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.skew import fitted_exponent
from hotrow.bench.cluster.processor import cores
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.data.source import Source
from hotrow.modes import Hybrid, Sync
from hotrow.optim.sparse import SGD

SKIPPED = 12  # steps of a stretch, where there is no cache to be filled
CACHED, PLAIN, AHEAD, GATHERED = "hybrid cached", "hybrid", "sync look-ahead", "het ar"

Costs = Mapping[str, Sequence[StepCost]]  # by contestant and round


@dataclass(frozen=True, slots=True)
class EpochRow:
    """Of one contestant over one link; seconds are of an epoch, medians of the rounds."""

    gbps: float
    contestant: str
    epoch_s: float
    bound_s: float
    bound_share: float
    link_s: float  # bytes over the link
    processor_s: float  # of all roles, over the cores
    own_cores_s: float  # computed
    mb_per_step: float  # of one worker, both directions
    speedup: float  # of the cached one over this one


def measure(plan: CachePlan, folder: Path, watch: BenchProgress) -> tuple[Figures, list[EpochRow]]:
    """All contestants over every link."""
    file, exponent = folder / "epoch.parquet", fitted_exponent(plan.cluster_rows, plan.ids)
    rows: list[EpochRow] = []
    for gbps in plan.gbps:
        job = plan.over_link(gbps)
        source = clusters.write_samples(job, file, exponent, watch)
        watch.stage(f"epochs over {gbps:g} Gb/s", 4 * plan.rounds)
        rows += rows_of(job, gbps, _costs(job, source, file, gbps, watch), cores())
    return figures_of(rows), rows


def _costs(plan: CachePlan, source: Source, file: Path, gbps: float, watch: BenchProgress) -> Costs:
    cache = cache_of(plan, plan.cluster_rows, plan.epoch_policy, max(plan.staleness))
    skipped = min(SKIPPED, plan.cluster_warm)
    with (
        closing(clusters.trainer_of(plan, SGD(lr=0.01), cache, gbps)) as cached,
        closing(clusters.trainer_of(plan, SGD(lr=0.01), None, gbps)) as plain,
    ):

        def cost(turn: int, name: str) -> StepCost:
            part = clusters.part_of(plan, source, turn)
            if name == GATHERED:
                return all_gather.measure(plan, file, turn, gbps, skipped)
            if name == CACHED:
                return clusters.step_cost(plan, cached, Hybrid(), part, plan.cluster_warm)
            return clusters.step_cost(plan, plain, Hybrid() if name == PLAIN else Sync(look_ahead=1), part, skipped)

        return _in_turns((CACHED, PLAIN, AHEAD, GATHERED), plan.rounds, cost, watch)


def _in_turns(
    names: Sequence[str], rounds: int, cost: Callable[[int, str], StepCost], watch: BenchProgress
) -> dict[str, list[StepCost]]:
    """Every contestant in every round, in a new order each time."""
    found: dict[str, list[StepCost]] = {name: [] for name in names}
    order = np.random.default_rng(3)
    for turn in range(rounds):
        for place in order.permutation(len(names)):
            found[names[place]].append(cost(turn, names[place]))
            watch.tick()
    return found


def rows_of(plan: CachePlan, gbps: float, costs: Costs, on: int) -> list[EpochRow]:
    """The table of one link, on a machine with so many cores."""
    steps = plan.epoch_samples / plan.global_samples
    cached = np.array([each.seconds for each in costs[CACHED]])
    rows = []
    for name, mine in costs.items():
        seconds = np.array([each.seconds for each in mine])
        bounds = np.array([each.bound_s(gbps, on) for each in mine])
        rows.append(
            EpochRow(
                gbps=gbps,
                contestant=name,
                epoch_s=steps * float(np.median(seconds)),
                bound_s=steps * float(np.median(bounds)),
                bound_share=float(np.median(bounds / seconds)),
                link_s=steps * float(np.median([each.link_s(gbps) for each in mine])),
                processor_s=steps * float(np.median([sum(each.processor_s.values()) for each in mine])) / on,
                own_cores_s=steps * float(np.median([each.own_cores_s(gbps) for each in mine])),
                mb_per_step=float(np.median([each.nbytes for each in mine])) / 1e6,
                speedup=float(np.median(seconds / cached)),
            )
        )
    return rows


def figures_of(rows: Sequence[EpochRow]) -> Figures:
    """By link: the cached one's share of its bound, and its speed-up over the others, measured and computed."""
    found: Figures = {}
    for gbps in dict.fromkeys(row.gbps for row in rows):
        mine = {row.contestant: row for row in rows if row.gbps == gbps}
        link = f"{gbps:g}gbit".replace(".", "_")
        found |= {
            f"epoch_bound_share_{link}": mine[CACHED].bound_share,
            f"epoch_speedup_{link}": mine[PLAIN].speedup,
            f"epoch_speedup_sync_{link}": mine[AHEAD].speedup,
            f"epoch_speedup_ar_{link}": mine[GATHERED].speedup,
            f"epoch_speedup_own_cores_{link}": mine[PLAIN].own_cores_s / mine[CACHED].own_cores_s,
            f"epoch_speedup_link_{link}": mine[PLAIN].link_s / mine[CACHED].link_s,
        }
    shares = [value for key, value in found.items() if key.startswith("epoch_bound_share") and value is not None]
    return found | {"epoch_bound_share": min(shares, default=None)}
