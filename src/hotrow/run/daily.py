"""Training over days: what a job that runs every night trains and tests on, how far a run is, settings that fit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotrow.data.config import Data
from hotrow.data.source import Source
from hotrow.data.splits import Day
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
    note: str = ""  # which days are left out


@dataclass(slots=True)
class DaysDone:
    """Which days are trained; kept with every checkpoint."""

    trained: list[str] = field(default_factory=list)
    current: str | None = None  # the day whose rows are being trained, or come next
    begin: str | None = None  # the first test day: all before it are trained at once, as FIRST

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "DaysDone":
        return cls(list(about["trained"]), about["current"], about["begin"])

    def tested_on(self, day: str) -> None:
        """A run over all days has trained the current day and tested on the next one, which it trains now."""
        self.begin = self.begin or day
        self.trained.append(self.current or FIRST)
        self.current = day

    def next_index(self, names: Sequence[str]) -> int:
        """The place of the day after the latest trained one; `names` are the test days of the data."""
        places = [names.index(name) + 1 for name in self.trained if name in names]
        if FIRST in self.trained and self.begin in names:
            places.append(names.index(self.begin))
        return max(places, default=0)  # older days may be gone from the data by now

    def gap_note(self, names: Sequence[str], place: int) -> str:
        """What is left out where the data begin after the latest trained day; else empty."""
        last = self.begin if self.trained[-1:] == [FIRST] else self.trained[-1] if self.trained else None
        if last is None or last in names:
            return ""
        message = f"{last}, the last day of the run so far, is not in the data: training continues with {names[place]}"
        return f"{message}, earlier rows are left out"


def one_day(data: Data, wanted: str, done: DaysDone) -> OneDay:
    """The day of this name, or "next": the one after the latest trained day.

    "first" is all that comes before the first day to test on. Which day that was the first time is `done.begin`: the
    data have grown since, and the last seven days of today are not those of then.
    """
    trained, begin = done.trained, done.begin or next(data.days()).name
    days = list(data.days(all_of_them=True))
    names = [day.name for day in days]
    start = names.index(begin) if begin in names else 0  # older days may be gone from the data by now
    coming = done.next_index(names) if trained else start
    if wanted == NEXT:
        if trained and coming == len(names):
            raise ConfigError(f"--day next: {trained[-1]} is trained and there is no later day in the data")
        wanted = names[coming] if trained else FIRST
    if wanted in trained or (wanted == FIRST and trained):
        raise ConfigError(
            f"--day {wanted}: is trained already; the last day was {trained[-1]}, continue with --day next"
        )
    if wanted == FIRST:
        opening = next(day for day in data.days() if day.name == begin)
        return OneDay(FIRST, opening.train, opening.test, begin)
    if wanted not in names[start:]:
        message = f"there is no such day; days run from {names[start]} to {names[-1]}"
        raise ConfigError(f"--day {wanted}: {message}, and {FIRST!r} is all rows before them")
    place = names.index(wanted)
    note = _skip_note(wanted, names[coming:place] if trained else [FIRST]) or done.gap_note(names, place)
    after = days[place + 1] if place + 1 < len(days) else None
    if after is None or after.name in trained:  # rows that are trained are no test
        return OneDay(wanted, days[place].test, None, None, note)
    return OneDay(wanted, days[place].test, after.test, after.name, note)


def _skip_note(wanted: str, skipped: Sequence[str]) -> str:
    """What is left out where a day was named that does not come next; else empty."""
    if not skipped:
        return ""
    which = f"{len(skipped):,} days ({skipped[0]} to {skipped[-1]}) are skipped"
    if skipped[0] == FIRST:
        which = f"all rows before {wanted} are skipped"
    elif len(skipped) == 1:
        which = f"{skipped[0]} is skipped"
    return f"--day {wanted}: {which}, and --day next continues after {wanted}"


@dataclass(frozen=True, slots=True)
class DaysToTrain:
    """The test days of a run over all days; the rows before those in `done` are trained."""

    days: Iterable[Day]
    done: Sequence[str] = ()
    notes: tuple[str, ...] = ()


def days_to_train(data: Data, done: DaysDone, *, begun: bool) -> DaysToTrain:
    """What a run over all days has left; `begun`: its current day is trained in part."""
    if not done.trained and done.current in (None, FIRST):
        done.current = FIRST
        return DaysToTrain(data.days())
    days = list(data.days(all_of_them=True))
    names = [day.name for day in days]
    if begun and done.current not in names[:-1]:
        where = "is the last day in the data" if done.current in names else "is not in the data any more"
        remedy = "continue with --day next" if done.current in names else "name another day, as --day DAY"
        raise ConfigError(f"--resume: the run was interrupted in {done.current}, which {where}: {remedy}")
    place = names.index(done.current) if done.current in names else done.next_index(names)
    if place >= len(names) - 1:
        message = f"the run is finished: it was tested on {names[-1]}, the last day in the data"
        return DaysToTrain(days, names, (f"{message}; nothing is trained until the data hold a later day",))
    done.current = names[place]
    tested = names[names.index(done.begin) if done.begin in names else 0 : place + 1]
    left_out = f"the run was resumed: the figures over all days leave out {tested[0]} to {tested[-1]}" if tested else ""
    return DaysToTrain(days, names[: place + 1], tuple(filter(None, (left_out, done.gap_note(names, place)))))


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
