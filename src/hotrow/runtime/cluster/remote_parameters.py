"""The parameters of a mode on a cluster: numbered orders to the shards, messages about dense steps to the trainers.

Gradients are on the shards before their push is reported. The effects of one event are sent as one order. The driver
does not wait for orders: a lookup names the last order it must see, and a shard delays it until that order is applied.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from hotrow.client.aggregate import Average
from hotrow.modes import Mode
from hotrow.modes.base import Apply, RunFacts
from hotrow.runtime.cluster.roles import Roles
from hotrow.server.core import ApplyResult
from hotrow.staleness import Histogram, IdCounts, WeightCorrection
from hotrow.staleness.weights import Span, joined
from hotrow.transport import messages
from hotrow.transport.client import Answer
from hotrow.transport.messages import CloseStep, OrderResult, PartWeights, Perform, Policy, Settle

UNDER_WAY = 64  # orders without a reply before the next one waits


class RemoteParameters:
    """The `Parameters` of a mode on a cluster."""

    def __init__(
        self,
        mode: Mode,
        facts: RunFacts,
        roles: Roles,
        number: int,
        average: Average,
        trained: int = 0,
        rested: Callable[[], None] = lambda: None,
    ) -> None:
        """`number`: of the last order sent to the shards; `trained`: samples so far.

        `rested` is called when all orders are performed everywhere.
        """
        self.number = number
        self.failed = False
        self._mode, self._facts, self._roles, self._rested = mode, facts, roles, rested
        self._incarnations = roles.incarnations()
        self._arrives = mode.on_arrival(facts, 1) is not None
        self._applies: list[messages.ApplyOrder] = []
        self._discards: list[int] = []
        self._settle: Settle | None = None  # the update of KStep's trainers, unless a merge replaces it
        self._close: CloseStep | None = None
        self._under_way: deque[Future[Answer]] = deque()
        self._messages: deque[Future[Answer]] = deque()  # to trainers
        self._unreported: Counter[str] = Counter()
        self._undone: Counter[str] = Counter()
        self._lateness = Histogram()
        self._weighed: dict[int, list[Span]] = {}  # by grant, its weights on the shards that have answered
        self._given: dict[int, float] = {}  # by grant, its weight in an order without all replies
        self._corrections: list[tuple[float, Span]] = []
        self._answers = 0  # replies of all shards to orders
        late = None if mode.late is None else mode.late.model_dump_json()
        serves = mode.dense == "server"
        pushes = max(1, mode.samples_per_step(facts) // facts.local_batch)
        settings = average, late, serves, facts.step, trained, pushes
        self._order(lambda incarnation: Policy(incarnation, self.number, *settings))

    @property
    def changes_when_computed(self) -> bool:
        """Trainers end a step among themselves, and shards apply rows that arrive."""
        return self._mode.dense != "server" or self._arrives

    def discard(self, grant: int) -> None:
        """Drop a push that will not be applied."""
        self._discards.append(grant)

    def apply(self, effect: Apply, *, samples: int, lr_scale: float = 1.0) -> ApplyResult:
        """Add a step to the next order; returns the results of earlier ones, as far as they are known."""
        merge_alone = self._mode.dense == "local" and not effect.parts  # it ends no step and changes no row
        if not merge_alone and (effect.group != "embedding" or not self._arrives):
            self._applies.append(self._message(effect, samples, lr_scale))
        if self._mode.dense == "all-reduce":
            self._close_short_step(effect, lr_scale)
        elif self._mode.dense == "local":
            self._move_copies(effect, samples, lr_scale)
        return self._take_result()

    def _close_short_step(self, effect: Apply, lr_scale: float) -> None:
        """Send `CloseStep`: ranks wait for batches that will not come."""
        if effect.group != "embedding" and len(effect.parts) < self._facts.parts:
            self._close = CloseStep(effect.step, lr_scale)

    def _move_copies(self, effect: Apply, samples: int, lr_scale: float) -> None:
        """In KStep trainers update their own copies after a step; a merge replaces that update."""
        if effect.group == "embedding":
            self._settle = Settle(effect.step, False, samples, lr_scale)
        elif self._settle is not None:
            self._settle = Settle(self._settle.step, True, self._settle.trained, self._settle.lr_scale)
        else:
            self._settle = Settle(effect.step - 1, True, samples, lr_scale)

    def settle(self) -> None:
        """Send the effects of an event."""
        if self._applies or self._discards:
            applies, discards = tuple(self._applies), tuple(self._discards)
            self._applies, self._discards = [], []
            self._order(lambda incarnation: Perform(incarnation, self.number, applies, discards))
            if self._roles.embedding_workers is not None:
                self._roles.embedding_workers.release(discards)
        for word in (self._close, self._settle):
            if word is not None:
                self._messages += self._roles.request_all(self._roles.trainers, word, deadline=False)
        self._close = self._settle = None
        self._take_answers(self._messages, UNDER_WAY)

    def raise_failures(self) -> None:
        """Raise the error of an order or a message that failed: replies to what follows would never come."""
        self._take_answers(self._under_way, len(self._under_way))
        self._take_answers(self._messages, len(self._messages))

    def rest(self) -> ApplyResult:
        """Wait until all orders are performed everywhere."""
        self._take_answers(self._under_way, 0)
        self._take_answers(self._messages, 0)
        with self.failing():
            self._rested()
        return self._take_result()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """An error inside ends the mode: the state of the trainers is not fetched."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.failed = True
            raise

    def _order(self, made: Callable[[int], messages.Message]) -> None:
        self.number += 1
        for name, incarnation in zip(self._roles.shards, self._incarnations, strict=True):
            self._under_way.append(self._roles.rpc.request(name, made(incarnation)))
        self._take_answers(self._under_way, UNDER_WAY * len(self._roles.shards))

    def _take_answers(self, asked: deque[Future[Answer]], most: int) -> None:
        """Read the replies that arrived, and wait until at most `most` are missing."""
        while asked and (len(asked) > most or asked[0].done()):
            with self.failing():
                reply = self._roles.answer(asked[0]).message
            asked.popleft()
            if isinstance(reply, OrderResult):
                self._unreported.update(refused=reply.refused, weightless=reply.weightless)
                self._undone.update(lost_pushes=reply.lost_pushes, forgotten_pushes=reply.forgotten)
                self._undone.update(partly_applied_pushes=reply.partly_applied)
                for age, count in reply.lateness:
                    self._lateness.add(age, count)
                self._take_weights(reply.weights)

    def _take_weights(self, weights: Sequence[PartWeights]) -> None:
        """Shards answer orders in sequence, so the reply of the last shard completes the weights of an order."""
        for each in weights:
            self._weighed.setdefault(each.grant, []).append((each.least, each.greatest))
        self._answers += 1
        if self._answers % len(self._roles.shards) == 0:
            self._corrections += [(self._given.pop(grant), joined(spans)) for grant, spans in self._weighed.items()]
            self._weighed.clear()

    def _take_result(self) -> ApplyResult:
        counts, late, undone = self._unreported, self._lateness, self._undone
        self._unreported, self._lateness, self._undone = Counter(), Histogram(), Counter()
        corrections, self._corrections = self._corrections, []
        ids, weights = IdCounts.of(late, self._mode.late), WeightCorrection.of(corrections)
        return ApplyResult(counts["refused"], counts["weightless"], ids, undone, weights)

    def _message(self, effect: Apply, samples: int, lr_scale: float) -> messages.ApplyOrder:
        if effect.group != "embedding" and self._mode.late is not None and self._mode.late.movement is not None:
            self._given.update({part.grant: part.weight for part in effect.parts})
        parts = tuple(
            messages.OrderPart(part.grant, part.token, part.pulled_step, part.samples, part.weight)
            for part in effect.parts
        )
        return messages.ApplyOrder(effect.group, effect.step, samples, lr_scale, parts)
