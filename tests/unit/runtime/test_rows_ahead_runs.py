"""On a cluster, rows on disk come into memory ahead of their lookups, whoever reads, and steps are the same."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hotrow as hr
from hotrow.client.row_hints import RowHints, hinted_tables
from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.modes import Async, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.state import RunState
from hotrow.transport.client import RpcClient
from unit.runtime.cluster_threads import SAMPLES, cluster
from unit.runtime.loader_threads import SCHEMA as ROW_SCHEMA
from unit.runtime.loader_threads import Loaders, loaders_of, read_remotely, table
from unit.runtime.test_trainers_that_read import SCHEMA

ROWS, IDS = 40 * 2 * SAMPLES, 400


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = np.random.default_rng(4)
    columns = {name: pa.array(chance.integers(0, IDS, ROWS)) for name in "ab"}
    columns["h"] = pa.array([chance.integers(0, IDS, length).tolist() for length in chance.integers(0, 4, ROWS)])
    columns |= {f"x{place}": pa.array(chance.normal(size=ROWS).astype(np.float32)) for place in range(3)}
    columns |= {"y": pa.array(chance.integers(0, 2, ROWS)), "w": pa.array(chance.random(ROWS))}
    path = tmp_path_factory.mktemp("data") / "x.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=32)
    return path


def table_of(folder: Path) -> dict[str, hr.Table]:
    """Memory has room for 256 rows of 400, in two shards."""
    return {"t": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05), capacity=256, disk="4MB", path=folder)}


def trained(
    file: Path, folder: Path, mode: Mode, *, remote: bool, hints: bool, trainers: int = 1, embedding_workers: int = 0
) -> tuple[list[float], dict[str, int]]:
    """The losses of all steps, and what the shards and the senders have counted."""
    loader = Loader(ParquetSource(file, SCHEMA), SAMPLES, epochs=2)
    loader.held, state = None, RunState()
    found: list[float] = []
    with cluster(state, trainers, embedding_workers, tables=table_of(folder)) as made, ExitStack() as stack:
        if remote:
            if not hints:
                made.site._reading = ReadingRoles(made.roles)
            loader.remote = stack.enter_context(made.site.reading(loader))
        elif hints:
            loader.load_rows = made.site.row_prefetch
        loop = TrainingLoop(made.site, state, mode=mode, facts=RunFacts(trainers, SAMPLES, 2 * SAMPLES))
        leases = LeaseQueue(iter(loader), loader.done)
        while leases.open_epoch() is not None:
            found += [
                sum(float(each.loss) * len(each.batch) for each in stepped.batches) / stepped.samples
                for stepped in loop.steps(leases, state.step)
            ]
        loop.close()
        for shard in made.cores:
            assert shard.rows_ahead.wait(20)
        stats = made.site.tables.tiers["t"].stats()
        sent = sum(int(made.figures(name)["hints"]) for name in made.addresses)
        counts = {"sent": sent, "came": sum(shard.counts["hints"] for shard in made.cores)}
        return found, counts | {"ahead": stats.moved_ahead, "late": stats.moved_late, "ids": stats.hinted}


@pytest.mark.parametrize("embedding_workers", [0, 1])
@pytest.mark.parametrize("remote", [True, False], ids=["trainers read", "driver reads"])
def test_steps_are_the_same_with_and_without_hints(
    file: Path, tmp_path: Path, remote: bool, embedding_workers: int
) -> None:
    run: Callable[..., Any] = trained
    settings = {"remote": remote, "embedding_workers": embedding_workers}
    with_hints, counts = run(file, tmp_path, Sync(), hints=True, **settings)
    without, none = run(file, tmp_path, Sync(), hints=False, **settings)
    assert with_hints == without
    assert counts["came"] > 0
    assert counts["ahead"] > 0
    assert counts["ids"] > 0
    assert (none["came"], none["ahead"], none["sent"], none["ids"]) == (0, 0, 0, 0)
    assert none["late"] > 0
    if remote:
        assert counts["sent"] == counts["came"] <= 2 * (2 * ROWS // SAMPLES)


def test_hints_of_several_trainers_come_for_every_batch(file: Path, tmp_path: Path) -> None:
    _, counts = trained(file, tmp_path, Async(), remote=True, hints=True, trainers=2)
    batches, shards = 2 * ROWS // SAMPLES, 2
    assert counts["sent"] == counts["came"] == batches * shards


def test_only_tables_with_a_disk_and_without_a_cache_are_announced(tmp_path: Path) -> None:
    disk = {"capacity": 64, "disk": "4MB", "path": tmp_path}
    tables = {
        "memory": hr.Table(dim=2),
        "disk": hr.Table(dim=2, **disk),
        "cached": hr.Table(dim=2, cache=hr.Cache(capacity=64), **disk),
    }
    assert list(hinted_tables(tables)) == ["disk"]


def announced(loaders: Loaders, loader: Loader, *, stop: int) -> list[tuple[int, int]]:
    """What a loader is told until so many batches were handed out: epoch and index."""
    found: list[tuple[int, int]] = []
    reading = ReadingRoles(loaders.roles, loads_ahead=True)
    tell = loaders.wire.send_one_way

    def heard(name: str, message: Any, frames: Any = ()) -> None:
        found.append((message.epoch, message.index))
        tell(name, message, frames)

    loaders.wire.send_one_way = heard  # type: ignore[method-assign]
    with reading.prepared(loader) as loader.remote:
        items = iter(loader)
        for _, (lease, _) in zip(range(stop), items, strict=False):
            loader.done(lease)
        items.close()
    loader.remote = None
    return found


def test_the_window_is_the_prefetch_and_a_batch_for_each_trainer(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(table(), path)
    loader = Loader(ParquetSource(path, ROW_SCHEMA), 100, epochs=2, prefetch=3)
    with loaders_of(1, as_trainers=True) as loaders:
        assert announced(loaders, loader, stop=7) == [
            (0, 3),  # at the start: 3 + 1 batches
            *((0, index + 4) for index in range(5)),
            (1, 3),
            (1, 4),
            (1, 5),
        ]
    with loaders_of(1, as_trainers=True) as loaders, read_remotely(loaders, loader):
        told: list[Any] = []
        loaders.wire.send_one_way = lambda *given: told.append(given)  # type: ignore[method-assign]
        assert next(iter(loader))
        assert told == []  # no table has rows on disk


def test_hints_of_a_client_that_is_closed_are_left_out(tmp_path: Path, file: Path) -> None:
    _, batch = next(iter(Loader(ParquetSource(file, SCHEMA), SAMPLES)))
    wire = RpcClient(security="off")
    hints = RowHints(table_of(tmp_path), wire, ["shard 0"], threads=1)
    wire.close()
    hints.send(batch)
    assert hints.sent == 0
