"""An embedding worker with caches: gradients count once, nothing stays in use, and a flush leaves no change behind."""

import random

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.cache.client import CachedTables
from hotrow.client import LocalTables
from hotrow.errors import HotrowError, InputError
from hotrow.transport.client import Answer
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.ids import sample_id
from hotrow.transport.messages import OpenCaches, Release, ShardAt
from unit.worker.cached_embedding_core import CACHE, TABLES, Core, shards_of
from unit.worker.embedding_threads import give_gradients, rows_of

SILENT = PeerLost("shard 0", "tcp://127.0.0.1:1", 60.0, "silent")


class Ledger:
    """Rows in float64: with SGD they do not depend on the order of the updates."""

    def __init__(self) -> None:
        self.here = LocalTables({name: table.model_copy(update={"cache": None}) for name, table in TABLES.items()})
        self.moved = {name: np.zeros((20, table.dim)) for name, table in TABLES.items()}

    def add(self, seed: int, grant: int) -> None:
        handle = self.here.lookup(Core.batch(seed), learn=True)
        give_gradients(handle, grant)
        for output in handle.outputs:
            part, gradients = output.part, output.rows.grad
            assert gradients is not None
            flat = gradients.double().numpy()
            if output.mask is not None:
                np.add.at(self.moved[part.table], part.keys, -0.5 * flat[output.mask.numpy()])
            elif part.bounds is None:
                np.add.at(self.moved[part.table], part.keys, -0.5 * flat.reshape(len(part.keys), -1))
            else:
                lengths = np.diff(part.bounds)
                each = flat.reshape(len(lengths), -1).repeat(lengths, 0)
                each /= lengths.repeat(lengths)[:, None] if part.pooling == "mean" else 1
                np.add.at(self.moved[part.table], part.keys, -0.5 * each)

    def check(self, shards: dict, seeds: set[int]) -> None:  # type: ignore[type-arg]
        for seed in seeds:
            self.here.lookup(Core.batch(seed), learn=True)
        for table in TABLES:
            ours = rows_of([each._shard.tables for each in shards.values()], table)
            expected = rows_of([self.here], table).double() + torch.from_numpy(self.moved[table])
            torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def check_idle(core: Core) -> None:
    figures = core.figures()
    assert [figures[name] for name in ("kept", "kept_bytes", "cache_batches.a")] == [0, 0, 0]
    exchanges = core.worker._cached.tables.exchanges  # type: ignore[union-attr]
    assert [len(each) for each in (exchanges.in_flight, exchanges.unread, exchanges.waiting)] == [0, 0, 0]


def failing(*_: object, **__: object) -> None:
    raise InputError("it failed here")


def release(core: Core, *grants: int, dealt_again: bool = False) -> None:
    core.tell(Release(tuple(sample_id(core.number, grant) for grant in grants), dealt_again)).result(0)


def one_read_and_one_in_flight(core: Core) -> Answer:
    """The vectors of the first batch."""
    core.send_ids(1)
    answer = core.pull(1).result(0)
    core.wire.held = True
    core.send_ids(2)
    return answer


def test_gradients_are_applied_once_and_a_flush_brings_them_to_the_shards() -> None:
    shards, ledger = shards_of(), Ledger()
    core = Core(shards)
    for grant in range(1, 9):
        core.send_ids(grant)
        core.send_ids(grant)  # again
        answer = core.pull(grant).result(0)
        first, again = core.push(grant, answer), core.push(grant, answer)
        assert first.result(0).message == again.result(0).message
        ledger.add(grant, grant)
    assert core.figures()["cache_changed.a"] > 0
    flushed = core.flush(1)
    assert flushed.rows > 0
    assert flushed.counts["cache_hits.a"] > 0
    assert flushed.counts["rows_applied_twice"] == 0
    assert core.flush(65).rows == 0
    assert core.figures()["cache_changed.a"] == 0
    ledger.check(shards, set(range(1, 9)))
    check_idle(core)


def test_a_lost_trainer_leaves_no_row_in_use_wherever_its_batches_are() -> None:
    """One batch was read, one is in flight, and of one the ids have not come."""
    shards = shards_of()
    core = Core(shards)
    answer = one_read_and_one_in_flight(core)
    waiting = core.pull(2)
    assert core.figures()["cache_batches.a"] == 2
    release(core, 1, 2, 3)
    with pytest.raises(RemoteFault, match="has dropped sample id 0x2: it was released"):
        waiting.result(0)
    assert core.figures()["cache_batches.a"] == 1, "rows that are on their way have a place"
    core.deliver_all()
    check_idle(core)
    with pytest.raises(RemoteFault, match="has dropped it: it was released"):
        core.push(1, answer).result(0)
    core.send_ids(3)
    core.wire.held = False
    assert core.flush(1).rows == 0
    check_idle(core)


