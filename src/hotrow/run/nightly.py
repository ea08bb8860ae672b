"""One day of a data set: what a job that runs every night trains on, and the day after it to test on."""

from collections.abc import Sequence
from dataclasses import dataclass

from hotrow.data.config import Data
from hotrow.data.source import Source
from hotrow.errors import ConfigError

NEXT, FIRST = "next", "first"


@dataclass(frozen=True, slots=True)
class OneDay:
    """A day's rows, and the next day's where there are any yet."""

    name: str
    train: Source
    test: Source | None


def one_day(data: Data, wanted: str, trained: Sequence[str]) -> OneDay:
    """The day of this name, or "next": the one after those that are trained already.

    "first" is all that comes before the first day to test on.
    """
    days = list(data.days())
    steps = {FIRST: OneDay(FIRST, days[0].train, days[0].test)}
    for day, after in zip(days, [*days[1:], None], strict=True):
        steps[day.name] = OneDay(day.name, day.test, None if after is None else after.test)
    names = list(steps)
    if wanted == NEXT:
        later = names[names.index(trained[-1]) + 1 :] if trained and trained[-1] in steps else names
        if not later:
            raise ConfigError(f"--day next: {trained[-1]} is trained and there is no later day in the data")
        wanted = later[0]
    if wanted not in steps:
        told = f"there is none; days run from {names[1]} to {names[-1]}"
        raise ConfigError(f"--day {wanted}: {told}, and {FIRST!r} is all before them")
    if wanted in trained:
        raise ConfigError(f"--day {wanted}: is trained already; the last one was {trained[-1]}, go on with --day next")
    return steps[wanted]
