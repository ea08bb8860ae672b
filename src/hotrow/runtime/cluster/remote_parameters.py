"""The parameters of a mode on a cluster: numbered orders to the shards, messages about dense steps to the trainers.

Gradients are on the shards before their push is reported. The effects of one event are sent as one order. The driver
does not wait for orders: a lookup names the last order it must see, and a shard delays it until that order is applied.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from hotrow.client.aggregate import Average
from hotrow.errors import HotrowError
from hotrow.modes import Mode
from hotrow.modes.base import Apply, RunFacts
from hotrow.runtime.cluster.order_plan import OrderPlan, WeightReplies
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.shard_restarts import RestartedShard
from hotrow.runtime.losses import WorkersLost
from hotrow.server.core import NOTHING_NEW, ApplyResult
from hotrow.staleness import Histogram, IdCounts, WeightCorrection
from hotrow.staleness.weights import WeightRange
from hotrow.transport import messages
from hotrow.transport.client import Answer
from hotrow.transport.envelope import preencoded
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import ApplyOrder, OrderResult, Perform, Policy, Prepare, ResumeShard
from hotrow.types import RoleId

UNDER_WAY = 64  # orders without a reply before the next one waits


@dataclass(frozen=True, slots=True, eq=False)
class _SentOrder:
    """An order on its way to a shard, with the state before it."""

    shard: RoleId
    number: int
    incarnation: int
    asked: Future[Answer]
    parts: int  # pushes that it applies
    discards: tuple[int, ...]
    step: int
    samples: int


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
        opening: Callable[["RemoteParameters"], None] = lambda _: None,
    ) -> None:
        """`number`: of the last order sent to the shards; `trained`: samples so far.

        `rested` is called when all orders are performed everywhere, `opening` before the first one is sent.
        """
        self.number = number
        self.failed = False
        self._mode, self._roles, self._rested = mode, roles, rested
        self._trainers = list(roles.trainers)  # when the mode began
        self._incarnations = dict(zip(roles.shards, roles.incarnations(), strict=True))
        self._on_arrival = mode.on_arrival(facts, 1) is not None
        self.must_cut = False  # a shard was started again, and has lost gradients of the open step
        self._plan, self._weights = OrderPlan(mode, facts), WeightReplies(mode, len(roles.shards))
        self._under_way: deque[_SentOrder] = deque()
        self._messages: deque[Future[Answer]] = deque()  # to trainers
        self._unreported: Counter[str] = Counter()
        self._undone: Counter[str] = Counter()
        self._lateness = Histogram()
        self._counted = False  # anything since the last result
        self._corrections: list[tuple[float, WeightRange]] = []
        late = None if mode.late is None else mode.late.model_dump_json()
        serves = mode.dense == "server"
        pushes = max(1, mode.samples_per_step(facts) // facts.local_batch)
        self._rules = average, late, serves
        self._pushes, self._step, self._samples = pushes, facts.step, trained
        settings = average, late, serves, facts.step, trained, pushes
        opening(self)
        self._order(lambda incarnation: Policy(incarnation, self.number, *settings))

    @property
    def changes_when_computed(self) -> bool:
        """Trainers end a step among themselves, and shards apply rows that arrive."""
        return self._mode.dense != "server" or self._plan.rows_on_arrival

    def apart_at(self, step: int) -> int:
        """In KStep: steps of a copy since the last merge, where trainers are at a step, the open one or that before."""
        return self._plan.apart_at(step)

    def discard(self, grant: int) -> None:
        """Drop a push that will not be applied."""
        self._plan.discard(grant)

    def expect(self, grant: int) -> None:
        """A batch counts whose trainer did not answer for it: shards count its rows as lost that are not there."""
        self._plan.expect(grant)

    def apply(self, effect: Apply, *, samples: int, lr_scale: float = 1.0) -> ApplyResult:
        """Add a step to the next order; returns the results of earlier ones, as far as they are known."""
        self._plan.apply(effect, samples, lr_scale)
        self._weights.ordered(effect)
        return self._take_result()

    def settle(self) -> None:
        """Send the effects of an event."""
        if self._plan.empty and not self._messages:
            return
        planned = self._plan.take()
        if planned.applies or planned.discards or planned.expected:
            applies = preencoded(planned.applies)  # the same for all shards
            parts = sum(len(each.parts) for each in planned.applies)
            rest = planned.discards, planned.expected
            self._order(lambda incarnation: Perform(incarnation, self.number, applies, *rest), parts, planned.discards)
            for each in planned.applies:
                self._step, self._samples = max(self._step, each.step + 1), each.samples
            if self._roles.embedding_workers is not None:
                self._roles.embedding_workers.discard(planned.discards)
        for message in planned.to_trainers:
            self._messages += self._roles.request_all(self._roles.trainers, message, deadline=False)
        self._take_replies(UNDER_WAY)

    def prepare(self, order: ApplyOrder) -> None:
        """Tell the shards how a step will be ordered. Unlike an order it has no number: no order waits for it."""
        for name, incarnation in self._incarnations.items():
            self._messages.append(self._roles.rpc.request(name, Prepare(incarnation, order)))

    def resumption(self, shard: RestartedShard) -> ResumeShard:
        """How far a shard came whose process has ended, and the rules of the mode.

        It goes on after the last order that it has answered: later ones are sent again. A shard that has lost its rows
        refuses those. Where trainers end steps together, gradients that were parked for the open one make them cut it.
        """
        self._incarnations[shard.name] = shard.incarnation
        order, step, samples = self.number, self._step, self._samples
        unanswered = [each for each in self._under_way if each.shard == shard.name and not each.asked.done()]
        refused = tuple(grant for each in unanswered if shard.rows_lost for grant in each.discards)
        if unanswered and not shard.rows_lost:
            order, step, samples = unanswered[0].number - 1, unanswered[0].step, unanswered[0].samples
        cuts = self._mode.dense != "server" and not self._on_arrival
        self.must_cut = self.must_cut or cuts
        return ResumeShard(
            order,
            *self._rules,
            step,
            samples,
            pushes=self._pushes,
            arrival=self._on_arrival,
            refuses=cuts,
            discards=refused,
        )

    def raise_failures(self) -> None:
        """Raise the error of an order or a message that failed: replies to what follows would never come."""
        self._take_answers(self._under_way, len(self._under_way))
        self._take_replies(len(self._messages))

    def count_first(self, undone: Mapping[str, int]) -> None:
        """Report counts of the mode before with the first result: they came when it had ended."""
        self._undone.update(undone)
        self._counted = self._counted or bool(undone)

    def last_counts(self) -> Mapping[str, int]:
        """Wait for all orders, and return what was counted and not reported. The mode ends."""
        self.wait_for_orders()
        return dict(self._take_result().undone)

    def wait_for_orders(self) -> None:
        """Wait until the shards have performed all orders."""
        self.settle()
        self._take_answers(self._under_way, 0)

    def rest(self) -> ApplyResult:
        """Wait until all orders are performed everywhere."""
        self.settle()
        self._take_answers(self._under_way, 0)
        self._take_replies(0)
        with self.failing():
            self._rested()
        return self._take_result()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """An error inside ends the mode: the state of the trainers is not fetched."""
        try:
            yield
        except (KeyboardInterrupt, WorkersLost):  # what was computed is discarded, or dealt again
            raise
        except BaseException:
            self.failed = True
            raise

    def _order(self, made: Callable[[int], messages.Message], parts: int = 0, discards: tuple[int, ...] = ()) -> None:
        self.number += 1
        for name, incarnation in self._incarnations.items():
            asked = self._roles.rpc.request(name, made(incarnation))
            sent = _SentOrder(name, self.number, incarnation, asked, parts, discards, self._step, self._samples)
            self._under_way.append(sent)
        self._take_answers(self._under_way, UNDER_WAY * len(self._roles.shards))

    def _take_answers(self, sent: deque[_SentOrder], most: int) -> None:
        """Read the replies that arrived, and wait until at most `most` are missing."""
        while sent and (len(sent) > most or sent[0].asked.done()):
            with self.failing():
                reply = self._reply(sent[0])
            sent.popleft()
            if isinstance(reply, OrderResult):
                self._corrections += self._weights.answered(reply.weights)
                if reply != OrderResult(reply.order, weights=reply.weights):
                    self._count(reply)

    def _reply(self, sent: _SentOrder) -> messages.Message:
        """Of a shard to an order. One that has lost its rows since has lost the gradients of the order, too."""
        try:
            return self._roles.answer(sent.asked).message
        except RemoteFault as fault:
            if fault.kind != "lost" or self._incarnations[sent.shard] == sent.incarnation:
                raise
            return OrderResult(sent.number, parked_lost=sent.parts)

    def _take_replies(self, most: int) -> None:
        """The same for messages, which fail where a trainer is lost: the executor reports that."""
        while self._messages and (len(self._messages) > most or self._messages[0].done()):
            asked = self._messages.popleft()
            with self.failing():
                try:
                    self._roles.answer(asked)
                except HotrowError as error:
                    if not self.must_cut and not self._roles.caused_by_loss(self._trainers, error):
                        raise

    def count(self, counts: Mapping[str, int]) -> None:
        """Add counts of the trainers to the next result."""
        self._counted = True
        self._undone.update(counts)

    def _count(self, reply: OrderResult) -> None:
        self._counted = True
        self._unreported.update(refused=reply.refused, weightless=reply.weightless)
        self._undone.update(lost_pushes=reply.lost_pushes, forgotten_pushes=reply.forgotten)
        self._undone.update(parked_pushes_lost=reply.parked_lost, dense_pushes_lost=reply.dense_parked_lost)
        self._undone.update(partly_applied_pushes=reply.partly_applied, rows_applied_twice=reply.applied_before)
        for age, count in reply.lateness:
            self._lateness.add(age, count)

    def _take_result(self) -> ApplyResult:
        if not self._counted and not self._corrections:
            return NOTHING_NEW
        self._counted = False
        counts, late, undone = self._unreported, self._lateness, self._undone
        self._unreported, self._lateness, self._undone = Counter(), Histogram(), Counter()
        corrections, self._corrections = self._corrections, []
        ids, weights = IdCounts.of(late, self._mode.late), WeightCorrection.of(corrections)
        return ApplyResult(counts["refused"], counts["weightless"], ids, undone, weights)
