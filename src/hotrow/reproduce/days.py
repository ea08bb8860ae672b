"""Training day after day in a simulated cluster, and comparing AUCs of paired runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from hotrow.modes import Mode
from hotrow.reproduce.task import Model
from hotrow.sim.cluster import SimCluster
from hotrow.sim.config import ClusterConfig
from hotrow.sim.leases import Batches
from hotrow.sim.result import SimResult

# Two-sided 95 % points of Student's t by degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(slots=True)
class Chain:
    """A model that goes from day to day, in one mode or several; steps and samples count on."""

    model: Model
    step: int = 0
    samples: int = 0

    def train(self, mode: Mode, cluster: ClusterConfig, day: int) -> SimResult:
        """One day in a mode. The cluster's luck is the day's, the same for every mode."""
        batch = self.model.task.train(self.model.seed, day)
        run = SimCluster(
            mode,
            cluster,
            data=Batches([(None, batch)]),
            work=self.model.work,
            watchers=(self.model.work,),
            seed=self.model.seed * 1000 + day,
            step=self.step,
            samples=self.samples,
        )
        result = run.run()
        self.step += result.steps
        self.samples += len(batch)
        return result


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of paired differences and what it may be off by, 95 times of 100."""

    mean: float
    half_width: float
    pairs: int

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half_width

    def within(self, bound: float) -> bool:
        """Whether the whole interval lies between -bound and bound."""
        return -bound <= self.low and self.high <= bound


def interval(differences: Sequence[float]) -> Interval:
    """Student's interval of the mean."""
    count = len(differences)
    if count < 2:
        raise ValueError("an interval needs two pairs or more")
    quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else 1.96 + 2.5 / (count - 1)
    return Interval(fmean(differences), quantile * stdev(differences) / sqrt(count), count)
