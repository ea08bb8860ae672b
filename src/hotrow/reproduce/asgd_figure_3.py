"""ASGD Fig. 3: how stale gradients are in Async, for 250 to 3,000 workers, and why the paper's figures lie below.

Staleness counts the pushes from a worker's pull to its push, its own included: 1 in Sync, as the paper counts. Added up
over one worker's pushes, only the number of its last one is left, whoever was fast. So the mean is the number of
workers under any speeds, as long as all of them are there and pull right after they push. The spread is another matter:
it tells how much batch times differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.modes import Async, Mode
from hotrow.modes.base import Apply, Effect, Event, Pushed, RunFacts
from hotrow.reproduce.results import Tell, promise, promise_lines, silent, table
from hotrow.sim import (
    ClusterConfig,
    Crash,
    Exponential,
    Faults,
    LogNormal,
    Messages,
    NormalRate,
    SimCluster,
    Speeds,
)

WORKERS = (250, 500, 1000, 2000, 3000)
UPDATES = 260_000
PAPER = {1000: {"mean": 875.0, "variance": 4770.0}, 3000: {"mean": 2090.0, "variance": 11300.0}}
WITHIN = 0.02
DOWN_EVERY_S = 40.0  # a worker that comes and goes is down once in so long

# A batch takes a second on average. The paper's model: normal-like rates, and each worker's pushes a Poisson process.
POISSON = Speeds(sample_s=1.0, machines=NormalRate(spread=0.1), batches=Exponential())
UNEVEN_MACHINES = Speeds(sample_s=1.0, machines=NormalRate(spread=0.08))


@dataclass(slots=True)
class StalenessLog:
    """Watches a run and keeps the staleness of every push, with its worker."""

    staleness: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """Nothing is counted yet."""

    def cut(self, time_s: float) -> None:
        """No shard is lost."""

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """A push that was applied, counted from 1."""
        if isinstance(event, Pushed) and effects and isinstance(effects[0], Apply):
            self.staleness.append(effects[0].step - event.pulled_step + 1)
            self.workers.append(event.worker)


def run(quick: bool = False, *, seed: int = 1, tell: Tell = silent) -> dict[str, Any]:
    """Means for each number of workers, and what each explanation of the paper's figures comes to."""
    shrink = 50 if quick else 1
    updates = UPDATES // shrink
    poisson = {}
    for size in (size // shrink for size in WORKERS):
        poisson[size] = found = figures_of(logged(POISSON, Faults(), size, updates, seed), size)
        tell(f"{size:,} workers: mean staleness {found['mean']:,.0f}")
    told = []
    for whole, paper in PAPER.items():
        size = whole // shrink
        told.append({"explanation": "each worker a Poisson process", **poisson[size]})
        for name, speeds, faults in explanations(size, paper["mean"] / whole, updates / size):
            told.append({"explanation": name, **figures_of(logged(speeds, faults, size, updates, seed), size)})
            tell(f"{name}, {size:,} workers: mean {told[-1]['mean']:,.0f}, variance {told[-1]['variance']:,.0f}")
    off = max(abs(each["mean"] / size - 1) for size, each in poisson.items())
    sizes = f"{min(poisson):,} to {max(poisson):,}"
    said = f"mean staleness is the number of workers within {100 * WITHIN:g} %, for {sizes}"
    return {
        "settings": {"updates": updates, "seed": seed, "batch_s": 1.0, "machines": 0.1, "shrunk_by": shrink},
        "paper": {str(size): each for size, each in PAPER.items()},
        "means": list(poisson.values()),
        "explanations": told,
        "promises": [promise(said, off <= WITHIN, f"{100 * off:.1f} % off")],
    }


def explanations(size: int, part: float, rounds: float) -> list[tuple[str, Speeds, Faults]]:
    """What could put the mean at `part` of the workers, or the variance where the paper has it."""
    # A request waits for a uniform time of 0 to d, and so does a push: d / 2 of 1 + d lies between push and pull.
    wait_s = (1 - part) / (part - 0.5)
    down = _coming_and_going(size, part, rounds)
    return [
        ("machines differ by 8 %", UNEVEN_MACHINES, Faults()),
        ("batches differ by 8 %", _uneven_batches(0.08), Faults()),
        (f"the same, {100 * (1 - part):.1f} % are down", _uneven_batches(0.08), down),
        (f"batches differ by 5 %, {100 * (1 - part):.1f} % are down", _uneven_batches(0.05), down),
        (f"requests wait up to {wait_s:.2f} batches", _uneven_batches(0.08), Faults(messages=_slow_requests(wait_s))),
    ]


def _uneven_batches(sigma: float) -> Speeds:
    return Speeds(sample_s=1.0, batches=LogNormal(sigma=sigma))


def _slow_requests(wait_s: float) -> Messages:
    return Messages(delay=1.0, delay_s=wait_s, timeout_s=10.0 + 10.0 * wait_s)


def _coming_and_going(size: int, part: float, rounds: float) -> Faults:
    """Everybody is down for the same share of the time, each at times of its own."""
    down_s = (1 - part) * DOWN_EVERY_S
    crashes = [
        Crash(worker=worker, at_s=(cycle + worker / size) * DOWN_EVERY_S, restart_after_s=down_s)
        for worker in range(size)
        for cycle in range(int(rounds / part / DOWN_EVERY_S) + 2)
    ]
    return Faults(crashes=tuple(crashes), detect_s=0.0)


def logged(speeds: Speeds, faults: Faults, size: int, updates: int, seed: int) -> StalenessLog:
    log = StalenessLog()
    config = ClusterConfig(workers=size, local_batch=1, speeds=speeds, faults=faults)
    cluster = SimCluster(
        Async(), config, data=updates + 4 * size, seed=seed, watchers=(log,)
    )  # nobody runs out of data
    cluster.run(until_samples=updates)
    return log


def figures_of(log: StalenessLog, size: int) -> dict[str, Any]:
    """Of all pushes, of those after the start, and of the workers' means."""
    values, owners = np.array(log.staleness, dtype=np.float64), np.array(log.workers)
    half = values[len(values) // 2 :]
    counts = np.bincount(owners, minlength=size)
    means = np.bincount(owners, weights=values, minlength=size)[counts > 0] / counts[counts > 0]
    return {
        "workers": size,
        "updates": len(values),
        "mean": float(values.mean()),
        "variance": float(values.var()),
        "first_mean": _mean(values[:size]),
        "first_10_mean": _mean(values[: 10 * size]),
        "second_half_mean": _mean(half),
        "second_half_variance": float(half.var()),
        "variance_of_worker_means": float(means.var()),
    }


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean())


def lines(result: dict[str, Any]) -> list[str]:
    """For people."""
    means = [
        [f"{each['workers']:,}", f"{each['mean']:,.1f}", f"{100 * (each['mean'] / each['workers'] - 1):+.2f} %",
         f"{each['first_mean']:,.0f}", f"{each['first_10_mean']:,.0f}", f"{each['second_half_mean']:,.1f}"]
        for each in result["means"]
    ]  # fmt: skip
    head = ["workers", "mean staleness", "off", "first round", "first 10 rounds", "second half"]
    rows = [
        [each["explanation"], f"{each['workers']:,}", f"{each['mean']:,.0f}", f"{each['variance']:,.0f}",
         f"{each['second_half_variance']:,.0f}", f"{each['variance_of_worker_means']:,.0f}"]
        for each in result["explanations"]
    ]  # fmt: skip
    rows += [
        ["the paper", f"{int(size):,}", f"{each['mean']:,.0f}", f"{each['variance']:,.0f}", "", ""]
        for size, each in result["paper"].items()
    ]
    told = ["if", "workers", "mean", "variance", "second half", "of workers' means"]
    return [*table(head, means), "", *table(told, rows), "", *promise_lines(result)]
