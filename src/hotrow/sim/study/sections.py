"""The sections of a simulation's file: modes with what is their own, hyper-parameters, how long it goes."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from hotrow.client.aggregate import Average
from hotrow.modes import MODES, Mode
from hotrow.optim.sparse import AnyOptimizer
from hotrow.run.config import AnyChoice, DenseSection
from hotrow.sizes import MOST, Whole, WholeOrSize
from hotrow.spec import FieldError, SettingsError, Spec
from hotrow.switching import Auto

MAKERS: dict[str, Callable[..., Mode | Auto]] = {**{name: entry.spec for name, entry in MODES.items()}, "auto": Auto}


class Switch(Spec):
    """A change of mode on the way: at a virtual time, or when so many samples are applied."""

    model_config = ConfigDict(validate_default=True)

    mode: str  # a label of `modes`, whose workers and local batch come with it, or the name of a mode
    at_s: float | None = Field(default=None, ge=0)
    at_samples: Whole | None = Field(default=None, ge=1, le=MOST)

    @field_validator("at_samples")
    @classmethod
    def _one_time(cls, value: int | None, info: ValidationInfo) -> int | None:
        if "at_s" in info.data and (value is None) == (info.data["at_s"] is None):
            raise ValueError("say once when to switch: give at_s, or at_samples")
        return value


class Contender(Spec):
    """A mode with its settings, and what else is its own. What is left out is as the cluster has it."""

    mode: AnyChoice
    workers: Whole | None = Field(default=None, ge=1, le=1_000_000)
    local_batch: Whole | None = Field(default=None, ge=1, le=MOST)
    speed: float = Field(default=1.0, gt=0, le=1e6)  # its workers compute so many times as fast
    hyper: str | None = None  # a set of hyper-parameters
    switches: tuple[Switch, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _settings_of_the_mode_stand_beside_its_own(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "mode" in value:
            return value
        own = {name: each for name, each in value.items() if name in cls.model_fields}
        return {**own, "mode": _made({name: each for name, each in value.items() if name not in own})}

    @field_validator("switches")
    @classmethod
    def _one_after_the_other(cls, value: tuple[Switch, ...], info: ValidationInfo) -> tuple[Switch, ...]:
        if value and isinstance(info.data.get("mode"), Auto):
            raise ValueError("auto decides itself when to switch: leave them out")
        for name in ("at_s", "at_samples"):
            times = [time for each in value if (time := getattr(each, name)) is not None]
            if times != sorted(times):
                raise ValueError(f"are made one after the other: put them in the order of {name}")
        return value


class Hyper(Spec):
    """Hyper-parameters that were tuned together."""

    dense: DenseSection = DenseSection()
    rows: AnyOptimizer | None = None  # of all tables; None: each as its own settings say


class SimulationRun(Spec):
    """How long a simulation goes, and what is computed in it."""

    work: Literal["count", "train"] = "count"
    samples: Whole | None = Field(default=None, ge=1, le=MOST)  # None: all data, or until `seconds`
    seconds: float | None = Field(default=None, gt=0)  # virtual ones; None: until the samples are trained
    seed: Whole = Field(default=0, ge=0, lt=2**63)  # of luck, network and rows, the same in all modes
    threads: Whole = Field(default=1, ge=1, le=1024)  # that compute, where anything is computed
    embedding_average: Average = "batch"  # what an id's gradients are divided by
    dense_bytes: WholeOrSize | None = None  # of a batch's dense gradients, where they are only counted
    row_bytes: Whole = Field(default=0, ge=0, le=2**40)  # of the rows of a sample, where they are only counted

    @field_validator("row_bytes")
    @classmethod
    def _sizes_are_of_counted_work(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("work") == "train" and (value or info.data.get("dense_bytes")):
            raise ValueError("with work='train' the bytes are counted as they are sent: leave dense_bytes and this out")
        return value


class Pictured(Spec):
    """What of the workers' time a picture shows."""

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
    """A setting may be the mode's or stand beside it: who misspells one is told of both kinds."""
    unknown = next((name for name in settings if name not in known), None)
    if unknown is not None:
        close = get_close_matches(unknown, known, n=1)
        there = sorted(set(known) - {"mode"})
        nearest = f"did you mean {close[0]}?" if close else f"there are: {', '.join(there)}"
        raise SettingsError(
            "mode", [FieldError(unknown, f"={settings[unknown]!r}: there is no such setting; {nearest}")]
        )
