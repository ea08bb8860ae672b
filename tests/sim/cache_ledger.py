"""Workers with caches in virtual time, and a ledger in float64 of every update, outside the code under test.

The ledger sees what a worker reads before and after each update, what its messages hold, and what the servers take.
It knows the rules of clocks and SWAP from the design, and none of the caches' own structures.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.cache import CachedBatch, RowCache
from hotrow.config import Table
from hotrow.modes.base import Grant
from hotrow.sim.caches import CacheSend, SimCaches
from hotrow.sim.keyed import CachedKeyedWork
from hotrow.sim.leases import SimLease
from hotrow.store import RamTier
from hotrow.store.arrays import Floats, Keys

F64 = NDArray[np.float64]
KEYS = np.arange(16, dtype=np.uint64)  # that batches are made of
CLOSE = 2e-4  # relative and absolute


def hot_keys(lease: SimLease) -> Keys:
    """A few, skewed, so that batches of a worker and of others share most: the same for a lease that comes again."""
    return np.unique(np.random.default_rng(lease.number).zipf(1.4, 6) % len(KEYS)).astype(np.uint64)


@dataclass
class Sum:
    """Updates of one row: how many, their sum, and the squares that they add to its state, with their periods."""

    value: F64 | float = 0.0
    updates: int = 0
    squares: list[tuple[int, int, F64]] = field(default_factory=list)  # with the earliest and the latest period

    def add(self, other: "Sum") -> None:
        self.value = self.value + other.value
        self.updates += other.updates
        self.squares += other.squares


@dataclass
class View:
    """A row as one worker has to see it: the row that it fetched, and all of its own updates that were not in it."""

    own: F64 | float = 0.0  # sum of all of its updates
    taken: F64 | float = 0.0  # those that the servers have
    base: F64 | float = 0.0  # the fetched row without own updates


@dataclass
class Ledger:
    """Where every update is: in a cache, in a message, on the servers, or lost."""

    in_cache: dict[int, dict[int, Sum]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Sum)))
    in_message: dict[CacheSend, tuple[tuple[int, int], dict[int, Sum]]] = field(default_factory=dict)
    on_servers: dict[int, Sum] = field(default_factory=lambda: defaultdict(Sum))
    lost: list[tuple[tuple[int, int], dict[int, Sum]]] = field(default_factory=list)  # by life of a worker
    views: dict[tuple[tuple[int, int], int], View] = field(default_factory=lambda: defaultdict(View))  # by life, key
    periods: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))  # by life
    lives: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    checks: list[tuple[int, int, bool]] = field(default_factory=list)  # clock of the server, of the worker, passed
    clocks: dict[int, int] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)

    def life(self, worker: int) -> tuple[int, int]:
        return worker, self.lives[worker]

    def saw(self, life: tuple[int, int], period: int) -> int:
        """The latest SWAP period that a worker has seen: a late update of a table counts in it."""
        self.periods[life] = max(self.periods[life], period)
        return self.periods[life]


class LedgeredCaches(SimCaches):
    """The caches of a cluster, with the ledger beside them."""

    def __init__(self, table: Table, tier: RamTier) -> None:
        super().__init__({table.name: table}, {table.name: tier})
        self.ledger = Ledger()
        self._bases: dict[int, dict[int, F64]] = {}  # by grant, then key
        self.bound, self.rule = self.settings[table.name].staleness, self.settings[table.name].clock
        self.swap = getattr(table.optimizer, "swap", None)
        self.rowwise = table.optimizer.name == "rowwise_adagrad"
        self.name = table.name

    def request(self, grant: int, worker: int, keys: Mapping[str, Keys], samples: int) -> CacheSend:
        mine = self.ledger.in_cache[worker]
        ahead = {key for key in keys[self.name].tolist() if key in mine and mine[key].updates > self.bound}
        send = super().request(grant, worker, keys, samples)
        ((_, request),) = send.requests
        written = set(request.changes.keys.tolist())
        assert ahead <= written, f"rows {ahead - written} are more than {self.bound} updates ahead and not written back"
        for key in request.checked.tolist():
            assert key not in mine or mine[key].updates <= self.bound, f"row {key} is checked, and too far ahead"
        self._sent(worker, send)
        return send

    def flush(self, worker: int, samples: int) -> CacheSend | None:
        send = super().flush(worker, samples)
        if send is not None:
            self._sent(worker, send)
        left = {key for key, each in self.ledger.in_cache[worker].items() if each.updates}
        assert not left, f"after a flush worker {worker} has changes of rows {left}"
        return send

    def _sent(self, worker: int, send: CacheSend) -> None:
        """What a message writes back is all that the worker changed since it wrote these rows back before."""
        mine, moved = self.ledger.in_cache[worker], {}
        sums: dict[int, Sum] = defaultdict(Sum)
        for _, request in send.requests:
            changes = request.changes
            for place, key in enumerate(changes.keys.tolist()):
                sums[key].add(Sum(changes.values[place].astype(np.float64), int(changes.updates[place])))
        for key, found in sums.items():
            moved[key] = mine.pop(key, Sum())
            assert found.updates == moved[key].updates, f"row {key}: {found.updates} updates are written back"
            np.testing.assert_allclose(
                found.value, moved[key].value, rtol=CLOSE, atol=CLOSE, err_msg=f"row {key} is written back"
            )
        self.ledger.in_message[send] = self.ledger.life(worker), moved

    def take(self, send: CacheSend) -> None:
        first = send in self.ledger.in_message
        super().take(send)
        if first:
            life, moved = self.ledger.in_message.pop(send)
            for key, each in moved.items():
                self.ledger.on_servers[key].add(each)
                view = self.ledger.views[life, key]
                view.taken = view.taken + each.value
        self._look_at_servers()

    def answer(self, grant: int, samples: int) -> int:
        size = super().answer(grant, samples)
        exchange = self._exchanges[grant]
        request, reply = exchange.batches[self.name].request, exchange.replies[self.name]
        server = self.tiers[self.name].clocks(request.checked).astype(np.int64)
        worker = request.clocks.astype(np.int64)
        for there, here, failed in zip(server.tolist(), worker.tolist(), reply.invalid.tolist(), strict=True):
            within = there - self.bound <= here <= there + self.bound
            assert within is not failed, f"clocks {there} on the servers, {here} on the worker: passed={not failed}"
            self.ledger.checks.append((there, here, within))
        assert (reply.rows.state >= 0).all(), "a state is negative"
        life, keys = self.ledger.life(exchange.worker), [*request.checked[reply.invalid], *request.fetched]
        periods = reply.rows.fields.get("period", np.zeros(len(keys), np.uint32))
        self._bases[grant] = {}
        self.ledger.saw(life, int(periods.max(initial=0)))
        for key, value in zip(map(int, keys), reply.rows.values, strict=True):
            view = self.ledger.views[life, key]
            self._bases[grant][key] = value - view.taken  # of this moment
        self._look_at_servers()
        return size

    def receive(self, grant: int) -> None:
        super().receive(grant)
        life = self.ledger.life(self._exchanges[grant].worker)
        for key, base in self._bases.pop(grant).items():
            self.ledger.views[life, key].base = base

    def values(self, grant: int, table: str) -> Floats:
        """A worker sees all of its own updates."""
        found = super().values(grant, table)
        exchange = self._exchanges[grant]
        for key, value in zip(exchange.batches[table].keys.tolist(), found, strict=True):
            view = self.ledger.views[self.ledger.life(exchange.worker), key]
            message = f"row {key} without own updates of worker {exchange.worker}"
            np.testing.assert_allclose(value, view.base + view.own, rtol=CLOSE, atol=CLOSE, err_msg=message)
        return found

    def _update(
        self, worker: int, cache: RowCache, batch: CachedBatch, gradients: Floats, weights: Floats, samples: int
    ) -> None:
        before, after = np.empty_like(gradients), np.empty_like(gradients)
        cache.read(batch, before)
        super()._update(worker, cache, batch, gradients, weights, samples)
        cache.read(batch, after)
        squares = gradients.astype(np.float64) ** 2
        if self.rowwise:
            squares = squares.mean(1, keepdims=True)
        period = 0 if self.swap is None else samples // self.swap.period
        latest = self.ledger.saw(self.ledger.life(worker), period)
        changes = after.astype(np.float64) - before
        assert (changes != 0).any(axis=1).all(), "a row was not updated"
        for place, key in enumerate(batch.keys.tolist()):
            view = self.ledger.views[self.ledger.life(worker), key]
            view.own = view.own + changes[place]
            self.ledger.in_cache[worker][key].add(Sum(changes[place], 1, [(period, latest, squares[place])]))

    def lose(self, worker: int) -> int:
        here = worker in self.caches
        lost = super().lose(worker)
        mine = {key: each for key, each in self.ledger.in_cache.pop(worker, {}).items() if each.updates}
        assert lost == len(mine), f"{len(mine)} rows are lost with worker {worker}, {lost} are counted"
        if here:
            self.ledger.lost.append((self.ledger.life(worker), mine))
            self.ledger.lives[worker] += 1
        return lost

    def _look_at_servers(self) -> None:
        tier = self.tiers[self.name]
        clocks, versions = tier.clocks(KEYS).tolist(), tier.versions(KEYS).tolist()
        for key, (clock, version) in enumerate(zip(clocks, versions, strict=True)):
            assert clock >= self.ledger.clocks.get(key, 0), f"the clock of row {key} goes back to {clock}"
            assert version >= self.ledger.versions.get(key, 0), f"the version of row {key} goes back to {version}"
            self.ledger.clocks[key], self.ledger.versions[key] = clock, version


class LedgeredWork(CachedKeyedWork):
    """Gradients depend on what a worker read, so that a wrong row shows in every later one."""

    def __init__(self, table: Table) -> None:
        super().__init__(hot_keys, table, dense_bytes=40)
        self._table = table
        self.first = np.empty((len(KEYS), table.dim), np.float32)
        self.tier.first_values(KEYS, self.first)
        self.caches: LedgeredCaches = LedgeredCaches(table, self.tier)
        self._gradients: dict[int, Floats] = {}

    def compute(self, grant: Grant) -> None:
        values = self.caches.values(grant.grant, self._name)
        noise = np.random.default_rng(grant.grant).standard_normal(values.shape).astype(np.float32)
        self._gradients[grant.grant] = 0.3 * values + noise

    def push(self, grant: int) -> None:
        _, samples = self._requests.pop(grant)
        gradients = self._gradients.pop(grant)
        self.caches.push(grant, {self._name: (gradients, np.ones(len(gradients), np.float32))}, samples)
        self._samples += samples

    def end(self, counted_lost: int, most_in_flight: int) -> None:
        """Rows are their first values and every update that is not lost; what is lost is counted, and bounded."""
        caches, ledger = self.caches, self.caches.ledger
        lost = list(ledger.lost) + list(ledger.in_message.values())
        assert counted_lost == sum(len(rows) for _, rows in lost), "rows that are lost are not those that are counted"
        by_life: dict[tuple[tuple[int, int], int], int] = defaultdict(int)
        for life, rows in lost:
            for key, each in rows.items():
                by_life[life, key] += each.updates
        most = caches.bound + most_in_flight
        assert max(by_life.values(), default=0) <= most, f"more than {most} updates of a row are lost with a worker"
        left = [key for rows in ledger.in_cache.values() for key, each in rows.items() if each.updates]
        assert not left, f"changes of rows {left} are in a cache after the end"
        self._compare_rows()

    def _compare_rows(self) -> None:
        caches, ledger = self.caches, self.caches.ledger
        found = self.tier.whole_rows(KEYS)
        self.last_periods = found.fields.get("period", np.zeros(len(KEYS), np.uint32))
        for key, each in ledger.on_servers.items():
            expected = self.first[key] + each.value
            np.testing.assert_allclose(
                found.values[key], expected, rtol=CLOSE, atol=CLOSE, err_msg=f"row {key} on the servers"
            )
            clock = int(found.fields["clock"][key])
            right = clock == each.updates if caches.rule == "additive" else clock <= each.updates
            assert right, f"the clock of row {key} is {clock} after {each.updates} updates"
            if found.state.size:
                initial = getattr(self._table.optimizer, "initial", 0.0)
                period = int(found.fields["period"][key]) if caches.swap is not None else 0
                self._compare_state(key, found.state[key], period, initial, each)

    def _compare_state(self, key: int, state: Floats, period: int, initial: float, each: Sum) -> None:
        assert (state >= 0).all(), f"the state of row {key} is negative"
        whole = initial + sum(squares for _, _, squares in each.squares)
        if self.caches.swap is None:
            np.testing.assert_allclose(state, whole, rtol=CLOSE, atol=CLOSE, err_msg=f"the state of row {key}")
        else:  # an update is of the period that its worker knew, or of a later one that it saw
            decay = self.caches.swap.decay
            least = sum(squares * decay ** max(0, period - first) for first, _, squares in each.squares)
            most = sum(squares * decay ** max(0, period - last) for _, last, squares in each.squares)
            assert (state >= least * (1 - 1e-3)).all(), f"the state of row {key} is below its updates"
            assert (state <= most * (1 + 1e-3) + 1e-4).all(), f"the state of row {key} is above its updates"
