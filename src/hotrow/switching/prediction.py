"""How many samples per second Sync and GBA would train, from how long the last batches kept each worker busy.

The formulas are in docs/switching.md. Nothing is drawn: the expected slowest of one batch per worker comes exactly
from the batches remembered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from operator import mul
from statistics import fmean, median
from typing import Literal

from pydantic import Field

from hotrow.spec import Spec

ModeName = Literal["sync", "gba"]
COMPARED = 5  # batches of about the same age; older ones met another load


class Costs(Spec):
    """What the modes cost beside the work on a batch, in seconds."""

    sync_step_s: float = Field(ge=0)  # a synchronous step beyond its slowest worker: all-reduce, barrier, update
    gba_batch_s: float = Field(ge=0)  # a batch in GBA beyond the work on it: pull from the dense server, push to it


@dataclass(frozen=True, slots=True)
class BatchTime:
    """One finished batch of a worker."""

    busy_s: float
    samples: int
    staleness: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """Both modes under the present spread."""

    samples_per_s: dict[ModeName, float]  # of GBA only those whose dense gradients are not too old to count
    spread: float  # mean busy time of the slowest worker over that of the median one
    idle_share: float  # part of the workers' time that Sync spends waiting for the slowest
    late_share: float  # part of the batches that come too late in GBA
    staleness: float  # mean over the batches remembered, as it was
    memory_s: float  # how long these batches kept a worker busy, on average


def predict(batches: Mapping[int, Sequence[BatchTime]], parts: int, costs: Costs, tolerance: int) -> Prediction:
    """From the batches of each worker, newest last, and the local batches in a global one."""
    depth = min(map(len, batches.values()))  # equally many of everyone, or newcomers would be compared with the past
    recent = [batches[worker][-depth:] for worker in sorted(batches)]
    busy_s = [[batch.busy_s for batch in own] for own in recent]
    means_s = [sum(own) / depth for own in busy_s]
    samples = [sum([batch.samples for batch in own]) / depth for own in recent]
    slowest_s, working_s = _step_s(busy_s[:parts], parts)
    rates = [1 / (mean_s + costs.gba_batch_s) for mean_s in means_s]  # of batches in GBA
    late = _late(busy_s, parts / sum(rates), parts, costs.gba_batch_s, tolerance)
    return Prediction(
        samples_per_s={
            "sync": parts * fmean(samples[:parts]) / (slowest_s + costs.sync_step_s),
            "gba": sum([each * (1 - share) * rate for each, share, rate in zip(samples, late, rates, strict=True)]),
        },
        spread=max(means_s) / median(means_s),
        idle_share=max(0.0, 1 - working_s / (slowest_s * len(recent))),  # rounding may take it below
        late_share=sum(map(mul, late, rates)) / sum(rates),
        staleness=sum([batch.staleness for own in recent for batch in own]) / (depth * len(recent)),
        memory_s=depth * fmean(means_s),
    )


def expected_maximum(draws: Sequence[Sequence[float]]) -> float:
    """The mean of the largest when one number is drawn from each list, all equally likely and independent.

    P(largest <= x) is the product of the lists' distribution functions. From the top down it starts at 1 and loses a
    factor at each number, until it is 0 below the highest of the lists' smallest numbers.
    """
    least = max(map(min, draws))
    left = [len(own) for own in draws]
    chance, mean = 1.0, 0.0
    for number, owner in sorted(
        ((number, owner) for owner, own in enumerate(draws) for number in own if number >= least), reverse=True
    ):
        before, chance = chance, chance * ((left[owner] - 1) / left[owner])
        mean += number * (before - chance)
        left[owner] -= 1
    return mean


def _step_s(busy_s: Sequence[Sequence[float]], parts: int) -> tuple[float, float]:
    """How long a synchronous step waits for its slowest worker, and how long all workers together work in it."""
    depth = len(busy_s[0])
    if len(busy_s) < parts:
        steps = [_dealt(busy_s, parts, first) for first in range(depth)]
        return fmean(map(max, steps)), fmean(map(sum, steps))
    ages = [slice(max(0, newest - COMPARED), newest) for newest in range(depth, 0, -COMPARED)]
    return fmean(expected_maximum([own[age] for own in busy_s]) for age in ages), sum(map(sum, busy_s)) / depth


def _dealt(busy_s: Sequence[Sequence[float]], parts: int, first: int) -> list[float]:
    """When each worker ends a step that begins with its batch `first`; a free worker takes the next part."""
    ends = [(own[first], worker, first) for worker, own in enumerate(busy_s)]
    heapify(ends)
    for _ in range(parts - len(busy_s)):
        end, worker, at = ends[0]
        at = (at + 1) % len(busy_s[worker])
        heapreplace(ends, (end + busy_s[worker][at], worker, at))
    return [end for end, _, _ in ends]


def _late(busy_s: Sequence[Sequence[float]], step_s: float, parts: int, cost_s: float, tolerance: int) -> list[float]:
    """The share of each worker's batches whose dense gradients come too late to count in GBA with steps of `step_s`."""
    ahead = (len(busy_s) - 1) / parts  # places given out and not pushed yet put a token ahead of its step
    in_time_s = (tolerance + ahead) * step_s - cost_s
    return [
        sum([min(1.0, max(0.0, (each - in_time_s) / step_s)) for each in own]) / len(own)
        if max(own) > in_time_s
        else 0.0
        for own in busy_s
    ]
