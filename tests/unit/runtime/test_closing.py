"""A mode that is closed leaves nothing behind: what was parked is discarded where it lies, or nothing more is asked."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.errors import InputError
from hotrow.modes import GBA
from hotrow.modes.base import RunFacts
from hotrow.runtime.cluster.leaving import uncancellable_future
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.state import RunState
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster


def engine_on(there: Cluster) -> TrainingLoop:
    """Four local batches make a step, so that a push waits on the shards for the others."""
    return TrainingLoop(there.site, RunState(), mode=GBA(), facts=RunFacts(1, SAMPLES, 4 * SAMPLES))


def begun(engine: TrainingLoop, leases: Iterator[tuple[Lease, Batch]]) -> None:
    pool = LeaseQueue(leases)
    pool.open_epoch()
    steps = engine.steps(pool, 0, lambda lease: None)
    next(steps)
    assert engine._active is not None
    engine._active.request_batch(0)
    engine._active.finish_next()  # a push that no step has taken


def test_pushes_of_a_mode_that_is_broken_off_do_not_stay_on_the_shards() -> None:
    with cluster(RunState(), 1, 0) as there:
        engine = engine_on(there)
        begun(engine, batches(12))
        assert sum(core.figures()["parked"] for core in there.cores) > 0
        engine.close()
        there.site.tables.lookup(next(batches(1))[1], learn=False, after=there.site._order)  # all orders are performed
        assert sum(core.figures()["parked"] for core in there.cores) == 0


def test_after_a_fault_of_the_engine_nobody_is_asked_and_nothing_is_saved() -> None:
    with cluster(RunState(), 1, 0) as there:
        engine = engine_on(there)
        begun(engine, batches(12))
        assert engine._active is not None
        engine._active.failed = True
        engine.close()
        with pytest.raises(InputError, match="the cluster has failed"):
            there.site.check_consistent()


def test_a_promise_cannot_be_cancelled() -> None:
    left: Future[None] = uncancellable_future()
    assert not left.cancel()
    left.set_result(None)
    assert left.result() is None
