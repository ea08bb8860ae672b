"""The base of every setting: frozen, checked when made, errors in one sentence; and checks of single numbers."""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hotrow.errors import ConfigError, HotrowError


def whole_number(name: str, value: Any, low: int, high: int, error: type[HotrowError] = ConfigError) -> int:
    """`value` as an int from low to high; else an error with its name."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise error(f"{name}={value!r}: must be a whole number")
    number = operator.index(value)
    if not low <= number <= high:
        raise error(f"{name}={number:,}: must be from {low:,} to {high:,}")
    return number


def named_settings(field: str, value: Any, names: Iterable[str], remedy: str) -> dict[str, Any]:
    """The settings of one of several kinds, from its name alone or from a dict with its name and its settings."""
    if not isinstance(value, str | Mapping):
        raise ConfigError(f"{field} is a {type(value).__name__}: give {remedy}")
    settings = {"name": value} if isinstance(value, str) else dict(value)
    if settings.get("name") not in (known := list(names)):
        raise ConfigError(f"{field}={value!r}: there is none of this name; there are {', '.join(known)}")
    return settings


@dataclass(frozen=True, slots=True)
class FieldError:
    """The error of one setting."""

    place: str  # "optimizer.lr"; empty where it is the group as a whole
    message: str  # "=-1: must be greater than 0"


class SettingsError(ConfigError):
    """The errors of a group of settings."""

    def __init__(self, message: str, faults: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


class Spec(BaseModel):
    """A frozen group of settings; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, *unnamed: Any, **settings: Any) -> None:
        if unnamed:
            names = ", ".join(f"{name}=..." for name in type(self).model_fields if name != "name")
            raise ConfigError(f"{type(self).__name__}({unnamed[0]!r}): settings go by name: {names}")
        try:
            super().__init__(**settings)
        except ValidationError as error:
            faults = list(_faults(error, list(type(self).model_fields)))
            raise SettingsError(sentence(type(self).__name__, faults), faults) from None


def sentence(owner: str, faults: Iterable[FieldError]) -> str:
    """Every fault as `Adagrad.lr=-1: Input should be greater than 0`."""
    return "; ".join(".".join(filter(None, (owner, fault.place))) + fault.message for fault in faults)


def _faults(error: ValidationError, known: list[str]) -> Iterator[FieldError]:
    for fault in error.errors(include_url=False):
        place = ".".join(str(part) for part in fault["loc"])
        inside = fault.get("ctx", {}).get("error")
        if isinstance(inside, SettingsError):  # of a group inside this one: its errors have longer paths
            yield from (FieldError(".".join(filter(None, (place, each.place))), each.message) for each in inside.faults)
        else:
            yield FieldError(place, _message(fault, known))


def _message(fault: Any, known: list[str]) -> str:
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "missing":
        return " is missing: give it a value"
    if not fault["loc"]:
        return f": {message}"
    if fault["type"] == "extra_forbidden":
        message = f"there is no such setting; {_nearest(str(fault['loc'][-1]), known)}"
    if fault["type"] in ("union_tag_not_found", "model_type", "model_attributes_type"):
        message = "give one of hotrow's settings for it, or a dict with its name and settings"
    if fault["type"] == "union_tag_invalid":
        message = _unknown_tag(fault["ctx"])
    return f"={fault['input']!r}: {message}"


def _unknown_tag(about: Any) -> str:
    """A name that is none of a family: all names, the nearest first."""
    expected = about["expected_tags"]
    names = [name.strip().strip("'") for name in expected.split(",")]
    return f"there is none of this name{did_you_mean(str(about['tag']), names)}: must be one of {expected}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean NAME?)` where a known name is close; of several the one with the fewest different letters."""
    as_written = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), list(as_written), n=3)
    nearest = min(close, key=lambda each: _letters_apart(name.lower(), each), default=None)
    return "" if nearest is None else f" (did you mean {as_written[nearest]}?)"


def _letters_apart(one: str, other: str) -> int:
    ours, theirs = Counter(one), Counter(other)
    return (ours - theirs).total() + (theirs - ours).total()


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
