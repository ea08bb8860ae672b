"""Settings of a row's life: who is let in, and where the rows live."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from hotrow.sizes import FILE_NAME_RULE, Whole, WholeOrSize, fits_file_name, parse_bytes
from hotrow.spec import Spec

FILTER_BYTES_MIN = 64  # one cache line
FILTER_COUNT_MAX = 255  # the filter counts in 8 bits


class AtLeast(Spec):
    """A key is let in once it stood `count` times in lookups.

    Counts are exact, or kept by a counting Bloom filter of `filter` bytes, which lets a key in early when it shares its
    counters with others, and never late.
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
    """A key that is absent is let in with this probability each time a lookup asks for it."""

    name: Literal["chance"] = "chance"
    probability: float = Field(gt=0, lt=1)


AnyAdmission = Annotated[AtLeast | Chance, Field(discriminator="name")]


class Segment(Spec):
    """Rows live in a named file that outlasts the process: `<directory>/hotrow-<run>-<table>.rows`."""

    run: str
    directory: Path | None = None  # None: /dev/shm; with huge: the first mount of hugetlbfs
    keep: bool = False  # a clean exit leaves the file
    huge: bool = False  # the directory lies on hugetlbfs

    @field_validator("run")
    @classmethod
    def _run_fits_a_file_name(cls, value: str) -> str:
        if not fits_file_name(value):
            raise ValueError(f"is a part of the segment's file name: use {FILE_NAME_RULE}")
        return value


def _bytes(size: int | str) -> int:
    return parse_bytes(size) if isinstance(size, str) else size
