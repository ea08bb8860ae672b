"""How late single ids were, and what a policy made of them. An id counts once for each push that holds it."""

from dataclasses import dataclass, field

from hotrow.staleness.decay import Staleness
from hotrow.staleness.histogram import Histogram


@dataclass(slots=True)
class IdCounts:
    """Of one aggregate, or of many."""

    late: Histogram = field(default_factory=Histogram)
    decayed: int = 0  # weighed less than 1, those of weight 0 included
    zero_weight: int = 0  # weighed nothing

    @classmethod
    def of(cls, late: Histogram, policy: Staleness | None) -> "IdCounts":
        """Of ids whose gradients a policy has weighed; None: they all counted whole."""
        weights = {} if policy is None else {age: policy.row_weight(age) for age in late.counts}
        return cls(
            late,
            decayed=sum(late.counts[age] for age, weight in weights.items() if weight < 1.0),
            zero_weight=sum(late.counts[age] for age, weight in weights.items() if weight == 0.0),
        )
