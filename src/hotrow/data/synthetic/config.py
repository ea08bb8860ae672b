"""What a synthetic stream is: its size, shape, skew, drift, and how much of a click can be known."""

import datetime
import math
from typing import Literal

from pydantic import Field, model_validator

from hotrow.sizes import Whole
from hotrow.spec import Spec

Part = Literal["train", "valid", "test"]
SMALLEST = 10  # ids of the smallest feature, where there are enough for all
MOST_ROWS = 2**40


class SyntheticConfig(Spec):
    """Rows in the shape of Criteo's, made on the fly. The same settings give the same rows.

    `ids` counts those of all features together: the smallest feature has 10, each next is larger by the same factor.
    `drift` is the share of the ids whose weight moves from one day to the next, `new_ids` the share that is replaced
    by ids never seen before. Validation and test rows are further draws from the last day.
    """

    format: Literal["synthetic"] = "synthetic"
    rows: Whole = Field(default=1_000_000, ge=1, le=MOST_ROWS)
    valid_rows: Whole = Field(default=0, ge=0, le=MOST_ROWS)
    test_rows: Whole = Field(default=200_000, ge=0, le=MOST_ROWS)
    days: Whole = Field(default=1, ge=1, le=100_000)  # of about equal size
    first_day: datetime.date = datetime.date(2024, 1, 1)
    features: Whole = Field(default=26, ge=1, le=10_000)
    numbers: Whole = Field(default=13, ge=0, le=10_000)
    ids: Whole = Field(default=10_000_000, ge=1, le=2**63)
    zipf: float = Field(default=1.2, ge=0, le=4)  # a feature's k-th id comes about as often as 1 / k ** zipf
    scattered: bool = True  # over 64 bits, as hashes of texts are; else counted from 0, feature by feature
    click_rate: float = Field(default=0.25, ge=0.0001, le=0.9999)
    signal: float = Field(default=1.6, ge=0, le=20)  # deviation of the log-odds: 0 is pure chance
    drift: float = Field(default=0.0, ge=0, le=1)
    new_ids: float = Field(default=0.0, ge=0, le=1)
    seed: Whole = Field(default=0, ge=0, lt=2**64)

    @model_validator(mode="after")
    def _settings_fit_each_other(self) -> "SyntheticConfig":
        if self.days > self.rows:
            raise ValueError(f"days={self.days} is more than rows={self.rows}: every day needs a row")
        if self.features > self.ids:
            raise ValueError(f"features={self.features} is more than ids={self.ids}: every feature needs an id")
        if self.first_day.toordinal() + self.days > datetime.date.max.toordinal():
            raise ValueError(f"days={self.days} from first_day={self.first_day} on leave the calendar: start earlier")
        if self.ids * self.generations > 2**64:
            needed = f"ids={self.ids} replaced {self.generations - 1} times over need more than 64 bits"
            raise ValueError(f"{needed}: give fewer ids, fewer days or a smaller new_ids")
        return self

    @property
    def generations(self) -> int:
        """How many ids may follow each other in one place of the popularity order."""
        return 1 + math.ceil((self.days - 1) * self.new_ids)

    @property
    def rows_per_day(self) -> int:
        """Of the training rows; the last days may be short."""
        return -(-self.rows // self.days)

    def size(self, part: Part) -> int:
        """Rows of a part."""
        return {"train": self.rows, "valid": self.valid_rows, "test": self.test_rows}[part]

    def feature_sizes(self) -> list[int]:
        """The ids of every feature, smallest first; they add up to `ids`."""
        smallest = max(1, min(SMALLEST, self.ids // self.features))
        low, high = 1.0, float(self.ids) + 1
        for _ in range(200):  # halving finds the factor to the last bit
            factor = (low + high) / 2
            low, high = (
                (factor, high) if _sum_of_powers(factor, self.features) * smallest <= self.ids else (low, factor)
            )
        sizes = [int(smallest * low**place) for place in range(self.features - 1)]
        return [*sizes, self.ids - sum(sizes)]


def _sum_of_powers(factor: float, terms: int) -> float:
    if factor == 1:
        return terms
    try:
        return math.expm1(terms * math.log(factor)) / (factor - 1)
    except OverflowError:
        return math.inf
