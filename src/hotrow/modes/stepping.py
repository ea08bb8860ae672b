"""The common part of disciplines: steps of a promised size that close one after the other, and grants."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hotrow.modes.base import Apply, Effect, Grants, Group, Pushed, part
from hotrow.staleness.decay import Staleness


@dataclass(slots=True, kw_only=True)
class Stepping:
    """The state of every discipline."""

    step: int = 0
    grants: Grants = field(default_factory=Grants)
    samples_per_step: int = 0  # that were promised; a step with fewer is short, as one with fewer parts is
    draining: bool = False
    short_steps: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Counts of irregularities."""
        return {**self.grants.counts, "short_steps": self.short_steps}

    def _close_step(self, group: Group, pushes: Sequence[Pushed], *, full: bool) -> Apply:
        """The next step is closed; a short one is counted."""
        closed = Apply(group, self.step, tuple([part(push, self._weight(push)) for push in pushes]))
        self.short_steps += not full or closed.samples < self.samples_per_step
        self.step += 1
        return closed

    def _weight(self, push: Pushed) -> float:
        return 1.0


@dataclass(slots=True, kw_only=True)
class Buffering(Stepping):
    """A discipline that gathers the pushes of one step, and of no other, until there are enough."""

    late: Staleness | None = None  # what late pushes weigh; None: as much as the others
    buffer: list[Pushed] = field(default_factory=list)

    def _close_full_or_drained(self, parts: int) -> list[Effect]:
        """The step, if so many parts are in; in a drain, as soon as no more can come."""
        full = len(self.buffer) == parts
        if not full and not (self.draining and self.buffer and not self.grants.out):
            return []
        pushes, self.buffer = self.buffer, []
        return self._closed(self._close_step("both", pushes, full=full))

    def _closed(self, step: Apply) -> list[Effect]:
        """What follows from a step; `self.step` is the next one already."""
        return [step]

    def _weight(self, push: Pushed) -> float:
        return 1.0 if self.late is None else self.late.dense_weight(max(0, self.step - push.token))
