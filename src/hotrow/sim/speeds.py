"""The compute time of a batch: machines differ, batches differ, stragglers are slow, days have busy hours.

These are the settings; `pace` draws from them. A batch keeps the speed it was started with.
"""

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from hotrow.sizes import Whole, number_text
from hotrow.spec import Spec

F64 = NDArray[np.float64]
HOUR_S = 3600.0
BUSY_DAY = (
    0.62, 0.55, 0.48, 0.42, 0.38, 0.36, 0.40, 0.50, 0.64, 0.80, 0.92, 0.97,
    0.95, 0.93, 0.96, 1.00, 0.99, 0.96, 0.90, 0.86, 0.84, 0.82, 0.78, 0.70,
)  # fmt: skip


class ConstantSpeed(Spec):
    """All alike."""

    name: Literal["constant"] = "constant"

    def factors(self, first: F64, second: F64) -> F64:
        """Times relative to the mean, from two uniform draws each."""
        return np.ones_like(first)


class LogNormal(Spec):
    """Times log-normal with mean 1."""

    name: Literal["log_normal"] = "log_normal"
    sigma: float = Field(gt=0, le=5)  # of the logarithm

    def factors(self, first: F64, second: F64) -> F64:
        """Times relative to the mean, from two uniform draws each."""
        return np.exp(self.sigma * _normal(first, second) - self.sigma**2 / 2)


class NormalRate(Spec):
    """Batches per second normal with mean 1, and never below `slowest` (the ASGD paper's machines)."""

    name: Literal["normal_rate"] = "normal_rate"
    spread: float = Field(gt=0, le=1)  # standard deviation
    slowest: float = Field(default=0.1, gt=0, lt=1)

    def factors(self, first: F64, second: F64) -> F64:
        """Times relative to the mean, from two uniform draws each."""
        return 1.0 / np.maximum(self.slowest, 1.0 + self.spread * _normal(first, second))


class Exponential(Spec):
    """Times exponential with mean 1: the pushes of a worker are then a Poisson process (the ASGD paper's model)."""

    name: Literal["exponential"] = "exponential"

    def factors(self, first: F64, second: F64) -> F64:
        """Times relative to the mean, from two uniform draws each."""
        return -np.log1p(-first)


AnySpread = Annotated[ConstantSpeed | LogNormal | NormalRate | Exponential, Field(discriminator="name")]


class Load(Spec):
    """The load of a shared cluster over the day, hour by hour; linear between the hours.

    The default has the shape of GBA's Fig. 1 (quiet before dawn, full through working hours). The figure gives no
    numbers, these are ours.
    """

    hours: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(default=BUSY_DAY, min_length=24, max_length=24)
    idle: float = Field(default=0.6, ge=0, lt=1)  # up to this use no worker is slowed down
    first_hour: float = Field(default=0.0, ge=0, lt=24)  # at which virtual time begins

    def use(self, time_s: float) -> float:
        """The share of the cluster that is in use."""
        hour = (self.first_hour + time_s / HOUR_S) % 24.0
        before = int(hour) % 24  # the remainder of a negative rounding is 24.0 itself
        return self.hours[before] + (hour - int(hour)) * (self.hours[(before + 1) % 24] - self.hours[before])

    def pressure(self, time_s: float) -> float:
        """From 0 (no worker is slowed down) to 1 (full)."""
        return max(0.0, (self.use(time_s) - self.idle) / (1.0 - self.idle))


class Stragglers(Spec):
    """Workers that are slow for a while: each with the probability `share`, or those in `workers`."""

    model_config = ConfigDict(validate_default=True)

    share: float | None = Field(default=None, gt=0, le=1)
    workers: tuple[Annotated[Whole, Field(ge=0)], ...] | None = None
    factor: float = Field(default=4.0, gt=0, le=10_000)  # a batch takes so many times as long
    from_s: float = Field(default=0.0, ge=0)
    until_s: float | None = Field(default=None, gt=0)  # None: to the end
    every_s: float | None = Field(default=None, gt=0)  # slow workers are drawn again so often; None: never
    with_load: bool = False  # the probability is multiplied by the pressure of the load

    @field_validator("workers")
    @classmethod
    def _share_or_workers(cls, value: tuple[int, ...] | None, info: ValidationInfo) -> tuple[int, ...] | None:
        if "share" in info.data and (value is None) == (info.data["share"] is None):
            raise ValueError("give either share, or the numbers of workers")
        return value

    @field_validator("until_s")
    @classmethod
    def _ends_after_it_begins(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and value <= info.data.get("from_s", 0.0):
            raise ValueError(f"is not after from_s={number_text(info.data['from_s'])}: no worker would ever be slow")
        return value

    @field_validator("every_s", "with_load")
    @classmethod
    def _drawn_only_by_chance(cls, value: float | bool | None, info: ValidationInfo) -> float | bool | None:
        if value and info.data.get("workers") is not None:
            raise ValueError("nothing is drawn where workers lists the slow ones: give share instead, or leave it out")
        return value


class Speeds(Spec):
    """Seconds of a batch: (batch_s + samples * sample_s) times the factors of machine, batch, stragglers."""

    model_config = ConfigDict(validate_default=True)

    batch_s: float = Field(default=0.0, ge=0)  # whatever its size
    sample_s: float = Field(default=1e-3, ge=0)
    machines: AnySpread = ConstantSpeed()  # drawn once per worker
    batches: AnySpread = ConstantSpeed()  # drawn for every batch
    stragglers: tuple[Stragglers, ...] = ()
    load: Load | None = None

    @field_validator("sample_s")
    @classmethod
    def _takes_time(cls, value: float, info: ValidationInfo) -> float:
        if value == 0 and info.data.get("batch_s") == 0:
            raise ValueError("a batch would take no time at all: give batch_s or sample_s")
        return value

    @field_validator("load")
    @classmethod
    def _load_has_an_effect(cls, value: Load | None, info: ValidationInfo) -> Load | None:
        follow = any(each.with_load for each in info.data.get("stragglers", ()))
        if follow and value is None:
            raise ValueError("stragglers with_load follow the load of the day: give load={} or leave with_load out")
        if value is not None and not follow and "stragglers" in info.data:
            raise ValueError("it has no effect: give stragglers with_load=true, or leave load out")
        return value


def _normal(first: F64, second: F64) -> F64:
    radius: F64 = np.sqrt(-2.0 * np.log1p(-first))
    return radius * np.cos(2.0 * math.pi * second)
