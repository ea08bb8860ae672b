"""Fair timing on an unfair machine: everyone runs in every round, and only what ran in the same round is compared."""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]
Contestant = Callable[[int], float]  # runs with the batch of this round, returns its seconds

Figures = dict[str, float | None]  # None: not measured here

WARM_UP_ROUNDS = 3
BURST = 4  # turns in a row: a training loop does not start every step from cold caches and sleeping threads
PAUSE_S = 0.03  # the peers' OpenMP threads spin on for some 15 ms after their work, on the cores of whoever comes next


class BenchProgress(Protocol):
    """Who is told how far a measurement has come."""

    def stage(self, label: str, total: int) -> None:
        """A new part of `total` ticks begins."""

    def tick(self) -> None:
        """One more is done."""


class SilentProgress:
    """A Watch that shows nothing."""

    def stage(self, label: str, total: int) -> None:
        pass

    def tick(self) -> None:
        pass


def timed(run: Callable[[int], object]) -> Contestant:
    """A contestant whose seconds are the wall time of `run`."""

    def contestant(turn: int) -> float:
        start = time.perf_counter()
        run(turn)
        return time.perf_counter() - start

    return contestant


def interleave(
    contestants: Mapping[str, Contestant],
    rounds: int,
    watch: BenchProgress,
    *,
    burst: int = BURST,
    warm_up: int = WARM_UP_ROUNDS,
) -> dict[str, Seconds]:
    """Mean seconds of a turn, per round and contestant.

    In every round each runs `burst` turns, in a new order each time; warm-up rounds do not count.
    """
    names = list(contestants)
    order = np.random.default_rng(3)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    gc.disable()  # a collection would hit whoever happens to run
    try:
        for turn in range(0, (warm_up + rounds) * burst, burst):
            for place in order.permutation(len(names)):
                name = names[place]
                time.sleep(PAUSE_S)
                seconds[name].append(sum(contestants[name](turn + n) for n in range(burst)) / burst)
            watch.tick()
    finally:
        gc.enable()
    return {name: np.array(taken[warm_up:]) for name, taken in seconds.items()}


def median_ratio(slower: Seconds, ours: Seconds) -> float:
    """Median over the rounds of how many times faster we were."""
    return float(np.median(slower / ours))


def mega_rate(count: float, seconds: Seconds) -> float:
    """Millions per second in the median round."""
    return float(count / np.median(seconds) / 1e6)
