"""Loaders behind real sockets: the batches, the order, the counts and the errors of a loader in this process."""

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.position import Position
from hotrow.data.reading import BatchName
from hotrow.data.schema import Schema
from hotrow.data.source import ArrowSource, Source
from hotrow.data.text import TextSource
from hotrow.errors import HotrowError, InputError
from hotrow.loading.process import LoaderServer
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.batches import unpack_batch
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import BatchGiven, PullBatch, Query, QueryReply
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId
from unit.worker.embedding_threads import in_thread

SCHEMA = Schema(label="click", numbers=("x",), ids=("row",))
ROWS = 437


class Processes:
    """Roles in threads; one is lost when a test says so."""

    def __init__(self) -> None:
        self.lost: str | None = None
        self.ended: list[RoleId] = []

    def check_alive(self) -> None:
        if self.lost is not None:
            raise HotrowError(f"{self.lost} is gone: it was killed")

    def release(self, name: RoleId) -> None: ...

    def end(self, name: RoleId) -> None:
        self.ended.append(name)


@dataclass(slots=True)
class Loaders:
    """Roles that read, and a client for what they keep."""

    roles: Roles
    wire: RpcClient
    processes: Processes
    start: Callable[[RoleId], None]

    def pull(self, name: BatchName) -> Batch:
        answer = self.wire.request(name.loader, PullBatch(name.reading, name.epoch, name.index, "all")).result(20)
        return unpack_batch(answer.of(BatchGiven, name.loader).batch, answer.frames)

    def kept(self, role: str) -> float:
        told = self.wire.request(role, Query("status")).result(20).message
        assert isinstance(told, QueryReply)
        return told.figures["kept_batches"]


@contextmanager
def loaders_of(
    count: int, *, as_trainers: bool = False, before_fetch: Callable[[], object] = lambda: None
) -> Iterator[Loaders]:
    stored: dict[str, bytes] = {}

    def fetch(key: str) -> Source:
        before_fetch()
        source: Source = pickle.loads(stored[key])
        return source

    @contextmanager
    def store(source: Source) -> Iterator[str]:
        stored["source-1"] = pickle.dumps(source)
        yield "source-1"

    with ExitStack() as stack:
        wire = stack.enter_context(RpcClient(security="off"))
        names = [RoleId("trainer" if as_trainers else "loader", number) for number in range(count)]

        def start(name: RoleId) -> None:
            server = stack.enter_context(RpcServer(security="off"))
            role = LoaderServer(name, server, fetch)
            in_thread(stack, role.serve, server.stop)
            wire.connect(name, server.address)

        for name in names:
            start(name)
        processes = Processes()
        roles = Roles(
            wire, [], names if as_trainers else [], processes, None, () if as_trainers else names, stored_source=store
        )
        yield Loaders(roles, wire, processes, start)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(table(), tmp_path / "x.parquet", row_group_size=40)
    return tmp_path / "x.parquet"


def table(broken: range = range(0)) -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "click": pa.array([None if row in broken else row % 2 for row in numbers], pa.int8()),
            "x": pa.array([None if row % 5 == 0 else float(row) for row in numbers], pa.float32()),
            "row": pa.array(numbers, pa.int64()),
        }
    )


def contents(batch: Batch) -> tuple[Any, ...]:
    assert batch.labels is not None
    return batch.parts[0].keys.tolist(), batch.numbers.tolist(), batch.labels.tolist()


@contextmanager
def read_remotely(loaders: Loaders, loader: Loader) -> Iterator[ReadingRoles]:
    reading = ReadingRoles(loaders.roles)
    with reading.prepared(loader) as loader.remote:
        assert loader.remote is not None
        try:
            yield reading
        finally:
            loader.remote = None


def remote_plan(loaders: Loaders, loader: Loader, *, stop: int | None = None) -> list[tuple[int, int, int, Any]]:
    """Read, pull and finish everything, or the first batches."""
    found: list[tuple[int, int, int, Any]] = []
    with read_remotely(loaders, loader):
        items = iter(loader)
        for lease, name in items:
            assert isinstance(name, BatchName)
            assert len(name) == lease.samples
            found.append((lease.number, lease.epoch, lease.index, contents(loaders.pull(name))))
            loader.done(lease)
            if len(found) == stop:
                break
        items.close()
    return found


def local_plan(loader: Loader) -> list[tuple[int, int, int, Any]]:
    found: list[tuple[int, int, int, Any]] = []
    for lease, batch in loader:
        found.append((lease.number, lease.epoch, lease.index, contents(batch)))
        loader.done(lease)
    return found


