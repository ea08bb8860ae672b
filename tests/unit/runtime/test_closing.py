"""A mode that is closed leaves nothing behind: what was parked is discarded where it lies, or nothing more is asked."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace
from torch import Tensor

from hotrow.checkpoint import dense as dense_state
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.errors import InputError
from hotrow.modes import GBA, Async, Hybrid, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.nn.inputs import Inputs
from hotrow.runtime.cluster.executor import RemoteExecutor
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.transport.futures import uncancellable_future
from unit.runtime.cluster_threads import SAMPLES, Cluster, Net, batches, cluster


def engine_on(there: Cluster, mode: Mode | None = None) -> TrainingLoop:
    """Four local batches make a step, so that a push waits on the shards for the others."""
    return TrainingLoop(there.site, RunState(), mode=mode or GBA(), facts=RunFacts(1, SAMPLES, 4 * SAMPLES))


def begun(engine: TrainingLoop, leases: Iterator[tuple[Lease, Batch]]) -> None:
    pool = LeaseQueue(leases)
    pool.open_epoch()
    steps = engine.steps(pool, 0)
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


@pytest.mark.parametrize("mode", [Sync(), Hybrid(), Async()], ids=lambda mode: str(mode.name))
def test_a_batch_that_a_cluster_may_have_applied_in_part_leaves_nothing_to_be_saved(mode: Mode) -> None:
    with cluster(RunState(), 1, 0) as there:
        engine = engine_on(there, mode)
        begun(engine, batches(12))
        assert engine._active is not None
        engine._active.request_batch(0)
        engine.close()
        with pytest.raises(InputError, match="the cluster has failed"):
            engine.check_consistent()


def test_a_mode_whose_dense_state_does_not_come_back_leaves_nothing_to_be_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with cluster(RunState(), 1, 0) as there:
        engine = engine_on(there)
        begun(engine, batches(12))
        with monkeypatch.context() as patched:
            patched.setattr(dense_state, "from_pieces", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.close()
        with pytest.raises(InputError, match="the cluster has failed"):
            engine.check_consistent()


def test_an_interrupt_while_pushes_are_discarded_leaves_nothing_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that missed an order would delay every later lookup."""
    with cluster(RunState(), 1, 0) as there:
        engine = engine_on(there)
        begun(engine, batches(12))
        ask = there.wire.request

        def interrupted(name: str, *given: Any, **settings: Any) -> Any:
            if name == "shard 1":
                raise KeyboardInterrupt
            return ask(name, *given, **settings)

        with monkeypatch.context() as patched:
            patched.setattr(there.wire, "request", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.close()
        with pytest.raises(InputError, match="the cluster has failed"):
            engine.check_consistent()


def test_batches_of_a_mode_that_was_broken_off_are_not_computed_in_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, released = threading.Event(), threading.Event()
    forward = Net.forward

    def slow(net: Net, inputs: Inputs) -> Tensor:
        entered.set()
        assert released.wait(20)
        return forward(net, inputs)

    monkeypatch.setattr(Net, "forward", slow)
    with cluster(RunState(), 1, 0) as there:
        engine = engine_on(there, Hybrid(max_in_flight=3))
        pool = LeaseQueue(batches(12))
        pool.open_epoch()
        active = engine._open(pool, 0)
        assert all(active.request_batch(0) for _ in range(3))
        assert entered.wait(20)
        assert there.site._open is not None
        begin = replace(there.site._open.begun, mode=GBA().model_dump_json(), meeting=None)
        engine.close()
        tensors, _ = dense_state.to_bytes(Net(), None)
        asked = there.wire.request("trainer 0", begin, [tensors])
        there.figures("trainer 0")  # requests are received in order: the trainer has the new mode
        released.set()
        asked.result(20)
        assert isinstance(active.executor, RemoteExecutor)
        answers = [active.executor._results.get(timeout=20)[1] for _ in range(3)]
        told = [str(each) if isinstance(each, Exception) else "" for each in answers]
        assert sum("its mode ended before it was computed" in each for each in told) == 2
        assert there.figures("trainer 0")["batches"] == 1


def test_a_promise_cannot_be_cancelled() -> None:
    left: Future[None] = uncancellable_future()
    assert not left.cancel()
    left.set_result(None)
    assert left.result() is None
