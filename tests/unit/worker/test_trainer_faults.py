"""What goes wrong in a trainer is told to the driver in its own words, and the next mode can begin."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hotrow.checkpoint import dense as dense_state
from hotrow.errors import InputError
from hotrow.modes import Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import Begin
from hotrow.worker import batch_computation, open_dense
from unit.runtime.cluster_threads import SAMPLES, Net, batches, cluster


def refusing(what: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise InputError(what)

    return refuse


def train(engine: TrainingLoop, count: int) -> int:
    leases = LeaseQueue(batches(count))
    leases.open_epoch()
    return sum(1 for _ in engine.steps(leases, 0))


def test_a_reply_that_cannot_be_made_is_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_computation, "BatchReply", refusing("the output is too large for a frame"))
    with cluster(RunState(), 1, 0) as there:
        engine = TrainingLoop(there.site, RunState(), mode=Sync(), facts=RunFacts(1, SAMPLES, SAMPLES))
        with pytest.raises(RemoteFault, match="the output is too large for a frame"):
            train(engine, 2)
        engine.close()


def test_a_mode_that_could_not_begin_does_not_hinder_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster(RunState(), 1, 0) as there:
        engine = TrainingLoop(there.site, RunState(), mode=Sync(), facts=RunFacts(1, SAMPLES, SAMPLES))
        with monkeypatch.context() as patched:
            patched.setattr(open_dense, "AllReduceDense", refusing("there is no memory for the buckets"))
            with pytest.raises(RemoteFault, match="there is no memory for the buckets"):
                train(engine, 2)
        assert train(engine, 2) == 2
        engine.rest()
        engine.close()


def test_a_mode_whose_ranks_meet_is_refused_without_an_address_to_meet_at() -> None:
    model, mode = Net(), Sync().model_dump_json()
    tensors, settings = dense_state.to_bytes(model, torch.optim.Adam(model.parameters()))
    begin = Begin(mode, 0, 0, 0, ranks=1, share=1, local_batch=SAMPLES, trained=0, meeting=None, optimizer=settings)
    with cluster(RunState(), 1, 0) as there, pytest.raises(RemoteFault, match="meeting=None: in sync ranks meet"):
        there.wire.request("trainer 0", begin, [tensors]).result(20)
