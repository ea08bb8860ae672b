"""Loaders behind real sockets: the batches, the order, the counts and the errors of a loader in this process."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
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
from hotrow.data.source import ArrowSource, Source
from hotrow.data.text import TextSource
from hotrow.errors import HotrowError, InputError
from hotrow.runtime.cluster import reading as reading_module
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.types import RoleId, RoleKind
from unit.runtime.loader_threads import (
    ROWS,
    SCHEMA,
    Loaders,
    contents,
    loaders_of,
    local_plan,
    read_remotely,
    remote_plan,
    table,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(table(), tmp_path / "x.parquet", row_group_size=40)
    return tmp_path / "x.parquet"


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


def test_rows_in_memory_are_read_by_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    with loaders_of(2) as loaders:
        loader = Loader(ArrowSource(table(), SCHEMA), 12)
        with caplog.at_level("WARNING"), ReadingRoles(loaders.roles).prepared(loader) as remote:
            assert remote is None
        assert "the run's own process reads the data: ArrowSource is not read from files" in caplog.text


def test_the_reason_why_the_driver_reads_is_no_context_of_a_later_error() -> None:
    with loaders_of(2) as loaders:
        reading = ReadingRoles(loaders.roles).prepared(Loader(ArrowSource(table(), SCHEMA), 12))
        with pytest.raises(InputError, match="the training failed") as later, reading:
            raise InputError("the training failed")
        assert later.value.__context__ is None


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


def test_a_trainer_that_is_lost_while_it_prepares_to_read_does_not_read(file: Path) -> None:
    """Its loss is known before it would join: the reading would look for it in vain."""
    new = RoleId("trainer", 2)
    with loaders_of(2, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        expected = local_plan(Loader(ParquetSource(file, SCHEMA), 12))
        with read_remotely(loaders, loader) as reading:
            found = 0
            for lease, _ in loader:
                if lease.index == 3:
                    loaders.start(new)
                    loaders.processes.killed.append(new)
                    loaders.roles.check_alive()
                    assert loader.remote is not None
                    reading._reading.join(new)  # type: ignore[union-attr]  # as after a reply that it could not give
                found += 1
        assert found == len(expected)


def test_a_trainer_whose_join_was_refused_stops_at_once_while_others_read(file: Path) -> None:
    with loaders_of(2, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        with read_remotely(loaders, loader) as reading:
            items = iter(loader)
            next(items)
            refused = RoleId("trainer", 2)
            loaders.start(refused)
            reading.stop_trainer(refused).result(20)
            assert loaders.processes.ended == [refused]
            assert [lease.index for lease, _ in items] == list(range(1, 37))


def test_a_loader_of_the_reading_before_keeps_what_was_handed_out_and_reads_no_further(file: Path) -> None:
    with loaders_of(2, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 4, prefetch=20)
        with read_remotely(loaders, loader) as reading:
            items = iter(loader)
            held = [next(items) for _ in range(12)]
            left = reading.stop_trainer(RoleId("trainer", 0))
            held.append(next(items))
            of_left = [lease for lease, name in held if isinstance(name, BatchName) and name.loader == "trainer 0"]
            assert 0 < len(of_left) < len(held)
            for count in range(len(of_left), 0, -1):
                assert loaders.kept("trainer 0") == count
                loader.done(of_left.pop())
            left.result(20)


def test_the_last_one_that_leaves_reads_until_another_joins(file: Path) -> None:
    with loaders_of(1, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        with read_remotely(loaders, loader) as reading:
            items = iter(loader)
            held = [next(items)]
            left = reading.stop_trainer(RoleId("trainer", 0))
            held.append(next(items))
            assert named(held) == ["trainer 0"] * 2
            newcomer = RoleId("trainer", 1)
            loaders.start(newcomer)
            loaders.roles.trainers.append(newcomer)
            reading.add_trainer(newcomer)
            later = [next(items) for _ in range(6)]
            assert named(later) == ["trainer 1"] * 6
            for lease, _ in held:
                assert not left.done()
                loader.done(lease)
            left.result(20)


def test_a_trainer_that_leaves_before_anything_is_read_goes_on_where_it_is_the_only_reader(file: Path) -> None:
    with loaders_of(1, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        with read_remotely(loaders, loader) as reading:
            left = reading.stop_trainer(RoleId("trainer", 0))
            assert not left.done()
            assert len(list(loader)) == 37
        left.result(20)


def test_a_trainer_that_never_read_leaves_at_once_and_changes_nothing(file: Path) -> None:
    with loaders_of(2, as_trainers=True) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        with read_remotely(loaders, loader) as reading:
            items = iter(loader)
            held: list[tuple[Lease, object]] = [next(items)]
            other = RoleId("trainer", 2)
            loaders.start(other)
            loaders.roles.trainers.append(other)  # it could not prepare the source
            reading.stop_trainer(other).result(20)
            held.append(next(items))
            assert {name.reading for _, name in held if isinstance(name, BatchName)} == {1}


def named(leases: Sequence[tuple[Lease, object]]) -> list[str]:
    return [name.loader for _, name in leases if isinstance(name, BatchName)]


def test_row_groups_that_several_loaders_have_to_read_are_told(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, warnings in ((40, 0), (39, 1)):
        monkeypatch.setattr(reading_module, "ROWS_MOST", most)
        caplog.clear()
        with caplog.at_level("WARNING"), loaders_of(2) as loaders:
            remote_plan(loaders, Loader(ParquetSource(file, SCHEMA), 20), stop=2)
        found = [each.getMessage() for each in caplog.records if "row groups of 40 rows" in each.getMessage()]
        assert len(found) == warnings
        assert all("write them with row_group_size=39 or less" in each for each in found)


@pytest.mark.parametrize("left", [1, 0])
@pytest.mark.parametrize("kind", ["trainer", "loader"])
def test_what_a_lost_role_has_read_is_read_again(file: Path, kind: RoleKind, left: int) -> None:
    """By one that is left, or by this process: batches that are out, and those that were announced."""
    settings: dict[str, Any] = {"batch": 12, "shuffle": 24, "seed": 2}
    expected = local_plan(Loader(ParquetSource(file, SCHEMA), **settings))
    with loaders_of(1 + left, as_trainers=kind == "trainer") as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), **settings)
        lost, found = RoleId(kind, 0), []
        out: list[tuple[Lease, Batch | BatchName]] = []
        with read_remotely(loaders, loader) as reading:
            for lease, name in loader:
                out.append((lease, name))
                if lease.index == 5:
                    loaders.processes.killed.append(lost)
                    loaders.roles.check_alive()
                    there = loaders.roles.trainers if kind == "trainer" else loaders.roles.loaders
                    assert there == [RoleId(kind, 1)][:left]
            assert any(name.loader == lost for _, name in out if isinstance(name, BatchName))
            for lease, each in out:
                batch = reading.current(each) if isinstance(each, BatchName) else each
                assert isinstance(batch, Batch) == (left == 0)
                content = contents(loaders.pull(batch) if isinstance(batch, BatchName) else batch)
                found.append((lease.number, lease.epoch, lease.index, content))
                loader.done(lease)
        assert left == 0 or loaders.kept(f"{kind} 1") == 0, "copies are dropped too"
        assert found == expected
        (loss,) = loaders.roles.losses
        assert loss.counts[f"{kind}s_lost"] == 1
        assert loss.sentence.startswith(f"{kind} 0 is gone: it was killed")


@pytest.mark.parametrize("left", [1, 0])
def test_a_loader_in_place_of_a_lost_one_reads_from_the_next_batch_on(file: Path, left: int) -> None:
    expected = local_plan(Loader(ParquetSource(file, SCHEMA), 12))
    with loaders_of(1 + left) as loaders:
        loader = Loader(ParquetSource(file, SCHEMA), 12)
        found, readers = [], set()
        with read_remotely(loaders, loader) as reading:
            for lease, each in loader:
                batch = reading.current(each) if isinstance(each, BatchName) else each
                readers |= {batch.loader if isinstance(batch, BatchName) else "driver"}
                content = contents(loaders.pull(batch) if isinstance(batch, BatchName) else batch)
                found.append((lease.number, lease.epoch, lease.index, content))
                loader.done(lease)
                if lease.index == 3:
                    loaders.processes.killed.append(RoleId("loader", 0))
                    loaders.roles.check_alive()
                if lease.index == 6:
                    loaders.start(RoleId("loader", 7))
                    loaders.roles.new_loaders.append(RoleId("loader", 7))
                    reading.admit_loaders()
        assert found == expected
        assert readers >= {"loader 7", "loader 1" if left else "driver"}
        assert loaders.roles.loaders == [*[RoleId("loader", 1)][:left], RoleId("loader", 7)]


def test_a_trainer_that_is_lost_while_it_is_waited_for_is_left_out(file: Path) -> None:
    with loaders_of(2, as_trainers=True) as loaders:
        loader = Loader(Endless(file, SCHEMA), 12)
        expected = local_plan(Loader(ParquetSource(file, SCHEMA), 12))
        with read_remotely(loaders, loader) as reading:
            items = iter(loader)
            first = next(items)
            loaders.processes.killed.append(RoleId("trainer", 1))
            found: list[tuple[int, int, int, Any]] = []
            for lease, name in (first, *items):
                assert isinstance(name, BatchName)
                pulled = reading.current(name)
                assert isinstance(pulled, BatchName)
                found.append((lease.number, lease.epoch, lease.index, contents(loaders.pull(pulled))))
        assert found == expected
