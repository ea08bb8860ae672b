"""The base of every setting: frozen, checked when made, and faults told in a sentence."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hotrow.errors import ConfigError


class Spec(BaseModel):
    """A frozen group of settings; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **settings: Any) -> None:
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
    return f"{owner}.{field}={fault['input']!r}: {message}"
