"""Which pushes of a shard count: each once, parked or applied on arrival, also those that the process before it knew.

A push whose grant was parked, applied or discarded before is not taken again. Where a segment holds the rows, marks in
it tell the next process how far this one came.
"""

from collections.abc import Iterable, Mapping

from hotrow.client import LocalTables
from hotrow.client.aggregate import RowGradients
from hotrow.server.order_log import OrderLog
from hotrow.server.order_marks import OrderMarks
from hotrow.server.pushes import PushBuffer, SeenGrants, bytes_of_rows

MARKS = 2  # of a number in the log of a table with a cache: one for a grant, one for a flush


class PushLedger:
    """The pushes of one shard, by grant. `parked_bytes` bounds those that wait for an order."""

    def __init__(self, tables: LocalTables, orders: OrderLog, parked_bytes: int, *, restarted: bool) -> None:
        """`restarted`: in place of a process of the same run that ended, whose parked pushes are gone."""
        self._tables, self._orders = tables, orders
        self.parked: PushBuffer[Mapping[str, RowGradients]] = PushBuffer(parked_bytes, bytes_of_rows)
        self.seen = SeenGrants()
        uncached = {name: tier for name, tier in tables.tiers.items() if tables.specs[name].cache is None}
        self._marks = OrderMarks(uncached)  # cached tables mark what their caches send
        self._gets_pushes = bool(uncached)  # caches send no gradients
        self._took_over = restarted  # late copies of pushes that the process before knew may come
        self._restarted = restarted  # and no mode has begun since
        self._on_arrival = False  # the process before has applied rows as they arrived

    @property
    def newest(self) -> int:
        """The largest grant or flush seen; a kept segment knows those of earlier processes."""
        specs = self._tables.specs
        kept = (
            tier.pushes.newest // (1 if specs[name].cache is None else MARKS)
            for name, tier in self._tables.tiers.items()
            if specs[name].segment
        )
        return max(self.seen.newest, *kept, 0)

    def begin_mode(self) -> None:
        """All pushes from now on are sent to this process."""
        self._restarted = self._on_arrival = False

    def resume(self, *, on_arrival: bool, discards: Iterable[int]) -> None:
        """Go on in the mode of the process before."""
        self._on_arrival = on_arrival
        for grant in discards:
            self._never_again(grant)

    # A push arrives.

    def is_repeated(self, grant: int) -> bool:
        """Whether a push was taken before, or is too old to tell. Either is counted."""
        if grant not in self.seen:
            return False
        if self.seen.forgotten(grant):
            self._orders.count({"forgotten": 1})
        else:
            self._orders.counts["again"] += 1
        return True

    def park(self, grant: int, rows: Mapping[str, RowGradients]) -> bool:
        """Hold a push until its order. False for a late copy of one that the process before applied or discarded."""
        if self._took_over and self._marks.knows(grant):
            return False
        self.parked.park(grant, rows)
        return True

    def begin_push(self, table: str, grant: int) -> bool:
        """Whether a push is new to a table. A segment knows the pushes that an earlier process applied."""
        if self._tables.specs[table].segment is None:
            return True
        seen = self._tables.tiers[table].pushes.begin(grant)
        if seen in ("partly", "forgotten"):
            self._orders.count({"partly_applied" if seen == "partly" else "forgotten": 1})
        return seen == "fresh"

    def finish_push(self, table: str, grant: int) -> None:
        """The push is applied to a table."""
        if self._tables.specs[table].segment is not None:
            self._tables.tiers[table].pushes.finish(grant)

    # An order applies, expects or discards pushes.

    def find(self, grant: int) -> Mapping[str, RowGradients]:
        """The rows of a parked push, which stays; none where it is not parked."""
        return self.parked.find(grant) or {}

    def is_parked(self, grant: int) -> bool:
        return self.parked.find(grant) is not None

    def begin_order(self, grants: Iterable[int]) -> None:
        """Parked pushes are about to be applied."""
        self._marks.begin(grants)

    def finish_order(self, grants: Iterable[int]) -> None:
        """They are applied."""
        self._marks.finish(grants)

    def take(self, grant: int) -> Mapping[str, RowGradients]:
        """The rows of a push; none where they were applied on arrival, or where it never arrived, which is counted."""
        rows = self.parked.take(grant)
        if rows is not None:
            return rows
        here = grant in self.seen or self._on_arrival or not self._gets_pushes
        if not here and not self._was_applied(grant):
            self._orders.count({"parked_lost" if self._restarted else "lost_pushes": 1})
        self.seen.add(grant)
        return {}

    def expect(self, grant: int) -> None:
        """A push that counts and that is applied on arrival: it is here, or lost."""
        if self._gets_pushes and grant not in self.seen and not self._was_applied(grant):
            self._orders.count({"lost_pushes": 1})
        self._never_again(grant)

    def discard(self, grant: int) -> None:
        """A push that does not count."""
        was_parked = self.parked.take(grant) is not None
        self._orders.counts["discarded"] += was_parked
        if grant in self.seen and not was_parked:
            self._orders.count({"applied_before": int(not self.seen.forgotten(grant))})
        elif self._restarted and not was_parked and self._was_applied(grant):
            self._orders.count({"applied_before": 1})
        self._never_again(grant)

    def _never_again(self, grant: int) -> None:
        """A push may still arrive: neither this process nor a later one takes it."""
        self.seen.add(grant)
        self._marks.discard(grant)

    def _was_applied(self, grant: int) -> bool:
        """Whether the process before this one applied a push, or ended in the middle of it, which is counted."""
        if not self._restarted:
            return False
        seen = self._marks.found(grant)
        self._orders.count({"partly_applied": int(seen == "partly")})
        return seen != "fresh"  # a mark of a discard is none of an application
