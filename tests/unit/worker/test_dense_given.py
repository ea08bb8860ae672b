"""A trainer gives the dense state of the last step that all did, also while it waits for others in the next one."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from hotrow.modes import Hybrid
from hotrow.modes.base import RunFacts
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.worker.reducer import Reducer
from unit.runtime.cluster_threads import SAMPLES, batches, cluster


def test_a_prediction_does_not_wait_for_a_trainer_that_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch of the other one is sent after the caller goes on."""
    waiting, released = threading.Event(), threading.Event()
    finish, calls = Reducer.finish, []

    def waits_in_the_second_step(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            waiting.set()
            assert released.wait(60)
        return finish(*given)

    monkeypatch.setattr(Reducer, "finish", waits_in_the_second_step)
    state = RunState()
    with cluster(state, 1, 0) as there, ThreadPoolExecutor(1) as pool:
        engine = TrainingLoop(there.site, state, mode=Hybrid(max_in_flight=2), facts=RunFacts(1, SAMPLES, SAMPLES))
        leases = LeaseQueue(batches(6))
        leases.open_epoch()
        steps = engine.steps(leases, 0)
        next(steps)
        try:
            assert waiting.wait(20)
            before = [each.detach().clone() for each in there.site._spec.model.parameters()]
            pool.submit(engine.backend.predict, next(batches(1))[1]).result(20)
            after = list(there.site._spec.model.parameters())
            assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True))
        finally:
            released.set()
        assert len(list(steps)) == 5
        engine.rest()
        engine.close()
