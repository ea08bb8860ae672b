"""Exact look-ahead: which look-ups may be answered before the step before theirs is applied, and with which rows.

K(t) are the keys of step t over all its grants. A row of K(t + 1) outside K(t) does not change in step t, so it may be
read as soon as step t - 1 is applied and K(t) is known. Rows in both are read when step t was applied to them.

Pure decisions: a shard asks them about messages that arrive, the simulator about messages in virtual time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

KeysT = TypeVar("KeysT")
Reading = Literal["whole", "early", "later"]  # all rows now, those outside K(t) now, or none yet


def early_rows(keys: NDArray[np.int64], in_hand: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Which rows of a look-up are in no batch of the step before: they may be read before it is applied.

    The simulator uses it; a shard asks `LookupPlan.overlap`, which gives the complement in native code.
    """
    return np.logical_not(np.isin(keys, np.concatenate(in_hand))) if in_hand else np.ones(len(keys), np.bool_)


@dataclass(slots=True)
class _Step(Generic[KeysT]):
    grants: frozenset[int] | None = None  # of the whole step; None: not known yet
    keys: dict[int, KeysT] = field(default_factory=dict)  # by grant, of look-ups that arrived

    @property
    def known(self) -> bool:
        """Whether the keys of all its grants are known."""
        return self.grants is not None and self.grants <= self.keys.keys()


@dataclass(slots=True)
class StepWindow(Generic[KeysT]):
    """The look-ups of steps that are not applied, and of the last one that was. `step` is the first that is not."""

    step: int = 0
    _steps: dict[int, _Step[KeysT]] = field(default_factory=dict)

    def expect(self, step: int, grants: Iterable[int]) -> None:
        """All grants of a step. Their look-ups are its keys."""
        if step >= self.step:
            self._of(step).grants = frozenset(grants)

    def look_up(self, step: int, grant: int, keys: KeysT) -> None:
        """The look-up of a grant arrived."""
        if step >= self.step:
            self._of(step).keys[grant] = keys

    def reading(self, step: int) -> Reading:
        """What a look-up of a step may read now."""
        if step <= self.step:
            return "whole"
        before = self._steps.get(step - 1)
        return "early" if step == self.step + 1 and before is not None and before.known else "later"

    def in_hand(self, step: int) -> list[KeysT]:
        """The keys of a step that is not applied: those of its look-ups that arrived, in the order of the grants."""
        return self._keys(step) if step >= self.step else []

    def pinned(self, step: int) -> list[KeysT]:
        """Keys whose rows a look-up of a step must not evict: those of its own step, and of the one before.

        The step before counts also when it is applied, so that look-ahead does not change which rows are evicted.
        """
        return [*self._keys(step - 1), *self._keys(step)]

    def keys_of(self, step: int, grant: int) -> KeysT | None:
        """The keys of one look-up; None where they are not known here."""
        known = self._steps.get(step)
        return None if known is None else known.keys.get(grant)

    def drop(self, grant: int) -> int | None:
        """A grant is given up; returns its step, whose keys are not known from now on. None: it is not open here.

        Only the simulator loses grants: on a cluster a lost trainer ends the run.
        """
        for number, step in self._steps.items():
            if number >= self.step and (grant in step.keys or grant in (step.grants or ())):
                step.keys.pop(grant, None)
                step.grants = None
                return number
        return None

    def applied(self, step: int) -> None:
        """A step was applied to all rows."""
        self.step = max(self.step, step + 1)
        self._steps = {number: each for number, each in self._steps.items() if number >= self.step - 1}

    def _keys(self, step: int) -> list[KeysT]:
        known = self._steps.get(step)
        return [] if known is None else [known.keys[grant] for grant in sorted(known.keys)]

    def _of(self, step: int) -> _Step[KeysT]:
        return self._steps.setdefault(step, _Step())
