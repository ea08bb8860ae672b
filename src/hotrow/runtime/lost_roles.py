"""Losses of roles during a run: each is counted, told in a sentence, and another role is started in its place."""

from typing import Protocol

from hotrow.modes.base import RunFacts
from hotrow.runtime.losses import SavedRows
from hotrow.runtime.membership import Membership
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision
from hotrow.staleness import Statistics
from hotrow.types import RoleId, RoleKind


class WorkerReplacement(Protocol):
    """Starts roles of one kind in place of lost ones."""

    @property
    def pending(self) -> bool:
        """Whether a role is being started."""

    def replace(self, name: RoleId) -> None:
        """Start a role, which joins later."""


class LostRoles:
    """The losses of one run."""

    def __init__(self, members: Membership | None, state: RunState, statistics: Statistics) -> None:
        """`members`: None where workers neither join nor leave, so that none is lost."""
        self._members, self._state, self._statistics = members, state, statistics
        self._remarks: list[str] = []  # not yet taken
        self.replacements: dict[RoleKind, WorkerReplacement] = {}  # of lost roles, by kind

    @property
    def starts_trainer(self) -> bool:
        """Whether a trainer is being started in place of a lost one."""
        replacement = self.replacements.get("trainer")
        return replacement is not None and replacement.pending

    @property
    def is_waiting(self) -> bool:
        """Whether no worker is left, and one is being started."""
        return self._members is not None and not self._members.size and self.starts_trainer

    def take_remarks(self) -> list[str]:
        """Sentences since the last call."""
        remarks, self._remarks = self._remarks, []
        return remarks

    def note(self, facts: RunFacts) -> RunFacts:
        """Count the roles that were lost since the last call, and report them; returns the facts of a run without."""
        members = self._members
        if members is None or not (losses := members.take_losses()):
            return facts
        facts = members.lose({loss.name for loss in losses}, facts)
        for loss in losses:
            self._statistics.add_counts(loss.counts)
            others = "" if loss.name.kind == "shard" else f"; trainers that go on: {members.size}"
            self._remarks.append(f"{loss.sentence}{others}")
            if (replacement := self.replacements.get(loss.name.kind)) is not None:
                replacement.replace(loss.name)
        return facts

    def note_dealt_again(self, batches: int) -> None:
        """Batches of lost workers are dealt again."""
        if batches:
            self._remarks.append(f"batches that were lost and are dealt again: {batches:,}")

    def note_cut(self, decision: CutDecision, step: int, dealt_again: int) -> None:
        """A step was cut; `step`: the next one after it."""
        self._statistics.add_counts({"steps_cut": 1, "dense_steps_lost": decision.dense_steps_lost})
        self._statistics.add_counts({"replica_steps_lost": decision.replica_steps_lost})
        more = f" with {decision.closes - 1} after it" if decision.closes > 1 else ""
        fate = f"it counts{more}" if decision.closes else "it is dealt again"
        lost = decision.dense_steps_lost and decision.restored is None
        dense = ", and the rows of a step are updated without its dense update" if lost else ""
        cut = step - decision.closes
        self._remarks.append(f"step {cut} was cut: {fate}{dense}; batches dealt again: {dealt_again:,}")
        if decision.restored is not None:
            self._note_restored(decision.restored, decision.dense_steps_lost)

    def _note_restored(self, saved: SavedRows, steps: int) -> None:
        samples = max(0, self._state.samples - saved.samples)
        self._statistics.add_counts({"dense_samples_lost": samples})
        dense = f"dense parameters are those of the checkpoint of step {saved.step}, rows stay as they are"
        self._remarks.append(f"no trainer was left: {dense}; dense updates lost: {steps:,} steps, {samples:,} samples")
