"""How fast a step can be, from what it computes and what it sends. Pure.

Here all roles share the cores of one machine, so computing takes at least the processor time of all of them over the
cores. Where every role has a core of its own, it takes at least the time of the busiest one. A worker sends and
receives at the same time, each at the rate of its link. Computing and sending overlap, so the larger one is the bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hotrow.transport.link import GBPS


@dataclass(frozen=True, slots=True)
class StepCost:
    """Of one step, in which each worker trains one batch."""

    seconds: float  # as measured
    processor_s: Mapping[str, float]  # by role
    bytes_in: float  # of one worker
    bytes_out: float

    def link_s(self, gbps: float) -> float:
        """The time of the bytes on the link of a worker, whichever direction has more."""
        return max(self.bytes_in, self.bytes_out) / (gbps * GBPS)

    def bound_s(self, gbps: float, cores: int) -> float:
        """On one machine with so many cores."""
        return max(sum(self.processor_s.values()) / cores, self.link_s(gbps))

    def own_cores_s(self, gbps: float) -> float:
        """Where every role has a core of its own: computed, not measured."""
        return max(max(self.processor_s.values()), self.link_s(gbps))

    @property
    def nbytes(self) -> float:
        """Of one worker, both directions."""
        return self.bytes_in + self.bytes_out
