"""The log of pushes that a table has applied, in its segment, which outlives the process."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from hotrow import _native
from hotrow.errors import InputError
from hotrow.spec import whole_number

Seen: TypeAlias = Literal["fresh", "done", "partly", "forgotten", "discarded"]

_GRANT_MAX = 2**62 - 1


class Pushes:
    """The log of one table. A push is applied between `begin` and `finish`, and only if `begin` returns "fresh".

    "done": it was applied before. "partly": it was begun and not finished, by a process that died or a caller that is
    still at it: do not repeat it, count it. "forgotten": it is older than the log reaches. "discarded": it was not
    applied and must not be.
    """

    def __init__(self, table: Callable[[], _native.RamTier]) -> None:
        self._table = table  # refuses when it is closed, or another process's

    def begin(self, grant: int) -> Seen:
        """Mark the intent to apply the push of `grant`."""
        seen: Seen = self._table().push_begin(_grant(grant)).name  # type: ignore[assignment]
        return seen

    def find(self, grant: int) -> Seen:
        """What `begin` would say, without a mark."""
        seen: Seen = self._table().push_find(_grant(grant)).name  # type: ignore[assignment]
        return seen

    def discard(self, grant: int) -> Seen:
        """What `find` says. A fresh push is marked: no process applies it any more."""
        seen: Seen = self._table().push_discard(_grant(grant)).name  # type: ignore[assignment]
        return seen

    def finish(self, grant: int) -> None:
        """The push of `grant` is applied."""
        try:
            self._table().push_finish(_grant(grant))
        except ValueError as error:
            raise InputError(f"{error}: call begin first, once") from None

    @property
    def newest(self) -> int:
        """The largest grant that was begun, 0 where none was. Whoever begins anew has to number on from there."""
        return self._table().push_newest()


def _grant(grant: int) -> int:
    return whole_number("grant", grant, 1, _GRANT_MAX, InputError)
