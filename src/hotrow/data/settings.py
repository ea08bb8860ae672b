"""The `[data]` section of a run: which files, how they are written, what their columns mean. Nothing is opened here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from hotrow.data.formats import avazu, criteo, movielens, taobao
from hotrow.data.libsvm import SCHEMA as LIBSVM_SCHEMA
from hotrow.data.parser import Dialect
from hotrow.data.schema import AnyIds, AnyLabel, AnyNumber, AnyTime, Schema, Transform
from hotrow.data.source import LIMIT
from hotrow.data.splits import DaysSplit, FractionSplit, NextDay, RowsSplit, SplitConfig, TimeSplit
from hotrow.sizes import Whole
from hotrow.spec import Spec

Format = Literal["csv", "parquet", "libsvm", "criteo", "avazu", "taobao", "movielens"]

CSV_ONLY = ("delimiter", "quote", "header", "columns", "missing", "encoding")
ONLY_FOR = {
    **dict.fromkeys(CSV_ONLY, ("csv",)),
    "transform": ("criteo",),
    "ads": ("taobao",),
    "users": ("taobao", "movielens"),
    "items": ("movielens",),
}
_USE = {"valid": "validate", "test": "test"}
NEEDED = {"csv": ("label",), "parquet": ("label",), "taobao": ("ads", "users")}


def _as_tuple(value: Any) -> Any:
    """One path, name or setting is a list of one."""
    return (value,) if isinstance(value, str | Path | Mapping | Spec) else value


def _as_text(value: Any) -> Any:
    return tuple(str(each) if isinstance(each, Path) else each for each in value) if isinstance(value, tuple) else value


AnySplit: TypeAlias = RowsSplit | FractionSplit | TimeSplit | DaysSplit
Paths = Annotated[tuple[str, ...], BeforeValidator(_as_text), BeforeValidator(_as_tuple), Field(min_length=1)]
OnePath = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]


class DataConfig(Spec):
    """Where samples come from. Paths may be globs, lists and URIs; relative ones start at the folder of the config.

    The schema (label, numbers, ids, time, group, weight) describes a csv or parquet file. The other formats know their
    columns; there each of them replaces the setting of the format.
    """

    format: Format = "csv"
    train: Paths
    valid: Paths | None = None
    test: Paths | NextDay | None = None
    split: SplitConfig | None = None  # of the training files into parts
    shuffle: Whole = Field(default=0, ge=0, le=2**31)  # rows within which training rows are mixed
    malformed: float | int = LIMIT  # refused above: a fraction of the rows (0.01), or a number of lines (100)

    label: Annotated[tuple[AnyLabel, ...], BeforeValidator(_as_tuple)] | None = Field(
        default=None, validate_default=True
    )
    numbers: tuple[AnyNumber, ...] | None = None
    ids: tuple[AnyIds, ...] | None = None
    time: AnyTime | None = None
    group: str | None = None
    weight: str | None = None  # the column of sample weights

    delimiter: str | None = Field(default=None, min_length=1)  # a comma; a tab in files named .tsv
    quote: str = Field(default='"', max_length=1)  # "": nothing is quoted
    header: bool | None = None  # whether the first line holds names; it does where `columns` is left out
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)  # names in place of the first line's
    missing: tuple[str, ...] = ("",)  # texts that mean that nothing is there
    encoding: str = "utf-8"

    transform: Transform | None = None  # criteo: of all numbers, log1p if left out
    ads: OnePath | None = Field(default=None, validate_default=True)  # taobao: ad_feature.csv
    users: OnePath | None = Field(
        default=None, validate_default=True
    )  # taobao: user_profile.csv; movielens: NAME.user, u.user or users.dat
    items: OnePath | None = None  # movielens: NAME.item, u.item or movies.dat

    @field_validator("malformed", mode="before")
    @classmethod
    def _fraction_or_count(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, float | int):
            raise ValueError("must be a fraction of the rows, as 0.01, or a number of lines, as 100")
        if value < 0 or (isinstance(value, float) and value > 1):
            raise ValueError("must be a fraction from 0.0 to 1.0, or a whole number of lines from 0")
        return value

    @field_validator(*ONLY_FOR)
    @classmethod
    def _is_a_setting_of_the_format(cls, value: Any, info: ValidationInfo) -> Any:
        name, formats = info.field_name or "", ONLY_FOR[info.field_name or ""]
        if value != cls.model_fields[name].default and info.data.get("format", formats[0]) not in formats:
            raise ValueError(
                f"is a setting of format {' and '.join(formats)}, not of {info.data['format']}: leave it out"
            )
        return value

    @field_validator("label", "ads", "users")
    @classmethod
    def _is_there_where_the_format_needs_it(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.field_name in NEEDED.get(info.data.get("format", ""), ()):
            raise ValueError(f"format {info.data['format']} needs it: give it a value")
        return value

    @model_validator(mode="after")
    def _columns_make_sense(self) -> "DataConfig":
        schema_of(self)
        if self.format == "csv":
            dialect_of(self, self.train[0])
        return self

    @field_validator("split")
    @classmethod
    def _every_part_has_one_origin(cls, value: AnySplit | None, info: ValidationInfo) -> AnySplit | None:
        for name in () if value is None else parts_of(value):
            if info.data.get(name) is not None:
                raise ValueError(f"{name} names the data to {_USE[name]} on too: leave one of them out")
        return value

    def with_schema(self, schema: Schema) -> "DataConfig":
        """The same with every number measured that a schema holds by now, to be kept with a run."""
        return self.model_copy(update={"numbers": schema.numbers})


def parts_of(split: AnySplit) -> tuple[str, ...]:
    """Which of valid and test a split makes."""
    match split:
        case RowsSplit() | FractionSplit():
            return tuple(name for name in ("valid", "test") if getattr(split, name) != 0)
        case TimeSplit(valid=valid):
            return ("test",) if valid is None else ("valid", "test")
        case DaysSplit():
            return ("test",)


def schema_of(config: DataConfig) -> Schema:
    """The schema: that of the format, with the settings of the config."""
    names = ("label", "numbers", "ids", "time", "group", "weight")
    given = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    match config.format:
        case "csv" | "parquet":
            return Schema(**given)
        case "libsvm":
            preset = LIBSVM_SCHEMA
        case "criteo":
            preset = criteo.schema(config.transform)
        case "avazu":
            preset = avazu.schema()
        case "taobao":
            preset = taobao.schema()
        case "movielens":
            preset = movielens.schema(config.users is not None, config.items is not None)
    return Schema(**{**{name: getattr(preset, name) for name in names}, **given})


def dialect_of(config: DataConfig, path: str) -> Dialect:
    """How text files such as the one at `path` are written."""
    return Dialect(
        delimiter=config.delimiter or ("\t" if ".tsv" in Path(path).suffixes else ","),
        quote=config.quote or None,
        header=config.columns is None if config.header is None else config.header,
        columns=config.columns,
        missing=config.missing,
        encoding=config.encoding,
    )
