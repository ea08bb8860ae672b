"""How one data set is cut into training, validation and test rows: `split = { by = "time", test = 2017-11-09 }`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from hotrow.data.source import Source
from hotrow.data.splits.ranges import Fraction, RowRange, TimeRange
from hotrow.errors import ConfigError
from hotrow.sizes import MOST, Whole
from hotrow.spec import Spec

REMEDY = "write a day as 2017-11-09, or a moment as 2017-11-09T16:00:00"


def _moment(value: Any) -> Any:
    """A day or moment as the moment it begins, in UTC by default."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"is no time ({error}): {REMEDY}") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError(f"is no time: {REMEDY}")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _day(value: Any) -> Any:
    """A whole day, as a date or a text."""
    moment = _moment(value)
    if moment.time() != time():
        raise ValueError("is a moment and no day: write it as 2017-11-09")
    return moment.date()


def _as_period(value: Any) -> Any:
    """A day is the period from its start to the next day."""
    if isinstance(value, Mapping | Spec):
        return value
    day = _day(value)
    return {"since": day, "until": day + timedelta(days=1)}


AnyMoment = Annotated[datetime, BeforeValidator(_moment)]
AnyDay = Annotated[date, BeforeValidator(_day)]


class Period(Spec):
    """From `since` up to, not including, `until`; without it to the end of the data."""

    since: AnyMoment
    until: AnyMoment | None = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> "Period":
        if self.until is not None and self.until <= self.since:
            raise ValueError(f"until={self.until} must be later than since={self.since}")
        return self


AnyPeriod = Annotated[Period, BeforeValidator(_as_period)]


class RowsSplit(Spec):
    """By number: the first rows train, the next validate, the next test; "rest" are all that follow."""

    by: Literal["rows"] = "rows"
    train: Whole = Field(ge=1, le=MOST)
    valid: Whole = Field(default=0, ge=0, le=MOST)
    test: Whole | Literal["rest"] = "rest"

    @model_validator(mode="after")
    def _counts(self) -> "RowsSplit":
        if self.test != "rest" and not 0 <= self.test <= MOST:
            raise ValueError(f"test={self.test} must be a number of rows from 0, or 'rest'")
        return self


class FractionSplit(Spec):
    """By chance, row by row, the same at every reading."""

    by: Literal["fraction"] = "fraction"
    valid: float = Field(default=0.0, ge=0, lt=1)
    test: float = Field(default=0.0, ge=0, lt=1)
    seed: Whole = Field(default=0, ge=0, lt=2**64)

    @model_validator(mode="after")
    def _something_is_left_to_train_on(self) -> "FractionSplit":
        if not 0 < self.valid + self.test < 1:
            fault = "leave nothing to split off" if self.valid + self.test == 0 else "leave nothing to train on"
            raise ValueError(
                f"valid={self.valid} and test={self.test} {fault}: they must add up to more than 0, below 1"
            )
        return self


class TimeSplit(Spec):
    """By time: a day or period to test on, maybe one to validate on; what is before both of them trains."""

    by: Literal["time"] = "time"
    test: AnyPeriod
    valid: AnyPeriod | None = None

    @model_validator(mode="after")
    def _periods_are_apart(self) -> "TimeSplit":
        if self.valid is not None:
            first, second = sorted((self.valid, self.test), key=lambda period: period.since)
            if first.until is None or first.until > second.since:
                raise ValueError(f"test and valid overlap: one begins {second.since}, the other ends {first.until}")
        return self


class DaysSplit(Spec):
    """Day after day: train on all days before the first test day, test on it, train on it, test on the next, ...

    Test days are those from `first` on, or the `last` so many; without both all but the very first day. Days without
    rows do not count.
    """

    by: Literal["days"] = "days"
    first: AnyDay | None = None
    last: Whole | None = Field(default=None, ge=1, le=MOST)

    @model_validator(mode="after")
    def _one_of_both(self) -> "DaysSplit":
        if self.first is not None and self.last is not None:
            raise ValueError(f"first={self.first} and last={self.last} both set where testing begins: leave one out")
        return self


class NextDay(Spec):
    """`test = { next = "day" }`: every file is a day, and each is tested on before it is trained on."""

    next: Literal["day"]


SplitConfig: TypeAlias = Annotated[RowsSplit | FractionSplit | TimeSplit | DaysSplit, Field(discriminator="by")]


@dataclass(frozen=True, slots=True)
class Splits:
    """Three parts of a source."""

    train: Source
    valid: Source | None
    test: Source | None


def split(source: Source, config: RowsSplit | FractionSplit | TimeSplit | DaysSplit) -> Splits:
    """The parts of a config; None for those it does not have."""
    match config:
        case RowsSplit():
            return _by_rows(source, config)
        case FractionSplit(valid=valid, test=test, seed=seed):
            both = test + valid  # test comes first: it stays the same whatever is validated on
            return Splits(
                Fraction(source, both, 1.0, seed),
                Fraction(source, test, both, seed) if valid else None,
                Fraction(source, 0.0, test, seed) if test else None,
            )
        case TimeSplit(test=test_time, valid=valid_time):
            first = min(period.since for period in (test_time, valid_time) if period is not None)
            return Splits(
                TimeRange(source, None, first),
                None if valid_time is None else TimeRange(source, valid_time.since, valid_time.until),
                TimeRange(source, test_time.since, test_time.until),
            )
        case DaysSplit():
            raise ConfigError("split.by='days': is no single split but one for every day: see day_by_day")


def _by_rows(source: Source, config: RowsSplit) -> Splits:
    second = config.train + config.valid
    end = None if config.test == "rest" else second + config.test
    return Splits(
        RowRange(source, 0, config.train, exact=True),
        RowRange(source, config.train, second, exact=True) if config.valid else None,
        None if config.test == 0 else RowRange(source, second, end, exact=True),
    )
