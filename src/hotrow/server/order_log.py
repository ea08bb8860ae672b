"""The orders that a shard has performed, their replies, and its counters: a reply has the counts since the last one.

A repeated order gets its first reply again, so each count is reported once.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from hotrow.errors import InputError
from hotrow.staleness import Histogram
from hotrow.transport.messages import OrderResult, PartWeights

COUNTED = (
    "pushes", "again", "forgotten", "discarded", "lost_pushes", "partly_applied", "applied_before", "parked_lost",
    "refused", "weightless", "missing", "pulled_rows", "absent", "imported", "import_turned_away",
    "cache_checks", "cache_invalid", "cache_written", "hints",
)  # fmt: skip
ANSWERS_KEPT = 1_000  # for orders that arrive again


class OrderLog:
    """Orders are numbered from 1 and performed in sequence. `lateness` is the staleness of ids since the last reply."""

    def __init__(self) -> None:
        self.performed = 0
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.lateness = Histogram()
        self._untold: Counter[str] = Counter()
        self._answers: OrderedDict[int, OrderResult] = OrderedDict()

    def count(self, counts: Mapping[str, int]) -> None:
        """Count, and report it with the next reply, by the names of its fields."""
        self.counts.update(counts)
        self._untold.update(counts)

    def answered(self, order: int) -> OrderResult | None:
        """The reply to an order that was performed; None for the next one. InputError for later ones."""
        if order <= self.performed:
            return self._answers.get(order, OrderResult(order))
        if order != self.performed + 1:
            raise InputError(f"order={order}: comes before its turn, the next is {self.performed + 1}: send that first")
        return None

    def answer(self) -> OrderResult:
        """The reply to the next order, which was performed."""
        self.performed += 1
        lateness = tuple(sorted(self.lateness.counts.items()))
        counts: dict[str, Any] = dict(self._untold)
        answer = OrderResult(self.performed, lateness=lateness, **counts)
        self._untold, self.lateness = Counter(), Histogram()
        return self._keep(answer)

    def with_dense(self, answer: OrderResult, weights: Sequence[PartWeights], lost: int) -> OrderResult:
        """The last reply with the weights of its order's parts, and those that are lost; it is the one repeated."""
        if not weights and not lost:
            return answer
        return self._keep(structs.replace(answer, weights=tuple(weights), dense_parked_lost=lost))

    def _keep(self, answer: OrderResult) -> OrderResult:
        self._answers[answer.order] = answer
        if len(self._answers) > ANSWERS_KEPT:
            self._answers.popitem(last=False)
        return answer
