"""The effects of one event on a cluster: one order for the shards, messages for the trainers. Values in, values out."""

from collections.abc import Sequence
from dataclasses import dataclass

from hotrow.modes import Mode
from hotrow.modes.base import Apply, RunFacts
from hotrow.staleness.weights import WeightRange, joined
from hotrow.transport.messages import ApplyOrder, CloseStep, OrderPart, PartWeights, Settle


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """What is sent after an event."""

    applies: tuple[ApplyOrder, ...]
    discards: tuple[int, ...]
    expected: tuple[int, ...]
    to_trainers: tuple[CloseStep | Settle, ...]


class OrderPlan:
    """Collects the effects of an event in a mode."""

    def __init__(self, mode: Mode, facts: RunFacts) -> None:
        self._dense, self._facts = mode.dense, facts
        self.rows_on_arrival = mode.on_arrival(facts, 1) is not None
        self._applies: list[ApplyOrder] = []
        self._discards: list[int] = []
        self._expected: list[int] = []
        self._close: CloseStep | None = None
        self._settle: Settle | None = None  # the update of KStep's trainers, unless a merge replaces it
        self._merged = (facts.step, facts.step)  # in KStep: steps of the last merge, and of the one before

    @property
    def empty(self) -> bool:
        """Whether nothing has to be sent."""
        return not (self._applies or self._discards or self._expected or self._close or self._settle)

    def discard(self, grant: int) -> None:
        """Drop a push that will not be applied."""
        self._discards.append(grant)

    def expect(self, grant: int) -> None:
        """A batch counts whose trainer did not answer; where rows are applied in order, the order of its step tells."""
        if self.rows_on_arrival:
            self._expected.append(grant)

    def apply(self, effect: Apply, samples: int, lr_scale: float) -> None:
        """Add a step."""
        merge_alone = self._dense == "local" and not effect.parts  # it ends no step and changes no row
        if not merge_alone and (effect.group != "embedding" or not self.rows_on_arrival):
            self._applies.append(_apply_order(effect, samples, lr_scale))
        if self._dense == "all-reduce":
            self._close_short_step(effect, lr_scale)
        elif self._dense == "local":
            self._move_copies(effect, samples, lr_scale)

    def take(self) -> PlannedOrder:
        """What has to be sent; the plan is empty afterwards."""
        if self._settle is not None and self._settle.merge:
            self._merged = (self._settle.step + 1, self._merged[0])
        to_trainers = tuple(each for each in (self._close, self._settle) if each is not None)
        planned = PlannedOrder(tuple(self._applies), tuple(self._discards), tuple(self._expected), to_trainers)
        self._applies, self._discards, self._expected, self._close, self._settle = [], [], [], None, None
        return planned

    def apart_at(self, step: int) -> int:
        """In KStep: steps since the last merge that trainers at a step have ended."""
        last, before = self._merged
        return step - last if step >= last else step - before

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


class WeightReplies:
    """The weights of dense gradients on all shards, where a policy follows the movement of parameters."""

    def __init__(self, mode: Mode, shards: int) -> None:
        self._by_movement = mode.late is not None and mode.late.movement is not None
        self._shards = shards
        self._answers = 0  # replies of all shards to orders
        self._given: dict[int, float] = {}  # by grant, its weight in an order without all replies
        self._weighed: dict[int, list[WeightRange]] = {}  # by grant, its weights on the shards that have answered

    def ordered(self, effect: Apply) -> None:
        """A step was ordered."""
        if self._by_movement and effect.group != "embedding":
            self._given.update({part.grant: part.weight for part in effect.parts})

    def answered(self, weights: Sequence[PartWeights]) -> list[tuple[float, WeightRange]]:
        """A shard replied to an order; returns the given weight and the actual ones of each part that is complete.

        Shards answer orders in sequence, so the reply of the last shard completes the weights of an order.
        """
        for each in weights:
            self._weighed.setdefault(each.grant, []).append((each.least, each.greatest))
        self._answers += 1
        if self._answers % self._shards:
            return []
        weighed, self._weighed = self._weighed, {}
        return [(self._given.pop(grant), joined(spans)) for grant, spans in weighed.items()]


def _apply_order(effect: Apply, samples: int, lr_scale: float) -> ApplyOrder:
    parts = [OrderPart(part.grant, part.token, part.pulled_step, part.samples, part.weight) for part in effect.parts]
    return ApplyOrder(effect.group, effect.step, samples, lr_scale, tuple(parts))
