"""The keys of a step whose update is split: rows that the next step needs are updated first, the others later.

K(t) is the union of the keys of all batches of step t. A row of step t+1 outside K(t) is final as soon as it is found
or made: nothing changes it before it is used. The others are updated first and read last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotrow.client.aggregate import Update
from hotrow.client.buffers import BufferPool
from hotrow.client.local_lookup import BatchKeys, BegunLookup
from hotrow.store import LookupPlan as Plan
from hotrow.store import RamTier
from hotrow.store.arrays import Flags


@dataclass(slots=True, eq=False)
class StepKeys:
    """The keys of a step in one table."""

    batches: Sequence[Plan]  # in the order of the grants
    plan: Plan  # of all batches; of a single batch its own
    needed: Flags  # unique keys that batches of the next step have, too

    def need(self, plan: Plan, threads: int) -> Flags:
        """Note a batch of the next step; returns which of its unique keys this step has."""
        mine, theirs = self.plan.shared(plan, threads=threads)
        self.needed |= mine
        return theirs

    def of_all_batches(self, update: Update, given: Sequence[Plan]) -> tuple[Update, Flags | None]:
        """The update of some batches as one of all, and the unique keys that it concerns (None: all).

        The model did not use the table in the others. What has a weight of 0 is not added up.
        """
        if len(given) == len(self.batches):
            return update, None
        rows, weights = np.zeros(len(self.plan), np.uint32), np.zeros(len(self.plan), np.float32)
        used = {id(plan) for plan in given}
        start = taken = 0
        for plan in self.batches:
            if id(plan) in used:
                here, there = slice(start, start + len(plan)), slice(taken, taken + len(plan))
                rows[here] = np.arange(there.start, there.stop) if update.rows is None else update.rows[there]
                weights[here] = 1 if update.weights is None else update.weights[there]
                taken += len(plan)
            start += len(plan)
        return replace(update, keys=self.plan, rows=rows, weights=weights), self.plan.overlap(given)


class SplitStep:
    """A step whose batches are all looked up, and none of whose gradients is applied."""

    def __init__(
        self, tiers: Mapping[str, RamTier], batches: Sequence[BatchKeys], buffers: BufferPool, threads: int
    ) -> None:
        """Called before the first lookup of the next step: rows that it makes are not those of this one."""
        self.samples = sum(batch.samples for batch in batches)
        self._threads = threads
        tables = dict.fromkeys(table for batch in batches for table in batch.plans)
        self._tables = {table: _step_keys(tiers[table], table, batches, buffers) for table in tables}

    def need(self, lookup: BegunLookup) -> None:
        """Note a batch of the next step: its rows that this step has are read again, and updated first."""
        for table, found in lookup.tables.items():
            if table in self._tables:
                found.unread = self._tables[table].need(found.plan, self._threads)

    def keys_of(self, table: str, given: Sequence[Plan]) -> StepKeys | None:
        """The keys of a table, for gradients of these batches; None: they are of another step."""
        step = self._tables.get(table)
        if step is None:
            return None
        numbers = {id(plan): number for number, plan in enumerate(step.batches)}
        found = [numbers.get(id(plan), -1) for plan in given]
        return step if found == sorted(set(found)) and -1 not in found else None


def _step_keys(tier: RamTier, table: str, batches: Sequence[BatchKeys], buffers: BufferPool) -> StepKeys:
    mine = [batch for batch in batches if table in batch.plans]
    plan = mine[0].plans[table]
    if len(mine) > 1:
        plan = tier.find(tier.batch(buffers.join([batch.keys[table] for batch in mine])))
    return StepKeys([batch.plans[table] for batch in mine], plan, np.zeros(plan.unique, np.bool_))
