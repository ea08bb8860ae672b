"""Shards read their own part of a checkpoint: any number of them, the same bits, nothing half loaded."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.checkpoint import Saved, SavedCheckpoint, write_checkpoint
from hotrow.checkpoint.manifest import Base
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.row_loader import LocalRowLoader, RowLoader
from hotrow.checkpoint.table_fitting import OurTable, table_plan
from hotrow.client.shard_table import ShardTable
from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.runtime.cluster.remote_cut import remote_cut
from hotrow.runtime.cluster.remote_load import RemoteRowLoader
from hotrow.runtime.cluster.roles import Roles
from hotrow.server.loading import restore_rows
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.store import RamTier
from hotrow.store.shards import shard_of
from hotrow.store.tiers import named_tables
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import TrackChanges
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId

TABLES = {
    "plain": hr.Table(dim=3, optimizer=hr.Adam(lr=0.1), clock=True),
    "lru": hr.Table(dim=2, capacity=4_000, optimizer=hr.Adagrad(lr=0.1), expiry=1_000_000),
    "counted": hr.Table(dim=1, admission=hr.AtLeast(count=3)),
}
FILTERED = {"t": hr.Table(dim=1, admission=hr.AtLeast(count=3, filter=65_536))}
SAVED = Saved({"step": 7, "samples": 700}, None, {})
Content = dict[str, dict[int, tuple[bytes, ...]]]


@dataclass(slots=True, eq=False)
class Shards:
    """Shards behind real sockets."""

    cores: list[Shard]
    roles: Roles
    loader: RemoteRowLoader
    tables: Mapping[str, Table]

    def train(self, seed: int, rows: int = 300, ids: int = 900) -> None:
        """The same ids whatever the number of shards."""
        rng = np.random.default_rng(seed)
        for name in self.tables:
            keys = np.unique(rng.integers(0, ids, rows).astype(np.uint64))
            for number, core in enumerate(self.cores):
                tier, mine = core.tables.tiers[name], keys[shard_of(keys, len(self.cores)) == number]
                plan = tier.find_or_init(mine, samples=100 * seed)
                gradients = np.repeat((mine % 7).astype(np.float32)[:, None], tier.dim, 1)
                tier.apply(plan, gradients, step=seed, samples=100 * seed)

    def track_changes(self) -> None:
        for each in self.roles.request_all(self.roles.shards, TrackChanges()):
            each.result(20)

    def save(self, folder: Path, base: Base | None = None) -> Base:
        cut = remote_cut(self.roles, self.tables, Place.of(folder), delta=base is not None)
        assert cut is not None
        link = write_checkpoint(Place.of(folder), None, cut, SAVED, base=base, keep=9)
        return Base(number=link.manifest.number, digest=link.digest)

    def tiers(self) -> dict[str, list[RamTier]]:
        return {name: [core.tables.tiers[name] for core in self.cores] for name in self.tables}


class Threads:
    """Shards that are threads of this process: none is lost, and they end with the test."""

    def lost(self) -> dict[RoleId, str]:
        return {}

    def release(self, name: RoleId) -> None: ...

    def end(self, name: RoleId) -> None: ...


@contextmanager
def served(count: int, tables: Mapping[str, Table] = TABLES) -> Iterator[Shards]:
    with ExitStack() as stack:
        wire = stack.enter_context(RpcClient(security="off"))
        names = [RoleId("shard", number) for number in range(count)]
        cores = []
        for number, name in enumerate(names):
            server = stack.enter_context(RpcServer(security="off"))
            core = Shard(tables, number=number, shards=count)
            stack.callback(core.close)
            thread = threading.Thread(target=ShardServer(core, server).serve)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            wire.connect(name, server.address)
            cores.append(core)
        roles = Roles(wire, names, [], Threads())
        specs = named_tables(tables)
        loader = RemoteRowLoader(roles, {name: ShardTable(table, wire, names) for name, table in specs.items()})
        yield Shards(cores, roles, loader, specs)


def content(tiers: Mapping[str, list[RamTier]]) -> Content:
    """Every row by table and key, all its bits."""
    found: Content = {name: {} for name in tiers}
    for name, parts in tiers.items():
        for chunk in (chunk for tier in parts for chunk in tier.export()):
            for at, key in enumerate(chunk.keys.tolist()):
                fields = (column[at].tobytes() for column in chunk.fields.values())
                found[name][key] = chunk.values[at].tobytes(), chunk.state[at].tobytes(), *fields
    return found


def waiting(tiers: list[RamTier]) -> dict[int, int]:
    found: dict[int, int] = {}
    for tier in tiers:
        with tier.begin_cut() as cut:
            for keys, counts in cut.waiting():
                found |= dict(zip(keys.tolist(), counts.tolist(), strict=True))
    return found


def load(loader: RowLoader, folder: Path) -> None:
    found = SavedCheckpoint.open(folder)
    loader.verify(found, lambda _: None)
    plans = {
        name: table_plan(name, found.table(name), OurTable(tier.table, tier.fields, 0))
        for name, tier in loader.tiers.items()
    }
    loader.load(found, plans, lambda: None)


def test_two_shards_three_shards_and_one_process_have_the_same_rows_and_counts(tmp_path: Path) -> None:
    with served(2) as two, served(3) as three:
        two.track_changes()
        two.train(1)
        base = two.save(tmp_path / "two")
        two.train(2)
        two.cores[0].tables.tiers["plain"].erase(np.arange(50, dtype=np.uint64))
        base = two.save(tmp_path / "two", base)
        two.train(3, ids=1_200)
        two.save(tmp_path / "two", base)
        saved, counted = content(two.tiers()), waiting(two.tiers()["counted"])
        assert [link.manifest.kind for link in SavedCheckpoint.open(tmp_path / "two").chain] == ["full"] + 2 * ["delta"]
        assert counted
        three.train(9)  # rows that the load removes
        load(three.loader, tmp_path / "two")
        assert content(three.tiers()) == saved
        assert waiting(three.tiers()["counted"]) == counted
        three.save(tmp_path / "three")
    local = {name: RamTier(table) for name, table in named_tables(TABLES).items()}
    load(LocalRowLoader(local), tmp_path / "three")
    assert content({name: [tier] for name, tier in local.items()}) == saved
    assert waiting([local["counted"]]) == counted


def test_as_many_shards_get_eviction_order_filters_and_clocks_back(tmp_path: Path) -> None:
    tables = {**FILTERED, "lru": hr.Table(dim=1, capacity=200, eviction="lru", expiry=50_000)}
    with served(2, tables) as left, served(2, tables) as right:
        for turn in range(1, 4):
            left.train(turn)
        left.save(tmp_path)
        load(right.loader, tmp_path)
        for mine, theirs in zip(left.cores, right.cores, strict=True):
            orders = [
                [tier.eviction_order(partition).tolist() for partition in range(tier.partitions)]
                for tier in (mine.tables.tiers["lru"], theirs.tables.tiers["lru"])
            ]
            assert orders[0] == orders[1]
            assert mine.tables.tiers["lru"].samples == theirs.tables.tiers["lru"].samples
        for each in (left, right):
            each.train(5)
        assert content(left.tiers())["t"].keys() == content(right.tiers())["t"].keys()


def test_a_shard_that_starts_alone_restores_its_own_rows(tmp_path: Path) -> None:
    with served(2) as two:
        two.train(1)
        two.save(tmp_path)
        for number in range(2):
            alone = Shard(TABLES, number=number, shards=2)
            restored = restore_rows(alone, tmp_path)
            mine = {name: [parts[number]] for name, parts in two.tiers().items()}
            assert content({name: [tier] for name, tier in alone.tables.tiers.items()}) == content(mine)
            assert (restored.step, restored.samples, restored.checkpoint) == (7, 700, 1)
            assert restored.rows == sum(len(tier) for tier in alone.tables.tiers.values())
            alone.close()


@pytest.mark.parametrize("by_driver", [False, True])
def test_a_shard_reserves_the_index_of_its_own_rows(
    by_driver: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its start, and where the driver asks for a load: of all rows it would be four times as large."""
    tables = {"t": hr.Table(dim=1)}
    with served(4, tables) as four:
        keys = np.arange(40_000, dtype=np.uint64)
        for number, core in enumerate(four.cores):
            mine = keys[shard_of(keys, 4) == number]
            core.tables.tiers["t"].put(mine, np.zeros((len(mine), 1), np.float32))
        four.save(tmp_path)
    reserved: dict[RamTier, int] = {}
    reserve = RamTier.reserve

    def record(tier: RamTier, rows: int) -> None:
        reserved[tier] = rows
        reserve(tier, rows)

    monkeypatch.setattr(RamTier, "reserve", record)
    with served(4, tables) as again:
        if by_driver:
            load(again.loader, tmp_path)
        else:
            for core in again.cores:
                restore_rows(core, tmp_path)
        (tiers,) = again.tiers().values()
        assert sum(map(len, tiers)) == 40_000
        assert reserved.keys() == set(tiers)
        for tier, rows in reserved.items():
            assert len(tier) <= rows <= 1.1 * len(tier)