@pytest.mark.parametrize(("count", "shuffle"), [(1, 0), (2, 0), (3, 48), (2, 30), (3, 100)])
def test_batches_order_leases_counts_and_position_are_those_of_this_process(
    file: Path, count: int, shuffle: int
) -> None:
    settings: dict[str, Any] = {"batch": 12, "epochs": 2, "shuffle": shuffle, "seed": 5, "drop_last": True}
    alone = Loader(ParquetSource(file, SCHEMA), **settings)
    expected = local_plan(alone)
    with loaders_of(count) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), **settings)
        assert remote_plan(loaders, loader) == expected
        assert loader.counts == alone.counts
        assert loader.counts["missing_numbers"] == 2 * 88
        assert loader.position() == alone.position()
        assert [loaders.kept(name) for name in loaders.roles.loaders] == [0.0] * count


def test_a_resume_in_the_middle_of_an_epoch_goes_on_with_other_loaders(file: Path) -> None:
    settings: dict[str, Any] = {"batch": 12, "epochs": 2, "shuffle": 36, "seed": 1}
    expected = local_plan(Loader(ParquetSource(file, SCHEMA), **settings))
    with loaders_of(3) as loaders:
        begun = Loader(ParquetSource(file, SCHEMA), **settings)
        first = remote_plan(loaders, begun, stop=17)
        position = Position.of(begun.position().document())
    with loaders_of(2) as loaders:
        rest = remote_plan(loaders, Loader(ParquetSource(file, SCHEMA), **settings, position=position))
    assert [each[1:] for each in first + rest] == [each[1:] for each in expected]


def test_what_is_given_back_comes_again_first_and_can_be_pulled_again(file: Path) -> None:
    with loaders_of(2) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        with read_remotely(loaders, loader):
            items = iter(loader)
            (first, name), (second, _) = next(items), next(items)
            assert isinstance(name, BatchName)
            before = contents(loaders.pull(name))
            loader.done(second)
            loader.give_back(first)
            again, other = next(items)
            assert isinstance(other, BatchName)
            assert (again.epoch, again.index, again.number) == (first.epoch, first.index, 2)
            assert contents(loaders.pull(other)) == before
            assert next(items)[0].index == 2
            items.close()
        assert loader.position().samples == 12


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_malformed_lines_are_counted_once_and_the_first_of_them_are_known(tmp_path: Path, kind: str) -> None:
    rows, path = table(range(100, 109)), tmp_path / f"x.{kind}"
    if kind == "parquet":
        pq.write_table(rows, path, row_group_size=40)
    else:
        lines = ["" if each is None else str(each) for each in rows["click"].to_pylist()]
        path.write_text("click,x,row\n" + "".join(f"{click},1,{row}\n" for row, click in enumerate(lines)))
    opened: Callable[..., Source] = ParquetSource if kind == "parquet" else TextSource
    alone = opened(path, SCHEMA, limit=20)
    expected = local_plan(Loader(alone, 10, epochs=2))
    with loaders_of(3) as loaders:
        source = opened(path, SCHEMA, limit=20)
        loader = Loader(source, 10, epochs=2)
        assert remote_plan(loaders, loader) == expected
        assert loader.counts["malformed_lines"] == source.trouble.malformed == alone.trouble.malformed == 9
        first = [(each.line, each.reason) for each in source.trouble.first]
        assert first == [(each.line, each.reason) for each in alone.trouble.first]


def test_too_many_malformed_lines_are_the_sentence_of_one_process_after_the_same_batches(tmp_path: Path) -> None:
    pq.write_table(table(range(200, 230)), tmp_path / "x.parquet", row_group_size=40)
    found: list[tuple[int, str]] = []
    for count in (0, 2):
        with loaders_of(count) if count else ExitStack() as loaders:
            loader = Loader(ParquetSource(tmp_path / "x.parquet", SCHEMA, limit=12), 10)
            leases: list[Lease] = []
            reading: AbstractContextManager[Any] = ExitStack()
            if isinstance(loaders, Loaders):
                reading = read_remotely(loaders, loader)
            with reading, pytest.raises(InputError, match="lines are malformed, the limit is 12") as refused:
                leases.extend(lease for lease, _ in loader)
            found.append((len(leases), str(refused.value).partition(":")[0]))
    assert found[0] == found[1]


def test_a_lost_loader_ends_the_reading_with_its_name(file: Path) -> None:
    with loaders_of(2) as loaders:
        loader = Loader(Endless(file, SCHEMA), 12)
        with read_remotely(loaders, loader):
            items = iter(loader)
            next(items)
            loaders.processes.lost = "loader 1"
            with pytest.raises(HotrowError, match="loader 1 is gone: it was killed"):
                for _ in items:
                    pass


