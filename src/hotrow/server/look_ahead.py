"""Exact look-ahead on a shard: the look-ups of steps that are not applied, their early rows and the rest.

Every look-up of a mode with look-ahead says its step. Rows that the open step does not change are read at once. The
rest is read as soon as all gradients of the open step are here: the driver has said which they are (`Prepare`), so the
rows that the look-up needs are updated then, and the others when the step is ordered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotrow.client import LocalTables
from hotrow.errors import InputError
from hotrow.server.partial_step import PartialStep
from hotrow.server.step_window import Reading, StepWindow
from hotrow.store import Applied, LookupPlan, RamTier
from hotrow.store.arrays import Flags, Floats, Keys
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import ApplyOrder, PullRows, PushRows
from hotrow.types import Values

Begin = Callable[[ApplyOrder], PartialStep]


@dataclass(frozen=True, slots=True, eq=False)
class _TableLookup:
    """The keys of a look-up in one table."""

    plan: LookupPlan
    without_row: Keys | None  # turned away, or evicted for others of the same look-up; None: every key has a row


Lookups = Mapping[str, _TableLookup]  # by table


@dataclass(frozen=True, slots=True, eq=False)
class _TableRead:
    """The rows of one table for a look-up; those in `late` are read when the step before was applied to them."""

    tier: RamTier
    plan: LookupPlan
    values: Floats
    late: Flags  # of unique keys
    late_rows: Flags  # the same in the order of the look-up's keys

    def early(self, versions: bool) -> RowBlock:
        return self._block(~self.late_rows, versions, mask=~self.late_rows)

    def rest(self, versions: bool) -> RowBlock:
        self.tier.read_rows(self.plan, self.values, only=self.late, as_found=True)
        return self._block(self.late_rows, versions)

    def _block(self, rows: Flags, versions: bool, mask: Flags | None = None) -> RowBlock:
        numbers = self.tier.versions(self.plan)[rows] if versions else None
        return RowBlock(self.tier.table.name, values=self.values[rows], versions=numbers, mask=mask)


@dataclass(frozen=True, slots=True, eq=False)
class _EarlyRead:
    """A look-up of which some rows were read early; without tables all were read at once."""

    step: int
    pull: PullRows
    tables: Sequence[_TableRead] = ()

    @property
    def plans(self) -> dict[str, list[LookupPlan]]:
        return {each.tier.table.name: [each.plan] for each in self.tables}


class LookAheadReads:
    """The look-ups of one mode on a shard."""

    def __init__(self, tables: LocalTables, begin: Begin) -> None:
        """`begin` makes the update of a step whose gradients are all here."""
        self._tables, self._begin = tables, begin
        self.start(0)

    def start(self, step: int) -> None:
        """A mode starts; nothing is open."""
        self._window: StepWindow[Lookups] = StepWindow(step)
        self._orders: dict[int, ApplyOrder] = {}  # prepared steps
        self._partial: PartialStep | None = None  # the open step, once some of its rows are updated
        self._reads: dict[int, _EarlyRead] = {}  # by grant, until the rest is read or its step applied

    def reading(self, step: int) -> Reading:
        """What a look-up of a step may read now."""
        return self._window.reading(step)

    def prepare(self, order: ApplyOrder) -> None:
        """All batches of a step are granted. Its order may have come before."""
        if order.step < self._window.step:
            return
        if order.step > self._window.step + 1:
            raise InputError(f"step={order.step}: is prepared, and step {self._window.step} is open: one ahead at most")
        self._orders[order.step] = order
        self._window.expect(order.step, [part.grant for part in order.parts])

    def read(self, pull: PullRows, step: int, wanted: Sequence[tuple[RamTier, Keys]]) -> list[RowBlock]:
        """The rows of a look-up that may be read now; the others come with `rest`."""
        early = self._window.reading(step) == "early"
        in_hand = self._window.in_hand(step - 1) if early else []
        pinned = self._window.pinned(step)
        tables = [
            self._read_table(tier, keys, _plans_of(in_hand, tier), _plans_of(pinned, tier)) for tier, keys in wanted
        ]
        keys = {each.tier.table.name: _TableLookup(each.plan, _without_row(each.tier, each.plan)) for each in tables}
        self._window.look_up(step, pull.grant, keys)
        if not early:
            self._reads[pull.grant] = _EarlyRead(step, pull)
            return [_whole_block(each, pull.versions) for each in tables]
        self._reads[pull.grant] = _EarlyRead(step, pull, tables)
        return [each.early(pull.versions) for each in tables]

    def _read_table(
        self, tier: RamTier, keys: Keys, in_hand: Sequence[LookupPlan], pinned: Sequence[LookupPlan]
    ) -> _TableRead:
        values = np.empty((len(keys), tier.dim), np.float32)
        plan = tier.find_or_init(keys, values, samples=self._tables.samples, pinned=pinned)
        late = plan.overlap(in_hand, threads=self._tables.threads)
        return _TableRead(tier, plan, values, late, late[plan.inverse] if late.any() else np.zeros(len(keys), np.bool_))

    def rest_is_here(self, grant: int, parked: Callable[[int], bool]) -> bool:
        """Whether the rest of a look-up can be read: the step before is applied, or all its gradients are parked."""
        if grant not in self._reads:
            return False  # its first part has not been read
        read = self._reads[grant]
        if not read.tables or self._window.reading(read.step) == "whole":
            return True
        order = self._orders.get(read.step - 1)
        return order is not None and all(parked(part.grant) for part in order.parts)

    def rest(self, grant: int) -> tuple[list[RowBlock], dict[str, Applied], Values]:
        """The rest of a look-up, what was updated for it, and the format of values that it accepts.

        The look-up stays until its step is applied: a reply may be lost, and the request come again.
        """
        read = self._reads[grant]
        applied: dict[str, Applied] = {}
        if read.tables and self._window.reading(read.step) != "whole":
            if self._partial is None:
                self._partial = self._begin(self._orders[read.step - 1])
            applied = self._partial.apply_to(read.plans)
        return [each.rest(read.pull.versions) for each in read.tables], applied, read.pull.values

    def with_rows(self, push: PushRows, blocks: Sequence[RowBlock]) -> tuple[Sequence[RowBlock], int]:
        """The blocks of a push without the keys that had no row after their look-up, and the number of those keys.

        The next look-up may have made a row for such a key since.
        """
        keys = self._window.keys_of(push.token, push.grant)
        if keys is None:
            return blocks, 0
        kept, missing = [], 0
        for block in blocks:
            gone = keys[block.table].without_row if block.table in keys else None
            if gone is not None and block.keys is not None and block.values is not None:
                there = ~np.isin(np.asarray(block.keys).view(np.uint64), gone)
                missing += int((~there).sum())
                block = _some_rows(block, there)
            kept.append(block)
        return kept, missing

    def order(self, order: ApplyOrder) -> dict[str, Applied] | None:
        """Update what is left of a step that was ordered; None: nothing of it was updated before."""
        partial, self._partial = self._partial, None
        applied = None
        if partial is not None:
            if partial.order.step != order.step:
                raise InputError(f"step {order.step}: is ordered, and step {partial.order.step} is updated in part")
            applied = partial.apply_rest(order)
        return applied

    @property
    def begun_step(self) -> int | None:
        """The open step, where some of its rows are updated."""
        return None if self._partial is None else self._partial.order.step

    def applied(self, step: int) -> None:
        """A step was applied to all its rows."""
        self._window.applied(step)
        self._orders = {number: order for number, order in self._orders.items() if number > step}
        self._reads = {grant: read for grant, read in self._reads.items() if read.step > step}


def _plans_of(lookups: Sequence[Lookups], tier: RamTier) -> list[LookupPlan]:
    return [each[tier.table.name].plan for each in lookups if tier.table.name in each]


def _without_row(tier: RamTier, plan: LookupPlan) -> Keys | None:
    if not plan.turned_away and tier.table.policy not in ("lru", "lfu"):
        return None
    unique = np.zeros(plan.unique, np.bool_)
    unique[plan.inverse] = tier.versions(plan) == 0  # those of rows that exist begin with 1
    keys: Keys = plan.keys[unique]
    return keys if len(keys) else None


def _some_rows(block: RowBlock, which: Flags) -> RowBlock:
    columns = (block.keys, block.values, block.versions)
    keys, values, versions = (None if each is None else np.asarray(each)[which] for each in columns)
    return replace(block, keys=keys, values=values, versions=versions)


def _whole_block(read: _TableRead, versions: bool) -> RowBlock:
    numbers = read.tier.versions(read.plan) if versions else None
    return RowBlock(read.tier.table.name, values=read.values, versions=numbers)
