"""How often each whole number came: exact, and small as long as few different numbers come."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hotrow.errors import InputError
from hotrow.spec import whole_number

MOST = 2**62


@dataclass(slots=True)
class Histogram:
    """Counts by value, both from 0. Figures of an empty one are None."""

    counts: dict[int, int] = field(default_factory=dict)  # value -> how often; no entry is 0

    def add(self, value: int, count: int = 1) -> None:
        """Count a value."""
        if value < 0 or count < 0:
            raise InputError(f"value={value!r}, count={count!r}: both must be 0 or more")
        if count:
            self.counts[value] = self.counts.get(value, 0) + count

    def merge(self, other: "Histogram") -> None:
        """Count all that another one holds."""
        for value, count in other.counts.items():
            self.counts[value] = self.counts.get(value, 0) + count

    @property
    def total(self) -> int:
        """How many values came."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float | None:
        total = self.total
        return self._sum(1) / total if total else None

    @property
    def variance(self) -> float | None:
        """Mean squared distance from the mean; in whole numbers up to the division, so nothing cancels."""
        total = self.total
        return (total * self._sum(2) - self._sum(1) ** 2) / total**2 if total else None

    @property
    def largest(self) -> int | None:
        return max(self.counts, default=None)

    def quantile(self, share: float) -> int | None:
        """The smallest value that at least this share of all values does not exceed."""
        if not 0 <= share <= 1:
            raise InputError(f"share={share!r}: must be from 0 to 1")
        place = max(1, math.ceil(Fraction(str(share)) * self.total))  # 0.07 of 100 is 7, and not a little more
        passed = 0
        for value in sorted(self.counts):
            passed += self.counts[value]
            if passed >= place:
                return value
        return None

    def document(self) -> dict[str, Any]:
        """Plain data for JSON: values in order with their counts, and the figures for readers."""
        values = sorted(self.counts)
        return {
            "total": self.total,
            "mean": self.mean,
            "variance": self.variance,
            "largest": self.largest,
            "values": values,
            "counts": [self.counts[value] for value in values],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Histogram":
        """From what `document` gave; the figures are made anew."""
        values, counts = document.get("values"), document.get("counts")
        if not isinstance(values, list) or not isinstance(counts, list) or len(values) != len(counts):
            raise InputError("histogram: needs two lists of one length, values and counts")
        if len(set(values)) != len(values):
            raise InputError("histogram: a value occurs twice in values; add their counts up")
        return cls(
            {
                whole_number("values", value, 0, MOST, InputError): whole_number("counts", count, 1, MOST, InputError)
                for value, count in zip(values, counts, strict=True)
            }
        )

    def _sum(self, power: int) -> int:
        return sum(value**power * count for value, count in self.counts.items())
