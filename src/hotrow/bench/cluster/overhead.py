"""What a cluster of one trainer and one shard costs beside one process, and which of its processes spend it."""

from contextlib import closing

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.cluster.stretches import WARM_UP, StretchRate, contestant, figures, part_of, race, stretch, trainer_of
from hotrow.bench.rounds import BenchProgress, Figures, median_ratio
from hotrow.bench.workload import torch_threads
from hotrow.data.source import Source
from hotrow.modes import Hybrid, Sync
from hotrow.runtime.settings import Local, Ray
from hotrow.trainer import Trainer

THREADS = (1, 2)


def measure(plan: ClusterPlan, source: Source, watch: BenchProgress) -> Figures:
    """For each network, with one thread for every role and with two; the key without a name is of the worst."""
    found: Figures = {}
    for name, hidden in plan.networks.items():
        for threads in THREADS:
            told = _network(plan, source, f"{name}, {threads} threads", hidden, threads, watch)
            found |= {f"{name}_t{threads}_{key}": value for key, value in told.items()}
    worst = min(value or 0 for key, value in found.items() if key.endswith("_overhead_vs_local"))
    return found | {"overhead_vs_local": worst}


def _network(
    plan: ClusterPlan, source: Source, name: str, hidden: Hidden, threads: int, watch: BenchProgress
) -> Figures:
    hybrid = Hybrid()
    here: list[StretchRate] = []
    there: list[StretchRate] = []
    alone = Ray(trainers=1, shards=1, threads=threads)
    with (
        torch_threads(threads),
        closing(trainer_of(plan, hidden, Local(), threads=threads)) as local,
        closing(trainer_of(plan, hidden, alone)) as cluster,
    ):
        contestants = {
            "local": contestant(plan, source, local, hybrid, here),
            "local_sync": contestant(plan, source, local, Sync()),
            "cluster": contestant(plan, source, cluster, hybrid, there),
            "cluster_sync": contestant(plan, source, cluster, Sync()),
        }
        seconds = race(plan, contestants, f"{name}: one trainer and one shard beside one process", watch)
        waited = _waited_share(plan, source, cluster)
    fastest = np.minimum(seconds["local"], seconds["local_sync"])  # of one process: the modes do the same there
    return {
        "overhead_vs_local": median_ratio(fastest, seconds["cluster"]),
        "overhead_vs_local_sync": median_ratio(seconds["local_sync"], seconds["cluster_sync"]),
        **{f"{who}_step_ms": 1e3 * float(np.median(each)) for who, each in seconds.items()},
        "local_cpu_ms": _processor_ms(plan, here, "run"),
        **{f"cluster_{role.split()[0]}_cpu_ms": _processor_ms(plan, there, role) for role in there[0].processor},
        "trainer_waits_for_rows": waited,
    }


def _processor_ms(plan: ClusterPlan, paces: list[StretchRate], role: str) -> float:
    """Of a global batch, in the median round."""
    return 1e3 * plan.samples * float(np.median([pace.processor[role] for pace in paces[WARM_UP:]]))


def _waited_share(plan: ClusterPlan, source: Source, trainer: Trainer) -> float:
    """Of the trainer's time for a batch in Hybrid, in which its rows were not there."""
    (before,) = figures(trainer, "trainer")
    trainer.switch(Hybrid())
    stretch(plan, trainer, part_of(plan, source, 1))
    (after,) = figures(trainer, "trainer")
    waited, computed = (after[name] - before[name] for name in ("waited_s", "computed_s"))
    return waited / max(waited + computed, 1e-9)
