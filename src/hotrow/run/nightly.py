"""One day of a data set: what a job that runs every night trains on, and the day after it to test on."""

from collections.abc import Sequence
from dataclasses import dataclass

from hotrow.data.config import Data
from hotrow.data.source import Source
from hotrow.errors import ConfigError

NEXT = "next"


@dataclass(frozen=True, slots=True)
class OneDay:
    """A day's rows, and the next day's where there are any yet."""

    name: str
    train: Source
    test: Source | None


def one_day(data: Data, wanted: str, trained: Sequence[str]) -> OneDay:
    """The day of this name, or "next": the first after those that are trained already."""
    days = {day.name: day.test for day in data.days()}
    names = list(days)
    if wanted == NEXT:
        later = names[names.index(trained[-1]) + 1 :] if trained and trained[-1] in days else names
        if not later:
            raise ConfigError(f"--day next: {trained[-1]} is trained and there is no later day in the data")
        wanted = later[0]
    if wanted not in days:
        raise ConfigError(f"--day {wanted}: there is none; days run from {names[0]} to {names[-1]}")
    if wanted in trained:
        raise ConfigError(f"--day {wanted}: is trained already; the last one was {trained[-1]}, go on with --day next")
    after = names[names.index(wanted) + 1 :]
    return OneDay(wanted, days[wanted], days[after[0]] if after else None)
