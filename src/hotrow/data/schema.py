"""What the columns of a data set mean: label, numbers, ids, sequences, time, group, weight. Pure: nothing is read here.

An id is a 64-bit number as it is, or any other text by its 64-bit hash: a text that is a whole decimal number means
that number, so a CSV file and a Parquet file with integers give the same rows. There is no vocabulary, and no modulo.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from hotrow.sizes import Whole
from hotrow.spec import Spec

BLANKS = " \t\n\v\f\r"  # around a label: what Arrow trims


def _by_column(value: Any) -> Any:
    """A name alone is the column with default settings."""
    return {"column": value} if isinstance(value, str) else value


class Bucket(Spec):
    """Numbers become ids: bucket k holds those from bounds[k - 1] up to, not including, bounds[k].

    Without bounds: floor(log(x) ** 2) + 3 above 2, and floor(x) up to 2: as the winners of Criteo's contest did,
    where small numbers keep buckets of their own.
    """

    name: Literal["bucket"] = "bucket"
    bounds: tuple[float, ...] | None = None
    table: str = "default"

    @field_validator("bounds")
    @classmethod
    def _rising(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and (not value or any(low >= high for low, high in pairwise(value))):
            raise ValueError("must hold at least one bound, each larger than the one before")
        return value


class Standard(Spec):
    """(x - mean) / deviation. What is left out is measured on the first `rows` training rows and kept with the run."""

    name: Literal["standard"] = "standard"
    mean: float | None = None
    deviation: float | None = Field(default=None, gt=0)
    rows: Whole = Field(default=100_000, ge=2)


class Log1p(Spec):
    """sign(x) * log(1 + |x|), so that negative numbers keep their order."""

    name: Literal["log1p"] = "log1p"


class Plain(Spec):
    """The number as it is."""

    name: Literal["none"] = "none"


def _by_name(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Transform = Annotated[Plain | Log1p | Standard | Bucket, Field(discriminator="name"), BeforeValidator(_by_name)]


def _as_texts(value: Any) -> Any:
    """One value is a list of one; numbers and booleans as a text file writes them."""
    given = value if isinstance(value, list | tuple) else [value]
    return tuple(_as_text(each) for each in given)


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


class Label(Spec):
    """Names a label column, and how it becomes a number.

    With `at_least` it is 1 where the column reaches the bound, else 0. With `positive` it is 1 where the column holds
    one of these values, and 0 where it holds any other.

    Example:
        >>> from hotrow.data import Label
        >>> Label(column="rating", at_least=4).at_least
        4.0
    """

    column: str
    at_least: float | None = None
    positive: Annotated[tuple[str, ...], BeforeValidator(_as_texts)] | None = Field(default=None, min_length=1)

    @field_validator("positive")
    @classmethod
    def _without_blanks(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        trimmed = tuple(each.strip(BLANKS) for each in value)
        if "" in trimmed:
            raise ValueError("an empty text is a missing label: name the values that count as positive")
        return trimmed

    @model_validator(mode="after")
    def _has_one_rule(self) -> "Label":
        if self.at_least is not None and self.positive is not None:
            raise ValueError("at_least is for numbers and positive for values: give one of them")
        return self


class Number(Spec):
    """Names a dense column. A missing value becomes `missing` after the transform (for buckets: a bucket of its own).

    Example:
        >>> from hotrow.data import Number
        >>> Number(column="price", transform="log1p").transform.name
        'log1p'
    """

    column: str
    transform: Transform = Plain()
    missing: float = 0.0
    flag_missing: bool = False  # one more number beside it: 1 where the value is missing, else 0


class Ids(Spec):
    """Names a column of ids: one per sample, or several (a list column, or a text split at `separator`).

    Several are pooled to one vector, unless `sequence` keeps the last ones in order. Columns that share a table have
    their own ids unless they share a `space`: then equal ids are the same row (an item and a history of items). A list
    column needs `several`; the Parquet reader sets it.

    Example:
        >>> from hotrow.data import Ids
        >>> Ids(column="genres", separator="|", pooling="sum").pooling
        'sum'
    """

    column: str
    name: str = ""  # of the feature; the column's if left out
    table: str = "default"
    space: str = ""  # the feature's name if left out
    separator: str | None = Field(default=None, min_length=1, max_length=1)
    several: bool = False
    pooling: Literal["mean", "sum"] = "mean"
    sequence: Whole | None = Field(default=None, ge=1, le=65_536)
    text: bool = False  # hash every id as text, also one that is a whole number

    @model_validator(mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "column" not in value:
            return value
        name = value.get("name") or value["column"]
        return {**value, "name": name, "space": value.get("space") or name}

    @property
    def many(self) -> bool:
        """Whether a sample may have any number of ids."""
        return self.several or self.separator is not None or self.sequence is not None


class Time(Spec):
    """Names the time column of samples: unix seconds or milliseconds, ISO 8601, or a strptime format; UTC by default.

    Example:
        >>> from hotrow.data import Time
        >>> Time(column="hour", format="%y%m%d%H").format
        '%y%m%d%H'
    """

    column: str
    format: str = "auto"  # auto: a number is unix seconds, a text ISO 8601; "s", "ms", or as strptime: "%y%m%d%H"


AnyLabel = Annotated[Label, BeforeValidator(_by_column)]
AnyNumber = Annotated[Number, BeforeValidator(_by_column)]
AnyIds = Annotated[Ids, BeforeValidator(_by_column)]
AnyTime = Annotated[Time, BeforeValidator(_by_column)]


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


class Schema(Spec):
    """All columns of a data set that a model uses; others are ignored.

    Example:
        >>> from hotrow.data import Schema
        >>> schema = Schema(label="clicked", ids=["user", {"column": "item", "table": "items"}], numbers=["price"])
        >>> [feature.table for feature in schema.ids]
        ['default', 'items']
    """

    label: Annotated[tuple[AnyLabel, ...], BeforeValidator(_as_list)] = Field(min_length=1)  # several: multi-task
    numbers: tuple[AnyNumber, ...] = ()
    ids: tuple[AnyIds, ...] = ()
    time: AnyTime | None = None
    group: str | None = None  # the column whose values make the groups of grouped AUC
    weight: str | None = None  # the column of sample weights: what each sample's loss is multiplied by

    @model_validator(mode="after")
    def _features_are_distinct(self) -> "Schema":
        buckets = [number.column for number in self.numbers if isinstance(number.transform, Bucket)]
        names = [*buckets, *(feature.name for feature in self.ids)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"feature {twice[0]!r} occurs twice: give one of them another name")
        if not names and not self.numbers:
            raise ValueError("there are neither ids nor numbers: a model needs something to look at")
        features = {number.column for number in self.numbers} | {feature.column for feature in self.ids}
        if both := [label.column for label in self.label if label.column in features]:
            raise ValueError(f"column {both[0]!r} is the label and a feature: the model would see the answer")
        if self.weight in (taken := [label.column for label in self.label]):
            raise ValueError(f"column {taken[0]!r} is the label and the weight: name another column for weight")
        by_value = {label.column for label in self.label if label.positive is not None}
        if both := [label.column for label in self.label if label.positive is None and label.column in by_value]:
            raise ValueError(f"column {both[0]!r} is a label with positive and one without: give all of them positive")
        return self

    @property
    def bucketed(self) -> dict[str, Bucket]:
        """The buckets of numbers that become ids, by the name of their feature."""
        return {each.column: each.transform for each in self.numbers if isinstance(each.transform, Bucket)}

    @property
    def dense(self) -> tuple[Number, ...]:
        """Numbers that stay numbers."""
        return tuple(number for number in self.numbers if not isinstance(number.transform, Bucket))

    @property
    def width(self) -> int:
        """Numbers that a model gets per sample."""
        return sum(2 if number.flag_missing else 1 for number in self.dense)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        used = [label.column for label in self.label]
        used += [number.column for number in self.numbers]
        used += [feature.column for feature in self.ids]
        used += [self.time.column] if self.time else []
        used += [self.group] if self.group else []
        used += [self.weight] if self.weight else []
        return tuple(dict.fromkeys(used))