class Endless(ParquetSource):
    """A file whose second half never comes."""

    def _group(self, *given: Any) -> Iterator[pa.RecordBatch]:
        if given[2] > 2:
            threading.Event().wait(1)
        return super()._group(*given)


def test_an_error_that_is_no_sentence_names_the_loader(file: Path) -> None:
    with loaders_of(2) as loaders:
        loader = Loader(Failing(file, SCHEMA), 12)
        with read_remotely(loaders, loader), pytest.raises(HotrowError, match=r"loader 0: ZeroDivisionError: odd"):
            list(loader)


class Failing(ParquetSource):
    def _group(self, *given: Any) -> Iterator[pa.RecordBatch]:
        raise ZeroDivisionError("odd")


@pytest.mark.parametrize("change", ["gone", "longer"])
def test_a_loader_without_the_files_ends_the_run_and_a_trainer_lets_the_driver_read(
    file: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """Hosts differ: what the driver saw is gone, or another, when the first loader looks."""
    whole = file.read_bytes()
    act = (lambda: file.unlink(missing_ok=True)) if change == "gone" else (lambda: write(file, whole + b"x"))
    found = "there is no such file" if change == "gone" else rf"has {len(whole) + 1:,} bytes here, and {len(whole):,}"
    with loaders_of(2, before_fetch=act) as loaders:
        reading = ReadingRoles(loaders.roles).prepared(Loader(ParquetSource(file, SCHEMA), 12))
        with pytest.raises(InputError, match=rf"engine.loaders=2: loader 0 cannot: .*{found}.*: give every"), reading:
            pass
    write(file, whole)
    with loaders_of(2, as_trainers=True, before_fetch=act) as loaders:
        reading = ReadingRoles(loaders.roles).prepared(Loader(ParquetSource(file, SCHEMA), 12))
        with caplog.at_level("WARNING"), reading as remote:
            assert remote is None
        assert "the run's own process reads the data: trainer 0 cannot:" in caplog.text


def write(file: Path, data: bytes) -> None:
    made = file.with_suffix(f".{threading.get_ident()}")  # whoever looks meanwhile sees a whole file
    made.write_bytes(data)
    made.rename(file)


def test_rows_in_memory_are_read_by_the_driver() -> None:
    with loaders_of(2) as loaders:
        loader = Loader(ArrowSource(table(), SCHEMA), 12)
        with ReadingRoles(loaders.roles).prepared(loader) as remote:
            assert remote is None


def test_trainers_that_read_join_and_leave_in_the_middle(file: Path) -> None:
    """One that leaves stops when no batch of it is needed, and batches and their order stay the same."""
    settings: dict[str, Any] = {"batch": 12, "shuffle": 24, "seed": 2}
    expected = local_plan(Loader(ParquetSource(file, SCHEMA), **settings))
    with loaders_of(2, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), **settings)
        found: list[tuple[int, int, int, Any, str]] = []
        held: list[tuple[Lease, BatchName]] = []
        with read_remotely(loaders, loader) as reading:
            left = None
            for lease, name in loader:
                assert isinstance(name, BatchName)
                if lease.index == 5:
                    assert {kept.loader for _, kept in held} == {"trainer 0", "trainer 1"}
                    left = reading.stop_trainer(RoleId("trainer", 0))
                    assert not left.done()
                if lease.index == 9:
                    newcomer = RoleId("trainer", 2)
                    loaders.start(newcomer)
                    loaders.roles.trainers.append(newcomer)
                    reading.add_trainer(newcomer)
                found.append((lease.number, lease.epoch, lease.index, contents(loaders.pull(name)), name.loader))
                if lease.index < 5:
                    held.append((lease, name))
                else:
                    loader.done(lease)
                if lease.index == 12:
                    assert left is not None
                    assert not left.done()
                    for other, kept in held:
                        loaders.pull(kept)
                        if kept.loader == "trainer 0":
                            loader.done(other)
                    left.result(20)
        assert [each[:4] for each in found] == expected
        assert {each[4] for each in found[:6]} == {"trainer 0", "trainer 1"}
        assert {each[4] for each in found[7:10]} == {"trainer 1"}
        assert {each[4] for each in found[11:]} == {"trainer 1", "trainer 2"}
        assert loaders.processes.ended == ["trainer 0"]
        assert loader.position().samples == ROWS - 12 * sum(kept.loader != "trainer 0" for _, kept in held)
