"""Hints bring rows of a shard from disk into memory, within their bound, and change no result."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hotrow as hr
from hotrow.errors import DiskError, InputError
from hotrow.server.shard import Shard
from hotrow.store.arrays import Flags, Keys
from hotrow.store.rows import Rows
from hotrow.store.tiered import TieredTier
from hotrow.transport.frames import RowBlock, pack
from hotrow.transport.messages import Arrival, LoadAhead, Query, QueryReply
from unit.server.asked_shard import exchange, pull_of, push_of, serving

U64 = NDArray[np.uint64]
KEYS, MEMORY, BATCH, WAIT_S = 600, 200, 40, 20.0


def shard_of(folder: Path | None) -> Shard:
    """Of 600 rows, memory has room for 200; without a folder for all."""
    disk = {} if folder is None else {"capacity": MEMORY, "disk": "4MB", "path": folder}
    first = hr.Table(dim=2, optimizer=hr.Adagrad(lr=0.5), init=hr.Normal(std=0.1), seed=3, **disk)
    return Shard({"first": first, "second": hr.Table(dim=3)}, number=0, shards=1)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with closing(shard_of(tmp_path)) as made:
        for first in range(0, KEYS, BATCH):
            step(made, np.arange(first, first + BATCH, dtype=np.uint64), first)
        yield made


def tier_of(shard: Shard) -> TieredTier:
    tier = shard.tables.tiers["first"]
    assert isinstance(tier, TieredTier)
    return tier


def hint(keys: U64, table: str = "first") -> list[RowBlock]:
    return [RowBlock(table, keys=keys, dim=2)]


def step(shard: Shard, keys: U64, grant: int) -> list[float]:
    """Look rows up and update them, as a batch does; returns the values that it saw."""
    pull, _ = pull_of(keys.tolist())
    values = shard.pull(pull, hint(keys)).blocks[0].values
    push, _ = push_of(grant + 1, keys.tolist(), arrival=Arrival(0, 1.0, 1.0))
    gradients = np.sin(keys[:, None] * np.array([1.0, 2.0]) + grant).astype(np.float32)
    shard.exchange(push, [RowBlock("first", keys=keys, values=gradients)], None, [])
    return np.asarray(values).ravel().tolist()


def test_rows_that_were_announced_are_in_memory_when_the_lookup_comes(shard: Shard) -> None:
    before, keys = tier_of(shard).stats(), np.arange(BATCH, dtype=np.uint64)
    shard.load_ahead(hint(keys))
    assert shard.rows_ahead.wait(WAIT_S)
    loaded = tier_of(shard).stats()
    assert loaded.moved_ahead - before.moved_ahead == BATCH
    assert (loaded.hinted, loaded.hints_dropped, shard.counts["hints"]) == (BATCH, 0, 1)
    step(shard, keys, 9_000)
    after = tier_of(shard).stats()
    assert (after.moved_up, after.moved_late) == (loaded.moved_up, before.moved_late)


def test_rows_that_were_not_announced_are_waited_for(shard: Shard) -> None:
    before = tier_of(shard).stats()
    step(shard, np.arange(BATCH, dtype=np.uint64), 9_000)
    after = tier_of(shard).stats()
    assert (after.moved_late - before.moved_late, after.moved_ahead) == (BATCH, 0)


@pytest.mark.parametrize("how", ["on time", "twice", "late", "dropped", "with strangers"])
def test_results_have_the_same_bits_however_hints_come(how: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    batches = [np.unique(draw.integers(0, KEYS, BATCH)).astype(np.uint64) for _ in range(120)]

    def seen(shard: Shard, *, hints: bool) -> list[list[float]]:
        found = []
        for number, keys in enumerate(batches):
            ahead = batches[min(number + 2, len(batches) - 1)]
            if hints and how != "late" and not (how == "dropped" and number % 3):
                for _ in range(2 if how == "twice" else 1):
                    more = np.arange(KEYS, KEYS + 50, dtype=np.uint64) if how == "with strangers" else ahead[:0]
                    shard.load_ahead(hint(np.concatenate([ahead, more])))
                if number % 2:
                    shard.rows_ahead.wait(WAIT_S)
            found.append(step(shard, keys, number))
            if hints and how == "late":
                shard.load_ahead(hint(keys))
        return found

    with closing(shard_of(tmp_path)) as tiered, closing(shard_of(None)) as memory:
        assert seen(tiered, hints=True) == seen(memory, hints=False)
        assert shard_rows(tiered) == shard_rows(memory)
        assert tier_of(tiered).stats().hinted > 0
        assert tier_of(tiered).verify() == []


def shard_rows(shard: Shard) -> dict[int, bytes]:
    return {
        int(key): b"".join(
            np.array(each[at]).tobytes() for each in (chunk.values, chunk.state, chunk.fields["version"])
        )
        for chunk in shard.tables.tiers["first"].export()
        for at, key in enumerate(chunk.keys)
    }


def test_as_many_ids_wait_as_memory_has_rows_and_then_the_oldest_go(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, keys = tier_of(shard), np.arange(KEYS, dtype=np.uint64)
    begun, go_on, loaded = threading.Event(), threading.Event(), []

    def load(given: Keys) -> int:
        loaded.append(given.tolist())
        begun.set()
        assert go_on.wait(WAIT_S)
        return 0

    monkeypatch.setattr(tier, "load_ahead", load)
    shard.load_ahead(hint(keys[:3]))
    assert begun.wait(WAIT_S)  # these do not wait any more
    first, second, last = keys[: MEMORY - 60], keys[300:359], keys[400:401]
    for each in (first, second, last):
        shard.load_ahead(hint(each))
    assert tier.hints_dropped == 0
    shard.load_ahead(hint(keys[500:501]))
    assert tier.hints_dropped == len(first)
    go_on.set()
    assert shard.rows_ahead.wait(WAIT_S)
    assert loaded == [[0, 1, 2], [500], [400], second.tolist()]  # the newest first
    shard.load_ahead(hint(keys[: MEMORY + 5]))  # of a hint that is larger, what may wait is taken
    assert shard.rows_ahead.wait(WAIT_S)
    assert tier.hints_dropped == len(first) + 5
    assert loaded[-1] == list(range(MEMORY))


def test_lookups_are_answered_while_rows_are_read_ahead(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = tier_of(shard)
    read, reading, go_on = tier.disk.read, threading.Event(), threading.Event()

    def slow(keys: Keys, *, shadowed: bool = True) -> tuple[Rows, Flags]:
        if threading.current_thread() is not threading.main_thread():
            reading.set()
            assert go_on.wait(WAIT_S)
        return read(keys, shadowed=shadowed)

    monkeypatch.setattr(tier.disk, "read", slow)
    keys = np.arange(BATCH, dtype=np.uint64)
    shard.load_ahead(hint(keys))
    assert reading.wait(WAIT_S)
    step(shard, keys, 9_000)  # the same rows: it reads them itself, and what comes later does not replace them
    seen = shard_rows(shard)
    go_on.set()
    assert shard.rows_ahead.wait(WAIT_S)
    assert shard_rows(shard) == seen
    assert tier.stats().moved_ahead == 0


def test_a_fault_of_the_disk_is_left_to_the_lookup(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(keys: Keys, *, shadowed: bool = True) -> tuple[Rows, Flags]:
        raise DiskError("row 3 is damaged")

    keys = np.arange(BATCH, dtype=np.uint64)
    monkeypatch.setattr(tier_of(shard).disk, "read", damaged)
    shard.load_ahead(hint(keys))
    assert shard.rows_ahead.wait(WAIT_S)
    with pytest.raises(DiskError, match="row 3 is damaged"):
        step(shard, keys, 9_000)
    monkeypatch.undo()
    shard.load_ahead(hint(keys))
    assert shard.rows_ahead.wait(WAIT_S)
    assert tier_of(shard).stats().moved_ahead == BATCH


def test_tables_in_memory_ignore_hints_and_wrong_ones_are_refused(shard: Shard, tmp_path: Path) -> None:
    shard.load_ahead(hint(np.arange(5, dtype=np.uint64), "second"))
    with pytest.raises(InputError, match="table 'third' is missing"):
        shard.load_ahead(hint(np.arange(5, dtype=np.uint64), "third"))
    with pytest.raises(InputError, match="ids of table 'first' are missing"):
        shard.load_ahead([RowBlock("first", dim=2)])
    assert shard.counts["hints"] == 1
    table = hr.Table(dim=2, capacity=64, disk="4MB", path=tmp_path)
    with (
        closing(Shard({"first": table}, number=1, shards=4)) as quarter,
        pytest.raises(InputError, match="do not belong to shard 1 of 4"),
    ):
        quarter.load_ahead(hint(np.arange(64, dtype=np.uint64)))


def test_a_shard_that_is_closed_drops_what_waits(tmp_path: Path) -> None:
    shard = shard_of(tmp_path)
    tier = tier_of(shard)
    for first in range(0, KEYS, BATCH):
        step(shard, np.arange(first, first + BATCH, dtype=np.uint64), first)
    with tier._lock:
        for first in range(0, MEMORY, 20):
            shard.load_ahead(hint(np.arange(first, first + 20, dtype=np.uint64)))
    shard.close()
    dropped = tier.hints_dropped
    shard.rows_ahead.add("first", np.arange(3, dtype=np.uint64))
    assert tier.hints_dropped == dropped + 3


def test_a_cleared_table_gets_no_row_of_a_hint(shard: Shard) -> None:
    tier = tier_of(shard)
    for _ in range(20):
        shard.load_ahead(hint(np.arange(BATCH, dtype=np.uint64)))
        tier.clear()
        assert shard.rows_ahead.wait(WAIT_S)
        assert len(tier) == 0
        for first in range(0, KEYS, BATCH):
            tier.find_or_init(np.arange(first, first + BATCH, dtype=np.uint64))


def test_a_hint_arrives_behind_a_socket_and_is_counted(shard: Shard) -> None:
    keys = np.arange(BATCH, dtype=np.uint64)
    with serving(shard) as asked:
        exchange(asked, None, pull_of([1])).result(WAIT_S)
        blocks, frames = pack(hint(keys), "fp32")
        for wrong in (LoadAhead(blocks[:0]), LoadAhead(blocks)):
            asked.wire.send_one_way("shard", wrong, [b"too short"])
        asked.wire.send_one_way("shard", Query("status"))
        asked.wire.send_one_way("shard", LoadAhead(blocks), frames)
        told = asked.answer(Query("status"))
        assert isinstance(told, QueryReply)
        assert (told.figures["hints"], told.figures["wire.one_way"]) == (1, 4)
        assert told.figures["wire.refused_one_way"] == 3
        assert shard.rows_ahead.wait(WAIT_S)
        assert tier_of(shard).stats().moved_ahead == BATCH - 1  # one was looked up
