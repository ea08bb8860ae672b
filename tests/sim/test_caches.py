"""Workers with caches while workers and shards crash and messages are lost, late or come twice.

A ledger follows every update from the worker that made it to the servers. A failing seed is replayed by
`pytest tests/sim/test_caches.py --seed=N`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

import hotrow as hr
from hotrow.cache import cache as cache_module
from hotrow.cache import exchange
from hotrow.cache.cache import CachedBatch, RowCache
from hotrow.cache.changes import Changes
from hotrow.cache.clocks import is_valid
from hotrow.cache.rows import CachedRows, Placed
from hotrow.config import Cache, Table
from hotrow.modes import Async, Hybrid, Mode
from hotrow.server.pushes import SeenGrants
from hotrow.sim import Checkers, SimCluster, SimResult, Trace, drawn_faults
from hotrow.sim.cache_traffic import Channel
from hotrow.sim.observer import SimObserver
from hotrow.store import LookupPlan
from sim.cache_ledger import LedgeredWork
from sim.seeded import LOCAL_BATCH, UNTIL_S, Draw, cluster_of_seed

SEEDS, MORE_SEEDS = range(25), range(25, 225)
LEASES = 60
POLICIES = get_args(Cache.model_fields["policy"].annotation)
SWAP = hr.Swap(period=64, decay=0.5)
OPTIMIZERS: dict[str, Callable[[], object]] = {
    "sgd": lambda: hr.SGD(lr=0.1),
    "adagrad": lambda: hr.Adagrad(lr=0.1, initial=0.1),
    "rowwise": lambda: hr.RowwiseAdagrad(lr=0.1, initial=0.1),
    "adagrad with swap": lambda: hr.Adagrad(lr=0.1, swap=SWAP),
    "rowwise with swap": lambda: hr.RowwiseAdagrad(lr=0.1, swap=SWAP),
}


def table_of(draw: Draw, optimizer: str, policy: str) -> Table:
    staleness = (0, 1, 3, 1000)[draw.whole(40, 0, 3)]
    clock = "max" if draw.chance(41) < 0.5 else "additive"
    cache = Cache(capacity=draw.whole(42, 2, 18), staleness=staleness, policy=policy, clock=clock)
    return hr.Table(dim=2, optimizer=OPTIMIZERS[optimizer](), cache=cache)


def mode_of(draw: Draw, name: str) -> Mode:
    in_flight = draw.whole(43, 1, 6)
    return Async() if name == "async" else Hybrid(max_in_flight=in_flight, scale="local")


def run_seed(
    seed: int, optimizer: str, policy: str, trace: Trace | None = None, workers: int | None = None
) -> tuple[SimResult, LedgeredWork]:
    """One cluster: Hybrid or Async, in some seeds one after the other, with a rest in others."""
    draw, shards = Draw(seed), 1 + seed % 3
    config = cluster_of_seed(draw)
    workers = workers or config.workers
    faults = drawn_faults(seed, workers, UNTIL_S, shards)
    if seed % 3 == 1:  # many messages are lost, so that workers crash before they send them again
        messages = faults.messages.model_copy(update={"loss": 0.7, "timeout_s": 6.0})
        faults = faults.model_copy(update={"messages": messages})
    network = config.network.model_copy(update={"bandwidth": 20_000, "worker_bandwidth": 4_000, "latency_s": 0.3})
    config = config.model_copy(update={"faults": faults, "shards": shards, "workers": workers, "network": network})
    names = ("hybrid", "async") if draw.chance(44) < 0.7 else ("async", "hybrid")
    first, second = (mode_of(draw, name) for name in names)
    samples, checkers = LEASES * LOCAL_BATCH - seed % LOCAL_BATCH, Checkers()
    work = LedgeredWork(table_of(draw, optimizer, policy))
    watchers: list[SimObserver] = [work, checkers] if trace is None else [work, trace, checkers]
    try:
        cluster = SimCluster(first, config, data=samples, work=work, seed=seed, watchers=watchers)
        if draw.chance(45) < 0.4:
            cluster.switch(second, workers=draw.whole(46, 2, 8), at_s=UNTIL_S * 0.4)
        elif draw.chance(12) < 0.4:
            cluster.rest(at_s=UNTIL_S * (0.3 + 0.3 * draw.chance(13)))
        result = cluster.run()
        assert result.finished, "the run stopped and data are left"
        checkers.end(samples)
        held = max(mode.most_in_flight for mode in (first, second)) + 1  # Hybrid may give one more after a loss
        work.end(result.statistics.counts.get("cached_rows_lost", 0), held)
        return result, work
    finally:
        work.close()


def watched(seed: int, optimizer: str, policy: str) -> tuple[SimResult, LedgeredWork]:
    trace = Trace()
    try:
        return run_seed(seed, optimizer, policy, trace)
    except BaseException:
        print(trace.text)
        print(f"replay: python -m pytest tests/sim/test_caches.py --seed={seed} -k '{optimizer} and {policy}'")
        raise


def seeds_of(config: pytest.Config, seeds: range) -> range | list[int]:
    given = config.getoption("seed", None)
    return seeds if given is None else [given]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_update_reaches_the_servers_or_is_counted_as_lost(optimizer: str, pytestconfig: pytest.Config) -> None:
    for seed in seeds_of(pytestconfig, SEEDS):
        watched(seed, optimizer, POLICIES[seed % len(POLICIES)])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_updates_and_bounds(policy: str, pytestconfig: pytest.Config) -> None:
    for seed in seeds_of(pytestconfig, SEEDS):
        watched(seed, list(OPTIMIZERS)[seed % len(OPTIMIZERS)], policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_same_over_more_seeds(optimizer: str, policy: str, pytestconfig: pytest.Config) -> None:
    for seed in seeds_of(pytestconfig, MORE_SEEDS):
        watched(seed, optimizer, policy)


def test_eight_workers_under_swap_never_make_an_accumulator_negative() -> None:
    """The ledger looks at every state that is sent, and at all states on the servers at the end."""
    for seed in range(5):
        _, work = run_seed(seed, "adagrad with swap", POLICIES[seed % len(POLICIES)], workers=8)
        assert max(int(each) for each in work.last_periods) > 3


def test_the_seeds_meet_what_caches_must_survive() -> None:
    """Or the tests above would show little."""
    counts: dict[str, int] = {}
    apart: set[int] = set()
    for seed in SEEDS:
        result, work = watched(seed, "sgd", "lru")
        for name, count in result.statistics.counts.items():
            counts[name] = counts.get(name, 0) + count
        counts["failed"] = counts.get("failed", 0) + sum(not passed for _, _, passed in work.caches.ledger.checks)
        in_messages = sum(len(rows) for _, rows in work.caches.ledger.in_message.values())
        counts["lost_in_messages"] = counts.get("lost_in_messages", 0) + in_messages
        apart |= {there - here for there, here, passed in work.caches.ledger.checks if passed}
    assert counts["cached_rows_lost"] > 100
    assert counts["lost_in_messages"] > 5
    assert counts["cache_requests_again"] > 20
    assert counts["failed"] > 50
    for name in ("hits", "misses", "ahead", "invalid", "written", "overflowed", "awaited"):
        assert counts[f"cache_{name}.default"] > 20, name
    assert {-3, 3} <= apart  # both ends of the bound


def broken(match: str, seeds: range = SEEDS, optimizer: str = "sgd") -> None:
    """Some seed notices."""

    def run_all() -> None:
        for seed in seeds:
            run_seed(seed, optimizer, POLICIES[seed % len(POLICIES)])

    with pytest.raises(AssertionError, match=match):
        run_all()


def test_the_ledger_notices_a_write_back_that_is_skipped_at_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = RowCache.begin

    def forgetful(self: RowCache, keys: np.ndarray, *, samples: int) -> CachedBatch:
        batch = begin(self, keys, samples=samples)
        kept = np.isin(batch.request.changes.keys, keys)  # rows of the batch itself are not evicted
        batch.request = replace(batch.request, changes=some(batch.request.changes, kept))
        return batch

    monkeypatch.setattr(RowCache, "begin", forgetful)
    broken("written back|lost with worker|after a flush")


def test_the_ledger_notices_changes_of_later_requests_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that was read before they arrived replaces the row without them: a worker no longer sees its updates."""
    monkeypatch.setattr(cache_module, "with_changes", lambda rows, changes, rule, swap: rows)
    broken("own updates")


