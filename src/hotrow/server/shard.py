"""One shard of all tables: rows for pulls, and pushes parked under their grant until an order applies them.

Values in, values out. A push counts once: a grant that was parked, applied or discarded before is not taken again.
Orders are numbered and performed in sequence; one that arrives twice gets its first reply again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hotrow.client import LocalTables
from hotrow.client.aggregate import Average, RowGradients, RowPart
from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.server.look_ahead import LookAheadReads
from hotrow.server.order_log import OrderLog
from hotrow.server.partial_step import PartialStep
from hotrow.server.push_ledger import PushLedger
from hotrow.server.pushes import PushBuffer
from hotrow.server.row_updates import RowUpdates, row_part
from hotrow.server.rows_ahead import RowsAhead
from hotrow.server.shard_input import ShardInput
from hotrow.spec import whole_number
from hotrow.store import RamTier, Rows, find_or_first
from hotrow.store.arrays import Keys
from hotrow.store.rows import DISK_FIGURES
from hotrow.store.shards import SHARDS_MOST, export_from, share_of
from hotrow.store.tiers import listed, named_tables
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    OrderResult,
    PullRows,
    PushRows,
    ResumeShard,
    Taken,
)
from hotrow.types import Values

EXPORT_ROWS = 65_536  # largest number in one reply


@dataclass(frozen=True, slots=True, eq=False)
class Pulled:
    """Rows for a pull, in the order of its blocks."""

    blocks: list[RowBlock]
    absent: int  # ids without a row, where none is created


class Shard:
    """Shard `number` of `shards`, used by one thread. `incarnation` rises whenever rows may have been lost.

    `parked_bytes` bounds the parked pushes, `pull_bytes` the rows of one reply, which must fit in a frame.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        *,
        number: int,
        shards: int,
        threads: int = 1,
        incarnation: int = 1,
        values: Mapping[str, Values] | None = None,
        parked_bytes: int = 2**30,
        pull_bytes: int = 2**28,
        attach: bool = True,
        restarted: bool = False,
    ) -> None:
        """`restarted`: in place of a process of the same run that ended, whose parked pushes are gone."""
        self.shards = whole_number("shards", shards, 1, SHARDS_MOST)
        self.number = whole_number("number", number, 0, shards - 1)
        self.incarnation = whole_number("incarnation", incarnation, 1, 2**62)
        parked_bytes = whole_number("parked_bytes", parked_bytes, 1, 2**62)
        self.pull_bytes = whole_number("pull_bytes", pull_bytes, 1, 2**62)
        named = self.whole_tables = named_tables(tables)  # of which this shard has a share
        self.values = dict(values or {})  # by table, the wire format of rows; float32 where it is not named
        if strangers := self.values.keys() - named.keys():
            raise ConfigError(f"values: there is no table {listed(strangers)}: there are {listed(named)}")
        parts = {name: share_of(table, self.number, self.shards) for name, table in named.items()}
        self.tables = LocalTables(parts, threads=threads, attach=attach)
        self.dims = {name: table.dim for name, table in parts.items()}
        self.step = 0  # dense steps so far: the stamp of rows that are applied on arrival
        self.input = ShardInput(self.tables, self.number, self.shards)
        self.orders = OrderLog()
        self.pushes = PushLedger(self.tables, self.orders, parked_bytes, restarted=restarted)
        self.updates = RowUpdates(self.tables, self.orders)
        self.look_ahead = LookAheadReads(self.tables, self._begin_step)
        self.rows_ahead = RowsAhead(self.tables.tiers)

    @property
    def performed(self) -> int:
        """Orders performed so far."""
        return self.orders.performed

    @property
    def counts(self) -> Counter[str]:
        """All that was counted, by name."""
        return self.orders.counts

    @property
    def parked(self) -> PushBuffer[Mapping[str, RowGradients]]:
        """Pushes that wait for their order."""
        return self.pushes.parked

    @property
    def shared(self) -> bool:
        """Whether all rows are in segments, which outlive this process."""
        return all(table.segment is not None for table in self.tables.specs.values())

    @property
    def attached(self) -> bool:
        """Whether segments held the rows of an earlier process."""
        return all(tier.attached is not None for tier in self.tables.tiers.values())

    def exchange(
        self,
        push: PushRows | None,
        push_blocks: Sequence[RowBlock],
        pull: PullRows | None,
        pull_blocks: Sequence[RowBlock],
    ) -> tuple[Taken | None, Pulled | None]:
        """Take a push, then return rows. None for a pull whose order is not performed yet: call `pull` when it is.

        Both are checked before anything changes.
        """
        wanted = [] if pull is None else self.input.pull(pull_blocks, self.pull_bytes)
        taken = None if push is None else self._take(push, push_blocks)
        if pull is None or not self.can_read(pull):
            return taken, None
        return taken, self._read(pull, wanted)

    def can_read(self, pull: PullRows) -> bool:
        """Whether the order that a pull names is performed and, in look-ahead, the step before it is known."""
        if pull.after > self.performed:
            return False
        return pull.step is None or not pull.learn or self.look_ahead.reading(pull.step) != "later"

    def prepare(self, order: ApplyOrder) -> None:
        """All batches of a step are granted, with look-ahead: this is how it will be ordered."""
        self.input.apply(order, [{} for _ in order.parts], versions=False)
        self.look_ahead.prepare(order)

    def rest_is_here(self, grant: int) -> bool:
        """Whether the rows of a grant's pull that were not read early can be read."""
        return self.look_ahead.rest_is_here(grant, self.pushes.is_parked)

    def rest(self, grant: int) -> tuple[Pulled, Values]:
        """The rows of a pull that were not read early, and the format of values that it accepts.

        A repeated request gets the same rows: its reply may be too large to be kept.
        """
        blocks, applied, values = self.look_ahead.rest(grant)
        self.updates.count(applied)
        return Pulled(blocks, 0), values

    def pull(self, pull: PullRows, blocks: Sequence[RowBlock]) -> Pulled:
        """The rows of a pull that `can_read` allows; with `learn` absent ones are created."""
        return self._read(pull, self.input.pull(blocks, self.pull_bytes))

    def load_ahead(self, blocks: Sequence[RowBlock]) -> None:
        """Rows of ids that will be looked up soon come into memory, in another thread. Nothing else changes."""
        wanted = [(self.input.tier(block.table), self.input.keys("hint", block)) for block in blocks]
        self.counts["hints"] += 1
        for tier, keys in wanted:
            self.rows_ahead.add(tier.table.name, keys)

    def perform(
        self,
        order: int,
        applies: Sequence[ApplyOrder],
        discards: Sequence[int] = (),
        expected: Sequence[int] = (),
    ) -> OrderResult:
        """Perform an order of the driver."""
        if (answered := self.orders.answered(order)) is not None:
            return answered
        for apply in applies:
            rows = [self.pushes.find(part.grant) for part in apply.parts]
            self.input.apply(apply, rows, versions=self.updates.by_version and apply.group != "dense")
        for apply in applies:
            self._apply(apply)
        for grant in expected:
            self.pushes.expect(grant)
        for grant in discards:
            self.pushes.discard(grant)
        return self.orders.answer()

    def policy(
        self,
        order: int,
        average: Average,
        staleness: str | None,
        *,
        step: int | None = None,
        samples: int | None = None,
        pushes: int = 1,
    ) -> OrderResult:
        """Set the rules for rows from now on; `staleness` is the policy of a mode as JSON, a step has `pushes` pushes.

        Steps and samples continue from those of the run, which after a load may be lower than before.
        """
        if (answered := self.orders.answered(order)) is not None:
            return answered
        self._set_rules(average, staleness, pushes)
        self.pushes.begin_mode()
        self.step = self.step if step is None else step
        self.look_ahead.start(self.step)
        self.tables.samples = self.tables.samples if samples is None else samples
        return self.orders.answer()

    def resume(self, message: ResumeShard) -> None:
        """Go on after an order that the process before has performed."""
        if message.order < self.orders.performed:
            return  # a mode began meanwhile
        self.orders.performed = message.order
        self._set_rules(message.average, message.staleness, message.pushes)
        self.step = message.step
        self.look_ahead.start(self.step)
        self.tables.samples = max(self.tables.samples, message.samples)
        self.pushes.resume(on_arrival=message.arrival, discards=message.discards)

    def _set_rules(self, average: Average, staleness: str | None, pushes: int) -> None:
        self.updates.set_rules(average, staleness)
        self.parked.needed = max(1, pushes)

    def export(self, table: str, cursor: int, most: int) -> tuple[Rows, int]:
        """Whole rows from a cursor on, at most `most`, and the next cursor; 0: there are no more."""
        tier = self.input.tier(table)
        room = max(1, self.pull_bytes // (8 + 4 * (tier.dim + tier.state_dim + len(tier.fields))))
        return export_from(tier, cursor, min(most, EXPORT_ROWS, room))

    def put(self, table: str, rows: Rows) -> None:
        """Store whole rows, over those that exist; without state they start with that of new rows."""
        tier = self.input.tier(table)
        self.input.check_mine("import", table, rows.keys)
        put = tier.put(rows.keys, rows.values, rows.state if rows.state.shape[1] else None, rows.fields)
        self.counts["imported"] += len(rows.keys) - put.turned_away
        self.counts["import_turned_away"] += put.turned_away

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        now = {"incarnation": self.incarnation, "performed": self.performed, "step": self.step}
        now |= {"samples": self.tables.samples, "parked": len(self.parked), "parked_bytes": self.parked.nbytes}
        scanned = [tier.attached.seconds for tier in self.tables.tiers.values() if tier.attached is not None]
        begun = self.look_ahead.begun_step
        now |= {"parked_above": self.parked.above, "begun_step": -1 if begun is None else begun}
        sizes = {
            f"{figure}.{name}": value
            for name, tier in self.tables.tiers.items()
            for figure, value in asdict(tier.stats()).items()
            if tier.table.disk is not None or figure not in DISK_FIGURES
        }
        figures = {"attach_s": sum(scanned), **now, **self.counts, **sizes}
        return {name: float(value) for name, value in figures.items()}

    def close(self, *, leave: bool = False) -> None:
        """Release all rows; segments that are to be kept stay, with `leave` all of them."""
        self.rows_ahead.close()
        self.tables.close(leave=leave)

    def _read(self, pull: PullRows, wanted: Sequence[tuple[RamTier, Keys]]) -> Pulled:
        self.tables.samples = max(self.tables.samples, pull.samples)
        if pull.learn and pull.step is not None:
            self.counts["pulled_rows"] += sum(len(keys) for _, keys in wanted)
            return Pulled(self.look_ahead.read(pull, pull.step, wanted), 0)
        found, absent = [], 0
        for tier, keys in wanted:
            values = np.empty((len(keys), tier.dim), np.float32)
            if pull.learn:
                plan = tier.find_or_init(keys, values, samples=self.tables.samples)
            else:
                plan = find_or_first(tier, keys, values)
                absent += plan.absent
            versions = tier.versions(plan) if pull.versions else None
            found.append(RowBlock(tier.table.name, values=values, versions=versions))
            self.counts["pulled_rows"] += len(keys)
        self.counts["absent"] += absent
        return Pulled(found, absent)

    def _take(self, push: PushRows, blocks: Sequence[RowBlock]) -> Taken:
        self.input.push(push)
        if self.pushes.is_repeated(push.grant):
            return Taken(again=True)
        blocks, missing = self.look_ahead.with_rows(push, blocks)
        self.orders.count({"missing": missing})
        rows = self.input.gradients(blocks, versions=self.updates.by_version)
        if push.arrival is None:
            taken = Taken(again=not self.pushes.park(push.grant, rows))
        else:
            taken = self._arrive(push, push.arrival, rows)
        self.pushes.seen.add(push.grant)
        self.counts["again" if taken.again else "pushes"] += 1
        return taken

    def _arrive(self, push: PushRows, arrival: Arrival, rows: Mapping[str, RowGradients]) -> Taken:
        fresh = {table: given for table, given in rows.items() if self.pushes.begin_push(table, push.grant)}
        samples = max(self.tables.samples, arrival.samples)  # another worker's push may have brought a later count
        part = RowPart(fresh, push.samples, push.pulled_step, arrival.factor)
        outcome = self.updates.apply([part], self.step, samples, arrival.lr_scale)
        for table in fresh:
            self.pushes.finish_push(table, push.grant)
        return Taken(again=bool(rows) and not fresh, **outcome)

    def _apply(self, apply: ApplyOrder) -> None:
        alone = apply.group == "embedding"  # rows that were looked up before the step of their token
        self.step = max(self.step, apply.step if alone else apply.step + 1)
        if apply.group == "dense":
            return
        grants = [part.grant for part in apply.parts if self.pushes.is_parked(part.grant)]
        self.pushes.begin_order(grants)
        updated = self.look_ahead.order(apply)
        parts = [row_part(apply, part, self.pushes.take(part.grant)) for part in apply.parts]
        if updated is None:
            self.updates.apply(parts, apply.step, apply.samples, apply.lr_scale)
        else:
            self.updates.count(updated)
        self.pushes.finish_order(grants)
        self.look_ahead.applied(apply.step)

    def _begin_step(self, order: ApplyOrder) -> PartialStep:
        """The update of a step whose gradients are all parked; they stay until it is ordered."""
        self.tables.samples = max(self.tables.samples, order.samples)
        self.pushes.begin_order(part.grant for part in order.parts)
        parts = [row_part(order, part, self.pushes.find(part.grant)) for part in order.parts]
        return self.updates.begin(order, parts)
