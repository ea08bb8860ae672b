"""Batches that a trainer pulls begin in the order of their requests, in the mode that was open then, or not at all."""

from functools import partial

import pytest
import torch

from hotrow.checkpoint import dense as dense_state
from hotrow.modes import GBA
from hotrow.runtime.state import RunState
from hotrow.transport.batches import pack_batch
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import (
    BatchAt,
    BatchGiven,
    BatchReply,
    BatchRequest,
    Begin,
    Fault,
    ForgetLoader,
    PullBatch,
)
from hotrow.transport.request import Request
from unit.runtime.cluster_threads import SAMPLES, Cluster, Net, batches, cluster
from unit.worker.slow_loader import SlowLoader, slow_loader


def begin(made: Cluster) -> None:
    model, mode = Net(), GBA().model_dump_json()
    tensors, settings = dense_state.to_bytes(model, torch.optim.Adam(model.parameters()))
    begun = Begin(mode, 0, 0, 0, ranks=1, share=1, local_batch=SAMPLES, trained=0, meeting=None, optimizer=settings)
    made.wire.request("trainer 0", begun, [tensors]).result(20)


def work(grant: int, loader: SlowLoader) -> BatchRequest:
    at = BatchAt("loader 0", loader.address, 1, 0, grant)
    return BatchRequest(grant, 0, 0, 0, 0, 0, 1.0, None, None, None, at)


def give(request: Request) -> None:
    ((_, batch),) = batches(1)
    header, frames = pack_batch(batch)
    request.reply(BatchGiven(header), frames)


def test_a_batch_that_was_pulled_in_one_mode_does_not_begin_in_the_next() -> None:
    with cluster(RunState(), 1, 0) as made, slow_loader() as loader:
        begin(made)
        asked = made.wire.request("trainer 0", work(1, loader), deadline=False)
        pull = loader.next()
        begin(made)
        give(pull)
        with pytest.raises(RemoteFault, match="grant=1: its mode ended before it was computed"):
            asked.result(20)
        later = made.wire.request("trainer 0", work(2, loader), deadline=False)
        give(loader.next())
        assert isinstance(later.result(20).message, BatchReply)


def test_batches_begin_in_the_order_of_their_requests_and_the_error_of_a_pull_is_the_reply_to_its_batch() -> None:
    with cluster(RunState(), 1, 0) as made, slow_loader() as loader:
        begin(made)
        asked = [made.wire.request("trainer 0", work(grant, loader), deadline=False) for grant in (1, 2, 3)]
        pulls = [loader.next() for _ in asked]
        assert [each.message for each in pulls] == [PullBatch(1, 0, grant, "all") for grant in (1, 2, 3)]
        ended: list[int] = []
        for place, each in enumerate(asked):
            each.add_done_callback(partial(lambda place, _: ended.append(place), place))
        give(pulls[2])
        pulls[1].reply(Fault.of("input", "batch 2 of epoch 0: is not here"))
        give(pulls[0])
        with pytest.raises(RemoteFault, match="batch 2 of epoch 0: is not here"):
            asked[1].result(20)
        for place in (0, 2):
            assert isinstance(asked[place].result(20).message, BatchReply)
        assert ended.index(0) < ended.index(2)


def test_the_connection_to_a_loader_that_left_is_closed() -> None:
    with cluster(RunState(), 1, 0) as made, slow_loader() as loader, slow_loader() as other:
        begin(made)
        for grant, at in ((1, loader), (2, other)):
            asked = made.wire.request("trainer 0", work(grant, at), deadline=False)
            pull = at.next()
            made.wire.request("trainer 0", ForgetLoader("loader 0")).result(20)
            with pytest.raises(RemoteFault, match="it was forgotten"):
                asked.result(20)
            assert not pull.answered
        made.wire.request("trainer 0", ForgetLoader("loader 0")).result(20)
