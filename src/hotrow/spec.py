"""The base of every setting: frozen, checked when made, and faults told in a sentence; and numbers that stand alone."""

import operator
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hotrow.errors import ConfigError, HotrowError


def whole_number(name: str, value: Any, low: int, high: int, error: type[HotrowError] = ConfigError) -> int:
    """`value` as an int from low to high; anything else is told with its name."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise error(f"{name}={value!r}: must be a whole number")
    number = operator.index(value)
    if not low <= number <= high:
        raise error(f"{name}={number}: must be from {low:,} to {high:,}")
    return number


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
            raise ConfigError(sentence(type(self).__name__, error)) from None


def sentence(owner: str, error: ValidationError) -> str:
    """Every fault as `Adagrad.lr=-1: Input should be greater than 0`."""
    return "; ".join(_fault(owner, fault) for fault in error.errors(include_url=False))


def _fault(owner: str, fault: Any) -> str:
    field = ".".join(str(part) for part in fault["loc"]) or "settings"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "missing":
        return f"{owner}.{field} is missing: give it a value"
    if fault["type"] == "extra_forbidden":
        return f"{owner}.{field}={fault['input']!r}: there is no such setting"
    if fault["type"] in ("union_tag_not_found", "model_type", "model_attributes_type"):
        message = "give one of hotrow's settings for it, or a dict with its name and settings"
    if fault["type"] == "union_tag_invalid":
        message = f"there is none of this name: must be one of {fault['ctx']['expected_tags']}"
    return f"{owner}.{field}={fault['input']!r}: {message}"