def test_rows_that_a_released_batch_requested_are_those_of_the_next_one() -> None:
    shards = shards_of()
    core = Core(shards)
    core.wire.held = True
    core.send_ids(1, seed=7)
    core.send_ids(2, seed=7)  # its rows are requested already
    release(core, 1)
    waiting = core.pull(2)
    core.deliver_all()
    here = LocalTables({name: table.model_copy(update={"cache": None}) for name, table in TABLES.items()})
    expected = here.lookup(core.batch(7), learn=True)
    for ours, theirs in zip(core.lookup(2, waiting.result(0), 7).outputs, expected.outputs, strict=True):
        torch.testing.assert_close(ours.rows, theirs.rows, rtol=1e-6, atol=1e-6)


def test_replies_that_overtake_others_wait_for_them_without_delaying_anything_else() -> None:
    shards = shards_of()
    core = Core(shards)
    answer = one_read_and_one_in_flight(core)
    core.send_ids(3)
    pulls = [core.pull(grant) for grant in (2, 3)]
    for requests in core.wire.waiting.values():
        requests.rotate(len(requests) // 2)  # those of the third batch come first
    for name in shards:
        for _ in range(len(core.wire.waiting[name]) // 2):
            core.deliver(name)
    assert [pull.done() for pull in pulls] == [False, False]
    assert core.push(1, answer).done() is False  # its table without a cache
    assert core.figures()["cache_changed.a"] > 0
    core.deliver_all()
    assert [pull.done() for pull in pulls] == [True, True]


def test_batches_without_a_message_for_too_long_leave_no_row_in_use() -> None:
    core = Core(shards_of())
    core.send_ids(1)
    core.pull(1).result(0)
    for kept in core.worker._buffers._kept.values():
        kept.touched_s -= 601
    core.worker._sweep()
    assert core.figures()["expired"] == 1
    check_idle(core)


@pytest.mark.parametrize("fault", [SILENT, RemoteFault("lost", "another incarnation", "shard 0")])
def test_a_request_that_fails_fails_its_batch_and_those_after_it_and_names_the_loss(fault: HotrowError) -> None:
    core = Core(shards_of())
    core.wire.held = True
    for grant in (1, 2):
        core.send_ids(grant)
    pulls = [core.pull(grant) for grant in (1, 2)]
    core.deliver("shard 0", fault)
    core.deliver_all()
    for pull in pulls:
        with pytest.raises(RemoteFault, match="the rows of sample id 0x") as told:
            pull.result(0)
        assert told.value.kind == "lost"
    check_idle(core)
    core.send_ids(3)
    core.deliver_all()
    core.pull(3).result(0)


def test_a_shard_without_its_rows_fails_the_batches_in_flight_and_drops_its_cached_rows() -> None:
    cache = hr.Cache(capacity=50, staleness=100)  # nothing is written back before the flush
    tables = {**TABLES, "a": TABLES["a"].model_copy(update={"cache": cache})}
    shards = shards_of(tables)
    core = Core(shards, tables=tables)
    core.send_ids(1)
    core.push(1, core.pull(1).result(0)).result(0)
    core.send_ids(2, seed=3)  # seed 2 has no id of shard 1
    read = core.pull(2).result(0)
    changed = core.figures()["cache_changed.a"]
    core.wire.held = True
    core.send_ids(3)
    waiting = core.pull(3)
    core.tell(ShardAt("shard 1", "tcp://127.0.0.1:1", 2)).result(0)
    with pytest.raises(RemoteFault, match="was started again, and has lost rows that were cached"):
        waiting.result(0)
    figures = core.figures()
    assert 0 < figures["cache_dropped.a"] < changed
    shards["shard 1"]._shard.incarnation = 2
    core.deliver_all()
    core.wire.held = False
    core.push(2, read, seed=3).result(0)  # it was read before: what it has of the other shard counts
    assert core.figures()["cache_dropped.a"] > figures["cache_dropped.a"]
    core.flush(1)
    assert core.figures()["cache_changed.a"] == 0
    check_idle(core)


def test_a_mode_that_begins_empties_the_caches_and_drops_the_batches_of_the_one_before() -> None:
    core = Core(shards_of())
    core.send_ids(1)
    core.push(1, core.pull(1).result(0)).result(0)
    core.send_ids(2)
    answer = core.pull(2).result(0)
    core.wire.held = True
    core.send_ids(3)
    waiting = core.pull(3)
    core.tell(OpenCaches(5, 3)).result(0)
    figures = core.figures()
    assert [figures[f"cache_{name}.a"] for name in ("rows", "changed", "workers")] == [0, 0, 3]
    with pytest.raises(RemoteFault, match="has dropped sample id 0x3: its mode has ended"):
        waiting.result(0)
    core.deliver_all()  # replies of the mode before
    check_idle(core)
    with pytest.raises(RemoteFault, match="has dropped it: its mode has ended"):
        core.push(2, answer).result(0)
    core.wire.held = False
    core.send_ids(4)
    core.push(4, core.pull(4).result(0)).result(0)
    rows = core.figures()["cache_rows.a"]
    core.tell(OpenCaches(5, 3)).result(0)  # again
    assert core.figures()["cache_rows.a"] == rows > 0


def test_batches_that_are_dealt_again_are_counted_where_their_gradients_are_in_a_cache() -> None:
    core = Core(shards_of())
    for grant in (1, 2):
        core.send_ids(grant)
    core.push(1, core.pull(1).result(0)).result(0)
    release(core, 1, 2, 9, dealt_again=True)
    release(core, 1)
    assert core.flush(1).counts["rows_applied_twice"] == 1
    assert core.flush(65).counts["rows_applied_twice"] == 0
    check_idle(core)


def test_batches_dealt_again_are_told_by_the_next_flush_where_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(shards_of())
    core.send_ids(1)
    core.push(1, core.pull(1).result(0)).result(0)
    release(core, 1, dealt_again=True)
    with monkeypatch.context() as patched:
        patched.setattr(CachedTables, "flush", failing)
        with pytest.raises(RemoteFault, match="it failed here"):
            core.flush(1)
    assert core.flush(65).counts["rows_applied_twice"] == 1
    assert core.flush(129).counts["rows_applied_twice"] == 0


def test_gradients_that_fail_half_way_leave_no_row_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first table are applied, and its rows are released already."""
    tables = {name: table.model_copy(update={"cache": CACHE}) for name, table in TABLES.items()}
    core = Core(shards_of(tables), tables=tables)
    core.send_ids(1)
    answer = core.pull(1).result(0)
    with monkeypatch.context() as patched:
        patched.setattr(core.worker._cached.tables.caches["b"], "apply", failing)  # type: ignore[union-attr]
        with pytest.raises(RemoteFault, match="it failed here"):
            core.push(1, answer).result(0)
    assert core.figures()["cache_changed.a"] > 0
    assert core.figures()["cache_batches.b"] == 0
    check_idle(core)
    with pytest.raises(RemoteFault, match="it failed here"):
        core.push(1, answer).result(0)


@pytest.mark.parametrize("seed", range(8))
def test_every_gradient_reaches_the_shards_whatever_is_lost_late_or_doubled(seed: int) -> None:
    """Two embedding workers; their trainers pull, push, push again and vanish."""
    chance, shards, ledger = random.Random(seed), shards_of(), Ledger()
    cores = [Core(shards, number) for number in range(2)]
    flying: list[dict[int, Answer | None]] = [{}, {}]  # by grant, vectors that a trainer has
    seeds: set[int] = set()
    for core in cores:
        core.wire.held, core.wire.twice = True, True
    for grant in range(1, 40):
        number = chance.randrange(2)
        core, mine = cores[number], flying[number]
        core.send_ids(grant)
        seeds.add(grant)
        mine[grant] = None
        for _ in range(chance.randrange(6)):
            name = chance.choice(list(shards))
            if core.wire.waiting.get(name):
                core.deliver(name)
        for each in [each for each in mine if chance.random() < 0.4]:
            if chance.random() < 0.3:
                core.deliver_all()
            pull = core.pull(each)
            if chance.random() < 0.25:  # its trainer is lost
                release(core, each)
                del mine[each]
            elif pull.done():
                core.push(each, pull.result(0))
                if chance.random() < 0.3:
                    core.push(each, pull.result(0))
                ledger.add(each, each)
                del mine[each]
    for number, core in enumerate(cores):
        core.deliver_all()
        release(core, *flying[number])
        core.wire.held = False
        core.flush(1 + 640 * number)
        check_idle(core)
    ledger.check(shards, seeds)
