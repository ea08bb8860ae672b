"""The three tasks of GBA's Table 5.1 as clusters in virtual time: what their hardware, links and traffic are.

Workers, batches and private parameters come from the presets of `hotrow simulate`. Hardware is the same in all modes:
Sync's few workers hold what the many of the other modes hold together, links included. The wire is ours, as measured on
loopback: ZeroMQ to the servers, raw TCP in the ring. There are as many servers as workers, so that worker links are the
limit.

The paper gives no sizes. We take one weight for every 19 FLOPs of a sample (a plain network needs 6 for each weight,
one that runs along a sequence many more), so a million for DeepFM; and rows of a batch after ids that repeat are gone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hotrow.modes import Mode
from hotrow.sim import ClusterConfig, CountingWork, Network, SimCluster, Speeds
from hotrow.sim.study.config import SimulationConfig
from hotrow.sim.study.file import load_simulation

LABELS = ("sync", "async", "hop-bs", "bsp", "hop-bw", "gba")
LATENCY_S, LINK = 160e-6, 2_500_000_000  # of one of the many workers
HOP_S, RING_LINK = 12e-6, 3_500_000_000
BATCH_S = 1e-3  # of computing, whatever the size of a batch
FLOPS_PER_WEIGHT = 19
ENDLESS = 2**60  # samples
WINDOWS = 12  # of a run, whose spread is told


@dataclass(frozen=True, slots=True)
class PaperTask:
    """A column of Table 5.1, and its line of Table 5.2."""

    preset: str
    flops: int  # of a sample
    row_bytes: int  # of a sample
    seconds: float  # that we simulate
    spells_s: tuple[float, float]  # how long workers are slow, where they are: many of Hop-BS's batches, and a few
    qps: dict[str, tuple[float, float]]  # mean and spread, by label

    @property
    def dense_bytes(self) -> int:
        """Of the dense parameters."""
        return 4 * self.flops // FLOPS_PER_WEIGHT

    @property
    def ratio(self) -> float:
        """Async over Sync, in the paper."""
        return self.qps["async"][0] / self.qps["sync"][0]

    @property
    def settings(self) -> SimulationConfig:
        """Workers, batches and modes."""
        return _preset(self.preset)


@lru_cache(maxsize=8)
def _preset(name: str) -> SimulationConfig:
    return load_simulation(name)


def _qps(*means_and_spreads: tuple[float, float]) -> dict[str, tuple[float, float]]:
    return {
        label: (1000.0 * mean, 1000.0 * spread) for label, (mean, spread) in zip(LABELS, means_and_spreads, strict=True)
    }


TASKS = {
    "criteo": PaperTask(
        "gba-criteo", 19_000_000, 500, 120.0, (60.0, 10.0),
        _qps((1436, 224), (3253, 84), (2227, 336), (3247, 93), (2559, 294), (3240, 97)),
    ),
    "alimama": PaperTask(
        "gba-alimama", 112_000_000, 2_000, 120.0, (60.0, 10.0),
        _qps((182, 52), (403, 33), (217, 65), (403, 33), (288, 48), (399, 35)),
    ),
    "private": PaperTask(
        "gba-private", 746_000_000, 5_000, 2400.0, (600.0, 60.0),
        _qps((43, 21), (90, 15), (29, 11), (88, 17), (66, 24), (87, 19)),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """A mode on a cluster."""

    qps: float  # up to the last step; one that is cut off at the end counts with neither its samples nor its time
    windows: tuple[float, ...]
    samples_applied: int
    samples_dropped: int  # too late, so for nothing
    parts_applied: int
    parts_zero: int  # applied with weight 0
    staleness: float  # of gradients, in steps
    staleness_max: int


def cluster(task: PaperTask, label: str, speeds: Speeds) -> tuple[Mode, ClusterConfig]:
    """A mode with its workers. `speeds` are those of one of the many workers."""
    own, shared = task.settings.modes[label], task.settings.cluster
    assert isinstance(own.mode, Mode)
    links = Network(
        latency_s=LATENCY_S,
        bandwidth=LINK * shared.workers,
        worker_bandwidth=round(LINK * own.speed),
        reduce_latency_s=HOP_S,
        reduce_bandwidth=round(RING_LINK * own.speed),
    )
    return own.mode, ClusterConfig(
        workers=own.workers or shared.workers,
        local_batch=own.local_batch or shared.local_batch,
        global_batch=shared.global_batch,
        speeds=speeds.model_copy(update={"sample_s": speeds.sample_s / own.speed}),
        network=links,
        window_s=task.seconds / WINDOWS,
    )


def measure(task: PaperTask, label: str, speeds: Speeds, *, seed: int, seconds: float, dense: float = 1.0) -> Measured:
    """A mode for so many virtual seconds; `dense` times the dense bytes."""
    mode, config = cluster(task, label, speeds)
    work = CountingWork(round(dense * task.dense_bytes), task.row_bytes)
    closed_s = [0.0]  # of the last step

    def closes(time_s: float, step: int) -> None:
        closed_s[0] = time_s

    result = SimCluster(mode, config, data=ENDLESS, work=work, seed=seed, on_step=closes).run(until_s=seconds)
    found = result.statistics
    return Measured(
        qps=result.samples_applied / closed_s[0],
        windows=tuple(rate for _, rate in result.rates),
        samples_applied=result.samples_applied,
        samples_dropped=found.samples_dropped.get("late", 0),
        parts_applied=found.applied,
        parts_zero=found.zero_weight,
        staleness=found.gradient.mean or 0.0,
        staleness_max=found.gradient.largest or 0,
    )


def stated() -> dict[str, Any]:
    """The choices above, for the record."""
    return {
        "latency_s": LATENCY_S,
        "worker_link_bytes_per_s": LINK,
        "ring_hop_s": HOP_S,
        "ring_link_bytes_per_s": RING_LINK,
        "batch_s": BATCH_S,
        "tasks": {
            name: {"dense_bytes": task.dense_bytes, "row_bytes_per_sample": task.row_bytes}
            for name, task in TASKS.items()
        },
    }
