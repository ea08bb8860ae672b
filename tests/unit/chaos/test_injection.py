"""The injector of faults: what goes wrong in its thread is told, and does not look like a quiet run."""

import os
import threading
import time
from typing import Any

import pytest

from hotrow.chaos import injection
from hotrow.chaos.injection import Injector
from hotrow.chaos.plan import PlannedFault
from hotrow.modes import GBA
from hotrow.runtime.cluster.facts import ClusterFacts, RoleAddress
from hotrow.types import RoleId


class Broken:
    """A run whose cluster cannot be looked at."""

    samples, step = 0, 0

    @property
    def cluster(self) -> Any:
        raise OSError("the cluster does not answer")


def test_an_error_of_the_injecting_thread_ends_the_run() -> None:
    broken: Any = Broken()
    injector = Injector(links=None, tell=lambda _: None, stalled=lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="does not answer"), injector.exposed(broken):
        wait_until_dead()


def wait_until_dead() -> None:
    while any(thread.name == "chaos" and thread.is_alive() for thread in threading.enumerate()):
        time.sleep(0.01)


class Idle:
    """A run that trains nothing, with two shards."""

    samples, step, mode = 0, 0, GBA()

    @property
    def cluster(self) -> ClusterFacts:
        roles = {RoleId("shard", number): RoleAddress("tcp://127.0.0.1:9", "here", -1 - number) for number in range(2)}
        return ClusterFacts("off", None, roles, {}, {})


@pytest.mark.parametrize("idle_s", [60.0, 0.0], ids=["after a while", "at first"])
def test_nothing_is_killed_while_nothing_is_trained(idle_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(injection, "IDLE_S", -1.0 if idle_s else 1e9)
    idle: Any = Idle()
    injector = Injector(links=None, tell=lambda _: None, stalled=lambda _: None)  # type: ignore[arg-type]
    injector.begin([PlannedFault(0.0, "kill", "shard", 0.5)])
    with injector.exposed(idle):
        while not injector.injected:
            time.sleep(0.01)
    (done,) = injector.injected
    assert (done.name is None) == bool(idle_s)
    assert killed == ([] if idle_s else [-2])
    assert not idle_s or done.sentence.endswith("no sample was trained for 0 s")