def test_a_shard_reads_its_own_file_alone(tmp_path: Path) -> None:
    with served(2) as two:
        two.train(1)
        two.save(tmp_path)
    for file in tmp_path.rglob("1-of-2.arrow"):
        file.write_bytes(bytes(file.stat().st_size))
    restored = Shard(TABLES, number=0, shards=2)
    assert restore_rows(restored, tmp_path).rows > 0
    other = Shard(TABLES, number=1, shards=2)
    with pytest.raises(InputError, match=r"shard 1 cannot restore its rows from .*1-of-2.*was changed since"):
        restore_rows(other, tmp_path)
    assert not any(len(tier) for tier in other.tables.tiers.values())
    for each in (restored, other):
        each.close()


@pytest.mark.parametrize("shards", [2, 3])
def test_a_damaged_file_is_named_before_any_shard_changes(shards: int, tmp_path: Path) -> None:
    with served(2) as two:
        two.train(1)
        two.save(tmp_path)
    [damaged] = tmp_path.rglob("tables/1/1-of-2.arrow")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    with served(shards) as other:
        other.train(4)
        before = content(other.tiers())
        with pytest.raises(InputError, match=r"shard 1.*tables/1/1-of-2\.arrow was changed since it was saved"):
            load(other.loader, tmp_path)
        assert content(other.tiers()) == before


