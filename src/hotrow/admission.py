"""Admission: which keys get a row, by the times they occurred or by chance."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from hotrow.sizes import Whole, WholeOrSize, parse_bytes
from hotrow.spec import Spec

FILTER_BYTES_MIN = 64  # one cache line
FILTER_COUNT_MAX = 255  # the filter counts in 8 bits


class AtLeast(Spec):
    """Admits a key once it occurred `count` times in lookups.

    Counts are exact, or kept by a counting Bloom filter of `filter` bytes, which admits a key early when it shares its
    counters with others, and never late.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, admission=hr.AtLeast(count=3, filter="1MB")).admission.filter_bytes
        1000000
    """

    name: Literal["at_least"] = "at_least"
    count: Whole = Field(ge=2, le=2**31)
    filter: WholeOrSize | None = None

    @field_validator("filter")
    @classmethod
    def _filter_can_count(cls, value: int | str | None, info: ValidationInfo) -> int | str | None:
        if value is None:
            return None
        if _bytes(value) < FILTER_BYTES_MIN:
            raise ValueError(f"must be {FILTER_BYTES_MIN} bytes or more")
        if info.data.get("count", 0) > FILTER_COUNT_MAX:
            most = f"a filter counts to {FILTER_COUNT_MAX}, and count is {info.data['count']}"
            raise ValueError(f"{most}: lower count, or leave filter out to count exactly")
        return value

    @property
    def filter_bytes(self) -> int | None:
        """Bytes of the Bloom filter; None when counts are exact."""
        return None if self.filter is None else _bytes(self.filter)


class Chance(Spec):
    """Admits an absent key with this probability in each lookup.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=8, admission=hr.Chance(probability=0.1)).admission.probability
        0.1
    """

    name: Literal["chance"] = "chance"
    probability: float = Field(gt=0, lt=1)


AnyAdmission = Annotated[AtLeast | Chance, Field(discriminator="name")]


def _bytes(size: int | str) -> int:
    return parse_bytes(size) if isinstance(size, str) else size
