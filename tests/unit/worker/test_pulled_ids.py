"""Ids that an embedding worker pulls from loaders: looked up in the order of the requests, and bounded."""

from concurrent.futures import Future
from queue import Empty

import pytest

from hotrow.client.pooled import peer_name
from hotrow.transport.client import Answer
from hotrow.transport.errors import RemoteFault
from hotrow.transport.ids import pack_ids, sample_id
from hotrow.transport.messages import BatchAt, Done, ForgetLoader, IdsGiven, LookUp
from hotrow.transport.request import Request
from hotrow.worker.embedding import BufferLimits
from unit.worker.embedding_threads import Cluster, batch_of, cluster
from unit.worker.slow_loader import SlowLoader, slow_loader


def send(made: Cluster, loader: SlowLoader, grant: int) -> "Future[Answer]":
    at = BatchAt("loader 0", loader.address, 1, 0, grant)
    return made.wire.request(peer_name(0), LookUp(sample_id(0, grant), 0, 0, 0, False, 0, (), at=at))


def give(request: Request) -> None:
    batch = batch_of(4, seed=1)
    parts, frames = pack_ids(batch)
    request.reply(IdsGiven(len(batch), parts), frames)


def test_lookups_begin_in_the_order_of_their_requests() -> None:
    with cluster() as made, slow_loader() as loader:
        asked = [send(made, loader, grant) for grant in (1, 2)]
        first, second = loader.next(), loader.next()
        give(second)
        with pytest.raises(TimeoutError):
            asked[1].result(0.2)
        give(first)
        assert [each.result(20).message for each in asked] == [Done(), Done()]


def test_pulls_in_progress_count_in_the_bound_of_the_queue() -> None:
    with cluster(bounds=BufferLimits(queued=2)) as made, slow_loader() as loader:
        asked = [send(made, loader, grant) for grant in (1, 2, 3)]
        pulls = [loader.next() for _ in range(2)]
        with pytest.raises(Empty):
            loader.asked.get(timeout=0.3)
        for each in pulls:
            give(each)
        give(loader.next())
        assert [each.result(20).message for each in asked] == [Done()] * 3


def test_the_connection_to_a_loader_that_left_is_closed() -> None:
    with cluster() as made, slow_loader() as loader:
        asked = send(made, loader, 1)
        pull = loader.next()
        for _ in range(2):
            assert made.wire.request(peer_name(0), ForgetLoader("loader 0")).result(20).message == Done()
        with pytest.raises(RemoteFault, match="it was forgotten"):
            asked.result(20)
        assert not pull.answered