def test_the_ledger_notices_a_bound_that_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "is_valid", lambda server, current, bound: is_valid(server, current, bound + 1))
    broken("passed=True")


def test_the_ledger_notices_a_bound_that_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "is_valid", lambda server, current, bound: is_valid(server, current, bound - 1))
    broken("passed=False")


def test_the_ledger_notices_a_worker_that_stays_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    place = CachedRows.place

    def place_late(self: CachedRows, plan: LookupPlan, **settings: Any) -> Placed:
        cache = self.cache
        self.cache = cache.model_copy(update={"staleness": cache.staleness + 1})
        try:
            return place(self, plan, **settings)
        finally:
            self.cache = cache

    monkeypatch.setattr(CachedRows, "place", place_late)
    broken("updates ahead")


def test_the_ledger_notices_a_request_that_is_added_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeenGrants, "__contains__", lambda self, grant: False)
    broken("on the servers")


def test_the_ledger_notices_rows_in_lost_messages_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "doomed", lambda self: [])
    broken("are counted")


def test_the_ledger_notices_a_state_that_is_not_decayed_to_one_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "of_one_period", lambda changes, samples, swap: (changes, samples))
    broken("the state of row", optimizer="adagrad with swap")


def test_the_ledger_notices_updates_that_a_clock_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "after_write_back", lambda rule, server, current, updates: server + (updates > 0))
    broken("the clock of row")


def some(changes: Changes, which: np.ndarray) -> Changes:
    return Changes(
        changes.keys[which],
        changes.values[which],
        changes.state[which],
        changes.clocks[which],
        changes.updates[which],
        changes.periods[which],
    )
