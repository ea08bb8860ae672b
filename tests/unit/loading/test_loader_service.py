"""A loader answers its requests while its threads read, refuses readings that cannot be, and repeats lost replies."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data.parquet import ParquetSource
from hotrow.data.position import Position
from hotrow.data.source import Source
from hotrow.loading import service
from hotrow.loading.process import LoaderServer
from hotrow.transport.client import RpcClient
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import (
    BatchesMade,
    CloseReading,
    Done,
    NextBatches,
    OpenReading,
    PrepareSource,
    Query,
    QueryReply,
)
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId
from unit.runtime.loader_threads import SCHEMA, table
from unit.worker.embedding_threads import in_thread

NAME = RoleId("loader", 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(table(range(3)), tmp_path / "x.parquet", row_group_size=40)
    return tmp_path / "x.parquet"


@contextmanager
def loader_of(source: Source) -> Iterator[RpcClient]:
    """A loader that has prepared a source, and a client of it."""
    with ExitStack() as stack:
        wire = stack.enter_context(RpcClient(security="off"))
        server = stack.enter_context(RpcServer(security="off"))
        in_thread(stack, LoaderServer(NAME, server, lambda key: source).serve, server.stop)
        wire.connect(NAME, server.address)
        assert wire.request(NAME, PrepareSource("source", ())).result(20).message == Done()
        yield wire


def opened(reading: int = 1, **changed: Any) -> OpenReading:
    given = {"key": "source", "position": Position(batch=10).model_dump_json(), "epochs": 1, "labels": True}
    return OpenReading(**{"reading": reading, **given, "number": 0, "loaders": 1, "stretch": 1, **changed})


def test_a_reading_is_closed_at_once_while_its_input_hangs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "JOIN_S", 60.0)
    begun, comes = threading.Event(), threading.Event()

    class Hanging(ParquetSource):
        def _group(self, *given: Any) -> Iterator[pa.RecordBatch]:
            begun.set()
            comes.wait(40)
            return super()._group(*given)

    with loader_of(Hanging(file, SCHEMA, limit=20)) as wire:
        try:
            wire.request(NAME, opened()).result(20)
            wire.request(NAME, NextBatches(1, 0, 4))
            assert begun.wait(20)
            assert wire.request(NAME, CloseReading(1)).result(10).message == Done()
        finally:
            comes.set()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"number": 2, "loaders": 2}, r"number=2: must be below loaders=2, they are numbered from 0"),
        ({"loaders": 0}, r"a header that is not a message: Expected `int` >= 1"),
        ({"stretch": 0}, r"a header that is not a message: Expected `int` >= 1"),
        ({"position": "{"}, r"position: .*: send the document of a Position, as JSON"),
        ({"position": '{"batch": 0}'}, r"position: Position.batch=0: .*: send the document"),
        ({"position": "[]"}, r"position is a list"),
    ],
)
def test_a_reading_that_cannot_be_is_refused_in_a_sentence(file: Path, changed: dict[str, Any], sentence: str) -> None:
    with loader_of(ParquetSource(file, SCHEMA, limit=20)) as wire:
        with pytest.raises(RemoteFault, match=sentence) as refused:
            wire.request(NAME, opened(**changed)).result(20)
        assert "\n" not in str(refused.value)
        with pytest.raises(RemoteFault, match="reading 1: is not open here"):
            wire.request(NAME, NextBatches(1, 0, 4)).result(20)


def test_a_lost_reply_is_repeated_with_its_malformed_lines_and_its_batches_count_once(file: Path) -> None:
    with loader_of(ParquetSource(file, SCHEMA, limit=20)) as wire:
        wire.request(NAME, opened()).result(20)
        found = [wire.request(NAME, NextBatches(1, 0, 1)).result(20).of(BatchesMade, NAME) for _ in range(2)]
        assert found[0] == found[1]
        assert found[0].trouble is not None
        assert len(found[0].trouble.first) == 3
        told = wire.request(NAME, Query("status")).result(20).of(QueryReply, NAME)
        assert (told.figures["loaded_batches"], told.figures["loaded_samples"]) == (1.0, 10.0)
        later = wire.request(NAME, NextBatches(1, 1, 2)).result(20).of(BatchesMade, NAME)
        assert [(each.index, each.samples) for each in later.items] == [(1, 10)], "also where one loader has stretches"
