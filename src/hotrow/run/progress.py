"""How far a run over days is, and which settings go with days and which do not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotrow.data.config import Data
from hotrow.errors import ConfigError
from hotrow.run.config import RunConfig
from hotrow.sizes import number_text


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
