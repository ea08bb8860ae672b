"""The sections of a simulation's file: modes, hyper-parameters, length."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from hotrow.client.aggregate import Average
from hotrow.config import Cache
from hotrow.modes import MODES, Mode
from hotrow.optim.sparse import AnyOptimizer
from hotrow.run.config import AnyChoice, DenseSection
from hotrow.sizes import MOST, Whole, WholeOrSize
from hotrow.spec import FieldError, SettingsError, Spec
from hotrow.switching import Auto

MAKERS: dict[str, Callable[..., Mode | Auto]] = {**{name: entry.spec for name, entry in MODES.items()}, "auto": Auto}


class Switch(Spec):
    """A change of mode during the run: at a virtual time, or after so many applied samples."""

    model_config = ConfigDict(validate_default=True)

    mode: str  # a label of `modes`, with its workers and local batch, or the name of a mode
    at_s: float | None = Field(default=None, ge=0)
    at_samples: Whole | None = Field(default=None, ge=1, le=MOST)

    @field_validator("at_samples")
    @classmethod
    def _one_time(cls, value: int | None, info: ValidationInfo) -> int | None:
        if "at_s" in info.data and (value is None) == (info.data["at_s"] is None):
            raise ValueError("give either at_s or at_samples")
        return value


class Contender(Spec):
    """A mode with its settings, and its own workers, batch and speed. What is left out is as in the cluster."""

    mode: AnyChoice
    workers: Whole | None = Field(default=None, ge=1, le=1_000_000)
    local_batch: Whole | None = Field(default=None, ge=1, le=MOST)
    speed: float = Field(default=1.0, gt=0, le=1e6)  # speed of its workers, relative to the cluster's
    hyper: str | None = None  # a set of hyper-parameters
    cache: Cache | Literal["off"] | None = None  # of all tables; None: as the tables say
    switches: tuple[Switch, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _separate_mode_settings(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "mode" in value:
            return value
        own = {name: each for name, each in value.items() if name in cls.model_fields}
        return {**own, "mode": _made({name: each for name, each in value.items() if name not in own})}

    @field_validator("switches")
    @classmethod
    def _one_after_the_other(cls, value: tuple[Switch, ...], info: ValidationInfo) -> tuple[Switch, ...]:
        if value and isinstance(info.data.get("mode"), Auto):
            raise ValueError("auto decides when to switch: leave them out")
        for name in ("at_s", "at_samples"):
            times = [time for each in value if (time := getattr(each, name)) is not None]
            if times != sorted(times):
                raise ValueError(f"are made one after the other: put them in the order of {name}")
        return value


class Hyper(Spec):
    """Hyper-parameters that were tuned together."""

    dense: DenseSection = DenseSection()
    rows: AnyOptimizer | None = None  # of all tables; None: each table's own


class SimulationRun(Spec):
    """The length of a simulation, and what is computed in it."""

    work: Literal["count", "train"] = "count"
    samples: Whole | None = Field(default=None, ge=1, le=MOST)  # None: all data, or until `seconds`
    seconds: float | None = Field(default=None, gt=0)  # virtual; None: until the samples are trained
    seed: Whole = Field(default=0, ge=0, lt=2**63)  # of speeds, network and rows, the same in all modes
    threads: Whole = Field(default=1, ge=1, le=1024)  # of work = "train"
    embedding_average: Average = "batch"  # the divisor of an id's gradients
    dense_bytes: WholeOrSize | None = None  # of a batch's dense gradients, where they are only counted
    row_bytes: Whole = Field(default=0, ge=0, le=2**40)  # of the rows of a sample, where they are only counted
    shared_rows: float = Field(default=0.0, ge=0, le=1)  # of a batch, with the step before: look-ahead cannot read them

    @field_validator("row_bytes", "shared_rows")
    @classmethod
    def _sizes_are_of_counted_work(cls, value: float, info: ValidationInfo) -> float:
        if info.data.get("work") == "train" and (value or info.data.get("dense_bytes")):
            raise ValueError("with work='train' the bytes are counted as they are sent: leave dense_bytes and this out")
        return value


class Pictured(Spec):
    """The part of the workers' time that a picture shows."""

    workers: Whole = Field(default=16, ge=1, le=200)  # the first ones
    seconds: float | None = Field(default=None, gt=0)  # from the start on; None: some of the longest batches


def _made(settings: Mapping[str, Any]) -> Mode | Auto:
    name = str(settings.get("name"))
    maker = MAKERS.get(name)
    if maker is None:
        message = f"={settings.get('name')!r}: there is no such mode: there are {', '.join(MAKERS)}"
        raise SettingsError("mode", [FieldError("name", message)])
    own = ("name", *MODES[name].parameters) if name in MODES else tuple(Auto.model_fields)
    _check_known(settings, [*own, *Contender.model_fields])
    return maker(**settings)


def _check_known(settings: Mapping[str, Any], known: list[str]) -> None:
    """A setting may be the mode's or the contender's: an unknown one is compared with both."""
    unknown = next((name for name in settings if name not in known), None)
    if unknown is not None:
        close = get_close_matches(unknown, known, n=1)
        there = sorted(set(known) - {"mode"})
        nearest = f"did you mean {close[0]}?" if close else f"there are: {', '.join(there)}"
        raise SettingsError(
            "mode", [FieldError(unknown, f"={settings[unknown]!r}: there is no such setting; {nearest}")]
        )