def test_a_checkpoint_that_a_shard_cannot_see_is_read_by_the_driver_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(2) as two, served(3) as three:
        two.train(1)
        two.save(tmp_path)
        monkeypatch.setattr("hotrow.server.loading._same_checkpoint", lambda _: None)
        three.train(9)
        assert waiting(three.tiers()["counted"])
        load(three.loader, tmp_path)
        assert content(three.tiers()) == content(two.tiers())
        assert not waiting(three.tiers()["counted"])
    [line] = [record.getMessage() for record in caplog.records if "cannot be read from there" in record.getMessage()]
    assert line.startswith("shard 0, shard 1, shard 2: checkpoint ")
    assert str(tmp_path) in line
    assert "a folder that all hosts share" in line


def test_files_of_another_shard_under_this_ones_name_are_refused(tmp_path: Path) -> None:
    with served(2) as two:
        two.train(1)
        two.save(tmp_path)
    found = SavedCheckpoint.open(tmp_path)
    facts = found.manifest.tables["plain"]
    swapped = facts.model_copy(update={"shards": facts.shards[::-1]})
    document = found.manifest.model_copy(update={"tables": {**found.manifest.tables, "plain": swapped}})
    (tmp_path / "000001" / "manifest.json").write_bytes(document.encoded())
    shard = Shard(TABLES, number=0, shards=2)
    with pytest.raises(InputError, match="keys that are not of shard 0 of 2: files were moved or copied by hand"):
        restore_rows(shard, tmp_path)
    shard.close()


def test_a_place_that_is_not_there_is_named_with_a_remedy(tmp_path: Path) -> None:
    shard = Shard(TABLES, number=0, shards=2)
    with pytest.raises(InputError, match=r"shard 0 cannot restore its rows from .*none.*a folder that all hosts share"):
        restore_rows(shard, tmp_path / "none")
    shard.close()


def test_loads_and_saves_may_follow_each_other_at_once(tmp_path: Path) -> None:
    tables = {"t": hr.Table(dim=1)}
    with served(2, tables) as two:
        two.track_changes()
        two.train(1)
        base = two.save(tmp_path)
        for turn in range(10):  # a thread that has replied has ended, whatever else the machine does
            load(two.loader, tmp_path)
            two.train(turn)
            base = two.save(tmp_path, base)
        assert SavedCheckpoint.open(tmp_path).manifest.number == 11
