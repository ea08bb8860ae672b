"""The contestant with core binding is bound while it trains, and the others are not."""

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.bench.tiers.plan import CapacityJob, TiersPlan
from hotrow.bench.tiers.stream import CapacityStream
from hotrow.bench.tiers.training import TierTraining, core_binder
from hotrow.data.batch import Batch
from hotrow.data.source import Source
from hotrow.topology import sysfs
from hotrow.topology.affinity import allowed_cpus
from unit.topology.made_hosts import ONE_NODE, TWO_CORES

FREE = tuple(sorted(os.sched_getaffinity(0)))
PLAN = TiersPlan(
    samples=64,
    features=2,
    numbers=1,
    capacity=CapacityJob(stored_rows=(5_000,), hot_ids=100, steps=3, stored_share=0.1, new_share=0.2),
)

pytestmark = pytest.mark.skipif(not {0, 1} <= set(FREE), reason="needs processors 0 and 1 of this machine")


def cpus() -> tuple[int, ...]:
    return allowed_cpus(threading.get_native_id())


@pytest.mark.parametrize("bound", [True, False])
def test_a_contestant_is_bound_while_it_trains_and_leaves_its_threads_free(
    bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysfs, "SYS", TWO_CORES.write(tmp_path / "sys"))
    binder = core_binder(PLAN.threads)
    stream = CapacityStream(PLAN, max(PLAN.capacity.spaces), 5_000, seed=3)
    table = hr.Table(dim=4, capacity=4096, disk="16MB", path=tmp_path)
    seen: dict[str, tuple[int, ...]] = {}

    def source_of(turn: int) -> Source:
        seen["trainer"] = cpus()
        return stream.round(turn)

    with closing(TierTraining(PLAN, table, binder=binder if bound else None)) as run:
        run.fill(np.arange(100))
        start_load = run._tables.start_load

        def watched(batch: Batch) -> Callable[[], None]:
            put = start_load(batch)

            def watched_put() -> None:
                seen["putter"] = cpus()
                put()

            seen["reader"] = cpus()
            return watched_put

        monkeypatch.setattr(run._tables, "start_load", watched)
        assert run.contestant(PLAN, source_of)(0) > 0
        assert cpus() == FREE
    near = {"trainer": (1,), "reader": (0,), "putter": (0,)}  # the GPU, and the network interface
    assert seen == (near if bound else dict.fromkeys(near, FREE))


def test_one_node_binds_nothing_and_a_system_without_cores_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysfs, "SYS", ONE_NODE.write(tmp_path / "sys"))
    binder = core_binder(2)
    assert binder is not None
    assert binder.plan.bindings == ()
    monkeypatch.setattr(sysfs, "SYS", tmp_path / "missing")
    assert core_binder(2) is None
