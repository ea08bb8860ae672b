"""Marks of pushes that an order applies, in the segment: a process that is killed leaves word of how far it came.

A push that is applied on arrival is marked in every table that it has rows of, because it is sent again to the next
process, and tables without a mark take it then. A parked push is gone with its process, so one mark covers all tables.
"""

from collections.abc import Iterable, Mapping

from hotrow.store import RamTier
from hotrow.store.pushes import Seen


class OrderMarks:
    """The log of one segment for all tables of a shard; without a segment nothing is marked."""

    def __init__(self, tiers: Mapping[str, RamTier]) -> None:
        self._tiers = [tier for tier in tiers.values() if tier.table.segment is not None]
        self._tier = self._tiers[0] if self._tiers else None
        self._begun: set[int] = set()  # by this process, and not finished

    def begin(self, grants: Iterable[int]) -> None:
        """Parked pushes are about to be applied; those that were begun before stay so."""
        if self._tier is not None:
            log = self._tier.pushes
            self._begun.update(grant for grant in grants if grant and log.begin(grant) == "fresh")

    def finish(self, grants: Iterable[int]) -> None:
        """They are applied."""
        if self._tier is not None:
            log = self._tier.pushes
            for grant in grants:
                if grant in self._begun:
                    self._begun.discard(grant)
                    log.finish(grant)

    def knows(self, grant: int) -> bool:
        """Whether an earlier process has applied or discarded a push, or begun to."""
        return any(tier.pushes.find(grant) != "fresh" for tier in self._tiers)

    def discard(self, grant: int) -> None:
        """A push must not be applied any more, by no later process either: in no table."""
        self._begun.discard(grant)
        self.found(grant)

    def found(self, grant: int) -> Seen:
        """How far an earlier process came with a push that this one does not have. It is not applied any more."""
        found = {tier.pushes.discard(grant) for tier in self._tiers}
        marks: tuple[Seen, ...] = ("partly", "done", "forgotten")
        return next((mark for mark in marks if mark in found), "fresh")
