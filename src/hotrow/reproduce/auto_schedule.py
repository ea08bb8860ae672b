"""What somebody who knows the future would do: from the rates of two modes over a day, the best times to switch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hotrow.switching import ModeName

Rates = Sequence[tuple[float, float]]  # (start of a window, samples per second in it)
OTHER: dict[ModeName, ModeName] = {"sync": "gba", "gba": "sync"}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A mode at work."""

    mode: ModeName
    start_s: float
    end_s: float


def samples_between(rates: Rates, start_s: float, end_s: float) -> float:
    """What rates come to from one time to another; windows that lie partly inside count with that part."""
    starts = [start for start, _ in rates]
    length_s = starts[1] - starts[0]
    return sum(rate * max(0.0, min(end_s, start + length_s) - max(start_s, start)) for start, rate in rates)


def upper_bound(sync: Rates, gba: Rates) -> float:
    """Samples of whoever is in the better mode in every window, and changes for nothing."""
    length_s = sync[1][0] - sync[0][0]
    return sum(max(one[1], other[1]) * length_s for one, other in zip(sync, gba, strict=True))


def best_schedule(sync: Rates, gba: Rates, switch_samples: float) -> list[Stretch]:
    """The stretches of most samples, where each switch loses so many. By dynamic programming over the windows."""
    length_s = sync[1][0] - sync[0][0]
    rates: dict[ModeName, Rates] = {"sync": sync, "gba": gba}
    best: dict[ModeName, float] = {"sync": 0.0, "gba": 0.0}  # up to a window and in this mode after it
    came_from: list[dict[ModeName, ModeName]] = []
    for place in range(len(sync)):
        came: dict[ModeName, ModeName] = {}
        for mode, other in OTHER.items():
            came[mode] = other if place and best[other] - switch_samples > best[mode] else mode
        best = {
            mode: best[before] - switch_samples * (before != mode) + rates[mode][place][1] * length_s
            for mode, before in came.items()
        }
        came_from.append(came)
    modes: list[ModeName] = [max(best, key=best.__getitem__)]
    for came in reversed(came_from[1:]):
        modes.append(came[modes[-1]])
    return _stretches(modes[::-1], [start for start, _ in sync], length_s)


def _stretches(modes: Sequence[ModeName], starts: Sequence[float], length_s: float) -> list[Stretch]:
    firsts = [0, *(place for place in range(1, len(modes)) if modes[place] != modes[place - 1]), len(modes)]
    ends = [*starts, starts[-1] + length_s]
    return [Stretch(modes[first], ends[first], ends[last]) for first, last in pairwise(firsts)]


def needless(stretches: Sequence[Stretch], sync: Rates, gba: Rates) -> int:
    """Switches after which, up to the next one, the mode left would have trained as much or more."""
    rates: dict[ModeName, Rates] = {"sync": sync, "gba": gba}
    return sum(
        samples_between(rates[now.mode], now.start_s, now.end_s)
        <= samples_between(rates[before.mode], now.start_s, now.end_s)
        for before, now in pairwise(stretches)
    )
