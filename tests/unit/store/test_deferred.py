"""An update that waits is performed before anything else touches the table, once, and by one thread."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hotrow.errors import InputError
from hotrow.store import LookupPlan, RamTier
from oracles.life_pair import DIM, as_keys, life_table, ones


def waiting() -> tuple[RamTier, LookupPlan]:
    """A table whose key 1 waits for its first update."""
    tier = RamTier(life_table(capacity=8), partitions=1)
    plan = tier.find_or_init(as_keys([1, 2]))
    tier.apply_later(plan, ones(2), only=plan.keys == 1)
    assert tier.deferred.waits()
    return tier, plan


CALLS: dict[str, Callable[[RamTier], Any]] = {
    "find": lambda tier: tier.find(as_keys([2])),
    "find_or_init": lambda tier: tier.find_or_init(as_keys([3])),
    "read_rows": lambda tier: tier.read_rows(as_keys([2]), np.empty((1, DIM), np.float32)),
    "apply": lambda tier: tier.apply(as_keys([2]), ones(1)),
    "apply_later": lambda tier: tier.apply_later(tier.batch(as_keys([2])), ones(1)),
    "put": lambda tier: tier.put(as_keys([4]), ones(1)),
    "erase": lambda tier: tier.erase(as_keys([2])),
    "versions": lambda tier: tier.versions(as_keys([2])),
    "export": lambda tier: list(tier.export()),
    "stats": lambda tier: tier.stats(),
    "len": len,
    "eviction_order": lambda tier: tier.eviction_order(0),
    "settle": lambda tier: tier.settle(),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_finds_the_update_performed(name: str) -> None:
    tier, _ = waiting()
    CALLS[name](tier)
    assert [each.rows for each in tier.deferred.take_results()] == [1]
    assert tier.versions(as_keys([1])).tolist() == [2]


def test_planning_and_a_read_beside_it_leave_it_waiting() -> None:
    tier, plan = waiting()
    tier.batch(as_keys([5]))
    out = np.zeros((2, DIM), np.float32)
    tier.read_rows(plan, out, only=plan.keys == 2, settled=False)
    assert tier.deferred.waits()
    assert out[1].any()
    tier.close()
    assert [each.rows for each in tier.deferred.take_results()] == [1]


def test_others_wait_until_it_is_performed(monkeypatch: pytest.MonkeyPatch) -> None:
    tier, _ = waiting()
    real, begun, go_on = RamTier.apply, threading.Event(), threading.Event()

    def apply(self: RamTier, *given: Any, **more: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return real(self, *given, **more)

    monkeypatch.setattr(RamTier, "apply", apply)
    first, found = threading.Thread(target=tier.settle), []
    second = threading.Thread(target=lambda: found.append(tier.versions(as_keys([1])).tolist()))
    first.start()
    assert begun.wait(10)
    second.start()
    second.join(0.05)
    assert not found
    go_on.set()
    first.join()
    second.join()
    assert found == [[2]]


def test_an_update_that_fails_is_told_and_not_repeated() -> None:
    tier, plan = waiting()
    tier.settle()
    tier.apply_later(plan, np.ones((2, DIM + 1), np.float32))
    with pytest.raises(InputError, match="gradients is"):
        tier.stats()
    assert tier.deferred.failed
    assert not tier.deferred.waits()
    tier.stats()
    tier.clear()
    assert not tier.deferred.failed
