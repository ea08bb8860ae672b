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
