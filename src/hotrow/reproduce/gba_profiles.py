"""How a shared cluster may strain its workers: profiles with one parameter each, found from Sync and Async alone.

The paper does not say how its cluster strained them. So there are several profiles: workers that are slow for a while,
and batches of which each has its own luck. The parameter is found by bisection until Async over Sync is the paper's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from hotrow.reproduce.gba_tasks import BATCH_S, PaperTask, measure
from hotrow.sim import LogNormal, Speeds, Stragglers

JITTER = 0.005  # of a batch on a machine that nobody else uses
SHARE = 0.05  # of the workers straggle at a time
HALVINGS = 8


@dataclass(frozen=True, slots=True)
class Profile:
    """A way to strain workers. The larger the parameter, the slower is Sync."""

    title: str
    parameter: str
    low: float
    high: float
    strained: Callable[[Speeds, float], Speeds]
    pace: Callable[[float], float]  # of a worker that never waits, relative to one that nobody strains


def spells(every_s: float) -> Profile:
    """A share of the workers is slow for a while, and then others are; the parameter says how slow."""

    def strained(speeds: Speeds, factor: float) -> Speeds:
        slow = Stragglers(share=SHARE, factor=factor, every_s=every_s)
        return speeds.model_copy(update={"stragglers": (slow,)})

    title = f"one worker in {1 / SHARE:.0f} is slow, drawn anew every {every_s:g} s"
    return Profile(title, "factor", 1.2, 12.0, strained, lambda factor: 1 - SHARE + SHARE / factor)


def _lucky(speeds: Speeds, sigma: float) -> Speeds:
    return speeds.model_copy(update={"batches": LogNormal(sigma=sigma)})


def _as_before(parameter: float) -> float:
    """The mean time of a batch stays what it is."""
    return 1.0


def profiles(task: PaperTask) -> dict[str, Profile]:
    """All that a task is tried under."""
    long_s, short_s = task.spells_s
    return {
        f"spells of {long_s:g} s": spells(long_s),
        f"spells of {short_s:g} s": spells(short_s),
        "luck of a batch": Profile("batch times are log-normal", "sigma", 0.05, 1.0, _lucky, _as_before),
    }


def plain(task: PaperTask, qps: float, jitter: float = JITTER) -> Speeds:
    """Workers that nobody strains, and that come to so many samples per second together, traffic left out."""
    return Speeds(batch_s=BATCH_S, sample_s=task.settings.cluster.workers / qps, batches=LogNormal(sigma=jitter))


def speeds_of(task: PaperTask, profile: Profile, parameter: float) -> Speeds:
    """A strained cluster whose asynchronous workers come to about the paper's QPS."""
    return profile.strained(plain(task, task.qps["async"][0] / profile.pace(parameter)), parameter)


def calibrate(task: PaperTask, profile: Profile, seeds: Sequence[int]) -> float:
    """The parameter at which Async over Sync is as in the paper.

    Async hardly depends on it, so it is measured once, where Sync has come to the paper's QPS.
    """
    parameter = _bisected(task, profile, seeds, task.qps["sync"][0])
    asynchronous = _qps(task, "async", speeds_of(task, profile, parameter), seeds)
    return _bisected(task, profile, seeds, asynchronous / task.ratio)


def _bisected(task: PaperTask, profile: Profile, seeds: Sequence[int], wanted: float) -> float:
    """Where Sync has the wanted QPS."""
    low, high = log(profile.low), log(profile.high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _qps(task, "sync", speeds_of(task, profile, exp(middle)), seeds) > wanted:
            low = middle
        else:
            high = middle
    return exp((low + high) / 2)


def _qps(task: PaperTask, label: str, speeds: Speeds, seeds: Sequence[int]) -> float:
    return fmean(measure(task, label, speeds, seed=seed, seconds=task.seconds).qps for seed in seeds)
