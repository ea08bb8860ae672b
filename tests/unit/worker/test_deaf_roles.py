"""A role whose server fails ends with it and says why, since nobody could tell it anything any more."""

import pytest
import torch

import hotrow as hr
from hotrow.transport.client import RpcClient
from hotrow.transport.server import OneWayHandler, RequestHandler, RpcServer, refuse_one_way
from hotrow.types import RoleId
from hotrow.worker.embedding_process import EmbeddingServer, EmbeddingSetup
from hotrow.worker.process import TrainerProcess
from hotrow.worker.setup import RoleSpec, TrainerSetup
from hotrow.worker.spec import TrainingSpec
from unit.worker.embedding_threads import TABLES, cluster


class Broken(RpcServer):
    """Fails in its loop, not in a handler."""

    def serve(self, handle: RequestHandler, take: OneWayHandler = refuse_one_way) -> None:
        raise OSError("too many open files")


def test_a_trainer() -> None:
    model = torch.nn.Linear(2, 1)
    setup = TrainerSetup(RoleSpec(TrainingSpec(model, {"t": hr.Table(dim=2)})), [], [], {}, pooled=True)
    with (
        Broken(security="off") as server,
        RpcClient(security="off") as wire,
        pytest.raises(OSError, match="too many open files"),
    ):
        TrainerProcess(setup, RoleId("trainer", 0), server, wire).serve()


def test_an_embedding_worker() -> None:
    with (
        cluster(1, 0) as there,
        Broken(security="off") as server,
        pytest.raises(OSError, match="too many open files"),
    ):
        EmbeddingServer(EmbeddingSetup(TABLES, 0, there.shards), server, there.wire).serve()
