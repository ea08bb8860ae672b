"""What the dense tensors of a part weighed, where a policy with `movement` weighs each by its own staleness.

A discipline gives a part one weight and has no tensors. Their server reports afterwards how its counts have to be
corrected.
"""

from collections.abc import Iterable
from dataclasses import dataclass

WeightRange = tuple[float, float]  # the least and the greatest weight of a part's dense gradients


@dataclass(frozen=True, slots=True)
class WeightCorrection:
    """What has to be added to the counts of parts that were taken by the discipline's weights."""

    decayed: int = 0
    zero_weight: int = 0

    @classmethod
    def of(cls, parts: Iterable[tuple[float, WeightRange]]) -> "WeightCorrection":
        """Of parts: the weight that the discipline gave, and what their tensors weighed."""
        decayed = zero_weight = 0
        for given, (least, greatest) in parts:
            decayed += (least < 1.0) - (given < 1.0)
            zero_weight += (greatest == 0.0) - (given == 0.0)
        return cls(decayed, zero_weight)


def joined(spans: Iterable[WeightRange]) -> WeightRange:
    """Of a part whose tensors are spread over servers."""
    least, greatest = zip(*spans, strict=True)
    return min(least), max(greatest)
