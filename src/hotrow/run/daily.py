"""Training over days: what a job that runs every night trains and tests on, how far a run is, settings that fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotrow.data.config import Data
from hotrow.data.source import Source
from hotrow.errors import ConfigError
from hotrow.run.config import RunConfig
from hotrow.sizes import number_text

NEXT, FIRST = "next", "first"


@dataclass(frozen=True, slots=True)
class OneDay:
    """A day's rows, and the next day's where there are any yet."""

    name: str
    train: Source
    test: Source | None
    test_name: str | None


def one_day(data: Data, wanted: str, trained: Sequence[str], begin: str | None) -> OneDay:
    """The day of this name, or "next": the first that is not trained yet.

    "first" is all that comes before the first day to test on. Which day that was the first time is `begin`: the data
    have grown since, and the last seven days of today are not those of then.
    """
    begin = begin or next(data.days()).name
    days = list(data.days(all_of_them=True))
    names = [day.name for day in days]
    start = names.index(begin) if begin in names else 0  # older days may be gone from the data by now
    steps = {}
    if FIRST not in trained and not trained:
        opening = next(day for day in data.days() if day.name == begin)
        steps[FIRST] = OneDay(FIRST, opening.train, opening.test, begin)
    for day, after in zip(days[start:], [*days[start + 1 :], None], strict=True):
        tomorrow = (None, None) if after is None else (after.test, after.name)
        steps[day.name] = OneDay(day.name, day.test, *tomorrow)
    left = [name for name in steps if name not in trained]
    if wanted == NEXT:
        if not left:
            raise ConfigError(f"--day next: {trained[-1]} is trained and there is no later day in the data")
        wanted = left[0]
    if wanted in trained:
        raise ConfigError(
            f"--day {wanted}: is trained already; the last day was {trained[-1]}, continue with --day next"
        )
    if wanted not in steps:
        message = f"there is no such day; days run from {names[start]} to {names[-1]}"
        raise ConfigError(f"--day {wanted}: {message}, and {FIRST!r} is all rows before them")
    return steps[wanted]


@dataclass(slots=True)
class DaysDone:
    """Kept with every checkpoint."""

    tested: list[str] = field(default_factory=list)  # day by day: all before the last of them are trained
    trained: list[str] = field(default_factory=list)  # one by one
    current: str | None = None  # a single day that was begun and is not over
    begin: str | None = None  # the day before which all was trained at once

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "DaysDone":
        return cls(list(about["tested"]), list(about["trained"]), about["current"], about["begin"])


def check_fit(config: RunConfig, data: Data, *, by_day: bool) -> None:
    """Refuse settings that would do nothing, before anything is written."""
    run = config.run
    if by_day:
        ignored = {"run.epochs": run.epochs != 1, "run.early_stopping": run.early_stopping is not None}
        ignored |= {"run.progressive": run.progressive, "run.schedule.plateau": run.schedule.plateau is not None}
        ignored |= {"data.valid": data.valid is not None, "data.shuffle": run.replay > 0 and _shuffles(config)}
        for name, given in ignored.items():
            if given:
                raise ConfigError(f"{name}: has no meaning day by day, where each day is seen once: leave it out")
        return
    if run.replay:
        raise ConfigError(
            f"run.replay={number_text(run.replay)}: is for runs day by day: set data.split = {{ by = 'days' }} too"
        )
    judged = {"early_stopping": run.early_stopping is not None, "schedule.plateau": run.schedule.plateau is not None}
    for name, given in judged.items():
        if given and data.valid is None:
            raise ConfigError(
                f"run.{name}: there is nothing to judge by: give data.valid, or a split with a valid part"
            )


def _shuffles(config: RunConfig) -> bool:
    return getattr(config.data, "shuffle", 0) > 0
