"""The result of a simulated run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from hotrow.sim.meter import Effort, Lane
from hotrow.staleness import Statistics

WINDOWS = 50  # of a run, where window_s is not given


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """The activity of one worker."""

    samples: int  # of batches whose gradients arrived
    batches: int
    present_s: float
    computing_s: float

    @property
    def qps(self) -> float:
        """Samples per second while it was present."""
        return self.samples / self.present_s if self.present_s else 0.0

    @property
    def busy_share(self) -> float:
        """The share of its time that it computed."""
        return self.computing_s / self.present_s if self.present_s else 0.0


@dataclass(frozen=True, slots=True)
class SimResult:
    """Figures of a run up to now, in virtual seconds."""

    seconds: float
    finished: bool  # all data were trained or dropped as late
    steps: int  # dense steps since the first mode began
    samples_applied: int  # dropped ones are not among them
    rates: Sequence[tuple[float, float]]  # (start of a window, samples applied per second in it)
    workers: Mapping[int, WorkerResult]
    statistics: Statistics
    lanes: Sequence[Lane]
    lanes_left_out: int  # beyond the bound
    row_bytes: int = 0  # of rows, their gradients and changes: batches whose gradients arrived, and flushes of caches

    @property
    def qps(self) -> float:
        """Samples applied per second, over the whole run."""
        return self.samples_applied / self.seconds if self.seconds else 0.0

    @property
    def qps_spread(self) -> float:
        """Standard deviation over the windows."""
        return pstdev(rate for _, rate in self.rates) if self.rates else 0.0

    @property
    def local_qps(self) -> float:
        """Mean over the workers, of samples per second while they were present."""
        return fmean(each.qps for each in self.workers.values()) if self.workers else 0.0

    @property
    def local_qps_spread(self) -> float:
        """Standard deviation over the workers."""
        return pstdev(each.qps for each in self.workers.values()) if self.workers else 0.0

    def document(self) -> dict[str, Any]:
        """Plain data for JSON, without lanes."""
        return {
            "seconds": self.seconds,
            "finished": self.finished,
            "steps": self.steps,
            "samples_applied": self.samples_applied,
            "row_bytes": self.row_bytes,
            "qps": self.qps,
            "qps_spread": self.qps_spread,
            "local_qps": self.local_qps,
            "local_qps_spread": self.local_qps_spread,
            "rates": [list(each) for each in self.rates],
            "workers": {
                str(number): {
                    "samples": each.samples,
                    "batches": each.batches,
                    "present_s": each.present_s,
                    "computing_s": each.computing_s,
                    "qps": each.qps,
                }
                for number, each in self.workers.items()
            },
            "statistics": self.statistics.document(),
        }


def worker_result(effort: Effort, now_s: float) -> WorkerResult:
    """The current counters of a worker."""
    present_s = effort.present_s + (now_s - effort.since_s if effort.since_s is not None else 0.0)
    return WorkerResult(effort.samples, effort.batches, present_s, effort.computing_s)
