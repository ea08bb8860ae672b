"""Measurements of a run: samples over time, the activity of each worker, and intervals for a picture."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

LaneKind = Literal["wait", "pull", "compute", "push", "down"]
FINEST_S, MOST_BINS = 1e-3, 4096


class Lane(NamedTuple):
    """An interval of one worker's time."""

    worker: int
    start_s: float
    end_s: float
    kind: LaneKind


@dataclass(slots=True)
class Effort:
    """The activity of one worker."""

    samples: int = 0  # of batches whose gradients arrived
    batches: int = 0
    computing_s: float = 0.0
    present_s: float = 0.0  # time present
    since_s: float | None = None  # present since; None: it is absent


class Rate:
    """Samples over time in bins that double their width when there are too many of them."""

    def __init__(self) -> None:
        self.width_s = FINEST_S
        self.bins: list[int] = []

    def add(self, time_s: float, samples: int) -> None:
        """Count samples at a time; times do not go back."""
        place = int(time_s / self.width_s)
        if place >= len(self.bins):
            place = self._open(time_s)
        self.bins[place] += samples

    def _open(self, time_s: float) -> int:
        while (place := int(time_s / self.width_s)) >= MOST_BINS:
            pairs = zip(self.bins[0::2], [*self.bins[1::2], 0], strict=False)
            self.bins = [first + second for first, second in pairs]
            self.width_s *= 2
        self.bins.extend([0] * (place + 1 - len(self.bins)))
        return place

    def windows(self, end_s: float, window_s: float) -> list[tuple[float, float]]:
        """(start, samples per second) of whole windows, each of about `window_s`: as many bins as come nearest."""
        per_window = max(1, round(window_s / self.width_s))
        length_s = per_window * self.width_s
        whole = int(end_s / length_s)
        bins = [*self.bins, *[0] * (whole * per_window)]
        return [
            (place * length_s, sum(bins[place * per_window : (place + 1) * per_window]) / length_s)
            for place in range(whole)
        ]


class SimMeter:
    """All measurements of a run."""

    def __init__(self, lanes: int) -> None:
        self.rate = Rate()
        self.samples = 0  # applied, of the parts with embedding gradients or both
        self.row_bytes = 0  # of rows, their gradients and changes: batches whose gradients arrived, and flushes
        self.efforts: dict[int, Effort] = {}
        self.lanes: list[Lane] = []
        self.lanes_left_out = 0
        self._lanes_most = lanes

    def applied(self, time_s: float, samples: int) -> None:
        """Count samples of an applied step."""
        self.samples += samples
        self.rate.add(time_s, samples)

    def take_back(self, time_s: float, samples: int) -> None:
        """Samples are trained again, although their rows were applied."""
        self.applied(time_s, -samples)

    def joined(self, worker: int, time_s: float) -> Effort:
        """A worker joined; returns its counters."""
        effort = self.efforts.setdefault(worker, Effort())
        if effort.since_s is None:
            effort.since_s = time_s
        return effort

    def left(self, worker: int, time_s: float) -> None:
        """A worker left."""
        effort = self.efforts.setdefault(worker, Effort())
        if effort.since_s is not None:
            effort.present_s += time_s - effort.since_s
            effort.since_s = None

    def lane(self, worker: int, start_s: float, end_s: float, kind: LaneKind) -> None:
        """Keep an interval for the picture, up to a bound."""
        if end_s <= start_s:
            return
        if len(self.lanes) < self._lanes_most:
            self.lanes.append(Lane(worker, start_s, end_s, kind))
        elif self._lanes_most:
            self.lanes_left_out += 1
