"""Production shards in virtual time, which crash and restart, and a ledger of what their rows have to be.

Every batch adds to each of its keys: SGD with a rate of 1 and a gradient of -1. The ledger adds up the same numbers
from what the cluster told it, in float64, and never asks a shard.
"""

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hotrow as hr
from hotrow.config import Segment
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Grant, Group, RunFacts
from hotrow.runtime.cluster.order_plan import OrderPlan
from hotrow.server.shard import Shard
from hotrow.sim import BatchBytes, SimLease
from hotrow.store.shards import shard_of
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import Arrival, PullRows, PushRows, ResumeShard
from sim.seeded import StrictWork, keys_of

KeyArray = NDArray[np.int64]
TABLE = "ids"


class Ledger:
    """What was parked where and what every row is, by the rules of the modes."""

    def __init__(self, shards: int, tolerance: int | None) -> None:
        """`tolerance`: of GBA; a gradient of an id that is older does not count."""
        self.rows: dict[int, float] = {}
        self.lost_pushes = 0
        self._tolerance = tolerance
        self.keys: dict[int, KeyArray] = {}  # by grant, looked up
        self._parked: list[set[int]] = [set() for _ in range(shards)]
        self._applied: set[int] = set()  # on arrival
        self._discarded: set[int] = set()
        self._changed: dict[int, int] = {}  # by key, steps up to and including the one that changed it last

    def looks_up(self, grant: int, keys: KeyArray) -> None:
        self.keys[grant] = keys

    def arrives(self, grant: int, factor: float | None) -> None:
        """`factor`: of rows that are applied now."""
        if grant not in self.keys or grant in self._discarded:
            return
        if factor is None:
            for parked in self._parked:
                parked.add(grant)
        elif grant not in self._applied:
            self._applied.add(grant)
            for key in self.keys[grant].tolist():
                self.rows[key] += factor

    def loses(self, shard: int) -> None:
        self._parked[shard].clear()

    def applies(self, effect: Apply) -> None:
        """A step of parked pushes."""
        samples = sum(part.samples for part in effect.parts)
        sums: Counter[int] = Counter()
        for part in effect.parts:
            alone = effect.group == "embedding"
            for shard, parked in enumerate(self._parked):
                if part.grant not in parked:
                    self.lost_pushes += 1
                    continue
                parked.discard(part.grant)
                for key in self._of(part.grant, shard):
                    late = max(0, self._changed.get(key, 0) - (part.pulled_step if alone else part.token))
                    if self._tolerance is None or late <= self._tolerance:
                        sums[key] += part.samples
        for key, count in sums.items():
            self.rows[key] += count / samples
            self._changed[key] = effect.step + 1

    def discards(self, grant: int) -> None:
        self._discarded.add(grant)
        for parked in self._parked:
            parked.discard(grant)

    def _of(self, grant: int, shard: int) -> list[int]:
        keys = self.keys[grant]
        mine: list[int] = keys[shard_of(keys, len(self._parked)) == shard].tolist()
        return mine


class ShardedWork(StrictWork):
    """Rows on production shards. A shard that is lost is replaced by another one with its segment."""

    def __init__(self, directory: Path, mode: Mode, shards: int) -> None:
        super().__init__()
        segment = Segment(run="sim", directory=directory, keep=True)
        self._table = hr.Table(dim=1, init=hr.Constant(value=0.0), optimizer=hr.SGD(lr=1.0), segment=segment)
        self._shards = [self._start(number, shards) for number in range(shards)]
        self.ledger = Ledger(shards, mode.tolerance if isinstance(mode, hr.GBA) else None)
        self.lost_pushes = self.restarts = 0
        self._grants: dict[int, tuple[Grant, int]] = {}  # with its samples
        self._order = 0

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        super().started(time_s, mode, facts)
        self._mode, self._facts, self._plan = mode, facts, OrderPlan(mode, facts)
        self._order += 1
        late = None if mode.late is None else mode.late.model_dump_json()
        for shard in self._shards:
            shard.policy(self._order, "batch", late, step=facts.step)

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        keys = keys_of(lease)
        for shard, mine in zip(self._shards, self._split(keys), strict=True):
            wanted = PullRows(self._order, 0, learn=True, versions=False, values="fp32", blocks=())
            shard.exchange(None, [], wanted, [RowBlock(TABLE, keys=mine.view(np.uint64), dim=1)])
        for key in keys.tolist():
            self.ledger.rows.setdefault(key, 0.0)
        self._grants[grant.grant] = grant, lease.samples
        self.ledger.looks_up(grant.grant, keys)
        return super().pull(grant, lease, rest=rest)

    def arrive(self, grant: int, group: Group) -> None:
        if group == "dense" or grant not in self._grants:
            return
        granted, samples = self._grants[grant]
        factor = self._mode.on_arrival(self._facts, samples)
        self.ledger.arrives(grant, factor)
        arrival = None if factor is None else Arrival(0, 1.0, factor)
        push = PushRows(grant, granted.worker, granted.token, granted.token, samples, (), arrival)
        for shard, mine in zip(self._shards, self._split(self.ledger.keys[grant]), strict=True):
            gradients = np.full((len(mine), 1), -1.0, np.float32)
            shard.exchange(push, [RowBlock(TABLE, keys=mine.view(np.uint64), values=gradients)], None, [])

    def lose_shard(self, shard: int) -> None:
        self.ledger.loses(shard)
        self.restarts += 1
        self._shards[shard].close()  # parked pushes are gone, the segment stays
        again = self._shards[shard] = self._start(shard, len(self._shards), restarted=True)
        late = None if self._mode.late is None else self._mode.late.model_dump_json()
        again.resume(ResumeShard(self._order, "batch", late, arrival=self._plan.rows_on_arrival))

    def apply(self, effect: Apply, samples: int) -> None:
        super().apply(effect, samples)
        if effect.group != "dense" and not self._plan.rows_on_arrival:
            self.ledger.applies(effect)
        self._plan.apply(effect, samples, 1.0)
        self._perform()

    def discard(self, grant: int) -> None:
        super().discard(grant)
        self.ledger.discards(grant)
        self._plan.discard(grant)
        self._perform()

    def end(self) -> None:
        super().end()
        rows: dict[int, float] = {}
        for shard in self._shards:
            exported, _ = shard.export(TABLE, 0, 1000)
            rows |= dict(zip(exported.keys.view(np.int64).tolist(), exported.values[:, 0].tolist(), strict=True))
            assert not shard.parked, "gradients are left on a shard"
        assert rows.keys() == self.ledger.rows.keys()
        for key, value in self.ledger.rows.items():
            assert abs(rows[key] - value) < 1e-3, f"row {key} is {rows[key]}, and {value} in the ledger"
        assert self.lost_pushes == self.ledger.lost_pushes

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def _start(self, number: int, shards: int, *, restarted: bool = False) -> Shard:
        return Shard({TABLE: self._table}, number=number, shards=shards, restarted=restarted)

    def _split(self, keys: KeyArray) -> list[KeyArray]:
        home = shard_of(keys, len(self._shards))
        return [keys[home == number] for number in range(len(self._shards))]

    def _perform(self) -> None:
        if self._plan.empty:
            return
        planned = self._plan.take()
        if planned.applies or planned.discards:
            self._order += 1
            results = [shard.perform(self._order, planned.applies, planned.discards) for shard in self._shards]
            self.lost_pushes += sum(each.lost_pushes + each.parked_lost for each in results)
