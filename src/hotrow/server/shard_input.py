"""The checks of a shard's input before anything changes, with a sentence for the peer."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hotrow.client import LocalTables
from hotrow.client.aggregate import RowGradients
from hotrow.errors import InputError
from hotrow.spec import whole_number
from hotrow.store import RamTier
from hotrow.store.arrays import Keys, as_integers, as_keys, as_matrix
from hotrow.store.shards import shard_of
from hotrow.store.tiers import listed
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import ApplyOrder, PushRows

SAMPLES_MOST = 2**31


class ShardInput:
    """Checks for shard `number` of `shards`."""

    def __init__(self, tables: LocalTables, number: int, shards: int) -> None:
        self._tables, self._number, self._shards = tables, number, shards
        self._lr_scale: float | None = None  # the last one that all tables accepted

    def tier(self, table: str) -> RamTier:
        """The tier of a table."""
        if table not in self._tables.tiers:
            raise InputError(f"table {table!r} is missing: there are {listed(self._tables.tiers)}")
        return self._tables.tiers[table]

    def keys(self, who: str, block: RowBlock) -> Keys:
        """The ids of a block, all of which belong to this shard."""
        if block.keys is None:
            raise InputError(f"{who}: ids of table {block.table!r} are missing: send them")
        keys = as_keys(f"{who}: ids of table {block.table!r}", block.keys)
        self.check_mine(who, block.table, keys)
        return keys

    def check_mine(self, who: str, table: str, keys: Keys) -> None:
        """InputError for ids of other shards: they would get a second row here."""
        if strangers := int((shard_of(keys, self._shards, self._tables.threads) != self._number).sum()):
            message = f"{strangers} ids of table {table!r} do not belong to shard {self._number} of {self._shards}"
            raise InputError(f"{who}: {message}: send them to the shards that shard_of names")

    def push(self, push: PushRows) -> None:
        """Check the numbers of a push."""
        whole_number("push.grant", push.grant, 1, 2**62 - 1, InputError)
        whole_number("push.samples", push.samples, 1, SAMPLES_MOST, InputError)
        if push.arrival is not None:
            _check_finite("arrival.factor", push.arrival.factor)
            self._check_scale(push.arrival.lr_scale)

    def gradients(self, blocks: Sequence[RowBlock], *, versions: bool) -> dict[str, RowGradients]:
        """The gradients of a push, by table; with `versions` they must have them."""
        found: dict[str, RowGradients] = {}
        for block in blocks:
            table = block.table
            tier, keys = self.tier(table), self.keys("push", block)
            if block.values is None:
                raise InputError(f"push: gradients of table {table!r} are missing: send one for each id")
            gradients = as_matrix(f"push: gradient of table {table!r}", block.values, len(keys), tier.dim)
            changes = None
            if block.versions is not None:
                changes = as_integers(f"push: versions of table {table!r}", block.versions, len(keys))
            elif versions:
                raise InputError(f"push: versions of table {table!r} are missing: staleness needs them, send them")
            plan = tier.batch(keys)
            if plan.unique != len(plan) or table in found:
                raise InputError(f"push: ids of table {table!r} occur twice: add their gradients up first")
            if len(keys):
                found[table] = RowGradients(keys.view(np.int64), plan, gradients, versions=changes)
        return found

    def pull(self, blocks: Sequence[RowBlock], bytes_most: int) -> list[tuple[RamTier, Keys]]:
        """The tiers and keys of a pull; InputError where they are more than one reply holds."""
        wanted = [(self.tier(block.table), self.keys("pull", block)) for block in blocks]
        if len({block.table for block in blocks}) != len(blocks):
            raise InputError("pull: a table occurs twice: send all its ids in one block")
        size = sum(4 * (tier.dim + 1) * len(keys) for tier, keys in wanted)
        if size > bytes_most:
            raise InputError(f"pull: {size:,} bytes of rows, at most {bytes_most:,}: pull fewer at a time")
        return wanted

    def apply(self, apply: ApplyOrder, rows: Sequence[Mapping[str, RowGradients]], *, versions: bool) -> None:
        """Check a step whose parts have these rows; with `versions` they must have them."""
        self._check_scale(apply.lr_scale)
        for part, given in zip(apply.parts, rows, strict=True):
            _check_finite("part.weight", part.weight)
            whole_number("part.samples", part.samples, 1, SAMPLES_MOST, InputError)
            if versions and any(each.versions is None for each in given.values()):
                raise InputError(f"grant={part.grant}: has no versions, and staleness needs them: discard it")

    def _check_scale(self, lr_scale: float) -> None:
        """All tables must accept it before one applies anything, so each is tried with no rows."""
        if lr_scale == self._lr_scale:
            return
        _check_finite("lr_scale", lr_scale)
        for tier in self._tables.tiers.values():
            tier.apply(np.empty(0, np.uint64), np.empty((0, tier.dim), np.float32), lr_scale=lr_scale)
        self._lr_scale = lr_scale


def _check_finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise InputError(f"{name}={value!r}: must be a finite number")
