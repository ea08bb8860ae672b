"""Exact look-ahead on a cluster with one trainer: the bits of Sync, whatever its tables do, and rows come early."""

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.config import Table
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.server.look_ahead import LookAheadReads
from hotrow.server.shard import Shard
from hotrow.server.step_window import StepWindow
from hotrow.store import RamTier
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster

TABLES = {
    "adagrad": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05)),
    "adam, halves": hr.Table(dim=4, optimizer=hr.Adam(lr=0.01), type="float16"),
    "swap": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05, swap=hr.Swap(period=20, decay=0.5))),
    "lru": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05), capacity=44),
    "lfu": hr.Table(dim=4, optimizer=hr.SGD(lr=0.5), capacity=44, eviction="lfu"),
    "admission": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05), admission=hr.AtLeast(count=3), default=0.25),
    "expiry": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05), expiry=40),
}


def run(
    table: Table,
    mode: Mode,
    *,
    share: int = 1,
    embedding_workers: int = 0,
    count: int = 21,
    meanwhile: Callable[[Cluster, TrainingLoop, int], None] = lambda there, loop, step: None,
) -> tuple[list[float], list[dict[str, Any]]]:
    """Losses of all batches, and all rows after them."""
    state = RunState(schedule=lambda samples: 1.0 / (1 + samples / 100))
    losses: list[float] = []
    with cluster(state, 1, embedding_workers, tables={"t": table}) as there:
        loop = TrainingLoop(there.site, state, mode=mode, facts=RunFacts(1, SAMPLES, share * SAMPLES))
        pool = LeaseQueue(batches(count))
        pool.open_epoch()
        for number, step in enumerate(loop.steps(pool, 0)):
            losses += [float(each.loss) for each in step.batches]
            meanwhile(there, loop, number)
        loop.rest()
        losses += [float(each.loss) for step in loop.take_steps() for each in step.batches]
        loop.close()
        assert all(not core.parked.nbytes for core in there.cores)
        return losses, [rows_of(core.tables.tiers["t"]) for core in there.cores]


def rows_of(tier: RamTier) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for chunk in tier.export():
        order = np.argsort(chunk.keys)
        rows |= {"keys": chunk.keys[order], "values": chunk.values[order], "state": chunk.state[order]}
        rows |= {name: column[order] for name, column in chunk.fields.items()}
    return rows


def assert_same(
    ours: tuple[list[float], list[dict[str, Any]]], theirs: tuple[list[float], list[dict[str, Any]]]
) -> None:
    assert ours[0] == theirs[0]
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert mine.keys() == other.keys()
        for name, column in mine.items():
            np.testing.assert_array_equal(column, other[name], err_msg=name)


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_ends_with_the_same_bits(kind: str) -> None:
    assert_same(run(TABLES[kind], hr.Sync(look_ahead=1)), run(TABLES[kind], hr.Sync(look_ahead=0)))


@pytest.mark.parametrize(("share", "embedding_workers"), [(2, 0), (1, 2), (2, 1)])
def test_with_several_batches_in_a_step_and_through_embedding_workers(share: int, embedding_workers: int) -> None:
    given: dict[str, Any] = {"share": share, "embedding_workers": embedding_workers}
    assert_same(run(TABLES["lfu"], hr.Sync(look_ahead=1), **given), run(TABLES["lfu"], hr.Sync(look_ahead=0), **given))


def test_rests_switches_and_changes_of_look_ahead_in_between_change_nothing() -> None:
    def disturb(there: Cluster, loop: TrainingLoop, step: int) -> None:
        match step:
            case 3:
                loop.rest()
            case 6:
                loop.switch(hr.Sync(look_ahead=0))
            case 9:
                loop.switch(hr.Sync(look_ahead=1))
            case 13 | 16:
                assert loop._active is not None
                loop._active.loop.look_ahead(step % 2)

    table = TABLES["adagrad"]
    assert_same(run(table, hr.Sync(look_ahead=1), meanwhile=disturb), run(table, hr.Sync(look_ahead=0)))


def test_rows_come_early_and_the_others_later(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"early": 0, "late": 0}
    read, rest = LookAheadReads.read, LookAheadReads.rest

    def count_read(self: LookAheadReads, *given: Any) -> Any:
        blocks = read(self, *given)
        seen["early"] += sum(int(block.mask.sum()) for block in blocks if block.mask is not None)
        return blocks

    def count_rest(self: LookAheadReads, grant: int) -> Any:
        found = rest(self, grant)
        seen["late"] += sum(len(np.asarray(block.values)) for block in found[0])
        return found

    monkeypatch.setattr(LookAheadReads, "read", count_read)
    monkeypatch.setattr(LookAheadReads, "rest", count_rest)
    run(TABLES["adagrad"], hr.Sync(look_ahead=1))
    assert seen["early"] > 100
    assert seen["late"] > 100


def test_a_row_that_is_read_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the shard forgot the keys of the open step: the test above would fail."""
    monkeypatch.setattr(StepWindow, "in_hand", lambda self, step: [])
    with pytest.raises(AssertionError):
        assert_same(run(TABLES["adagrad"], hr.Sync(look_ahead=1)), run(TABLES["adagrad"], hr.Sync(look_ahead=0)))


def test_a_prediction_between_two_steps_sees_whole_steps() -> None:
    """Shards update rows of the open step before its order, so batches in progress are finished first."""
    asked = [batch for _, batch in batches(3)][-1]
    found: dict[int, dict[int, Any]] = {0: {}, 1: {}}
    for look_ahead in (0, 1):

        def look(there: Cluster, loop: TrainingLoop, step: int, to: dict[int, Any] = found[look_ahead]) -> None:
            assert loop._active is not None
            output = loop.predict(asked).numpy()
            to[loop._active.step] = output

        run(TABLES["adagrad"], hr.Sync(look_ahead=look_ahead), meanwhile=look)
    assert len(found[1]) > 5
    for step, output in found[1].items():
        np.testing.assert_array_equal(output, found[0][step])


@pytest.mark.parametrize("share", [1, 2])
def test_a_limit_on_the_samples_grants_no_step_beyond_it(share: int) -> None:
    most = 4 * share * SAMPLES
    for look_ahead in (0, 1):
        state = RunState()
        with cluster(state, 1, 0, tables={"t": TABLES["adagrad"]}) as there:
            facts = RunFacts(1, SAMPLES, share * SAMPLES)
            loop = TrainingLoop(there.site, state, mode=hr.Sync(look_ahead=look_ahead), facts=facts)
            pool = LeaseQueue(batches(21), most_samples=most)
            pool.open_epoch()
            for _ in loop.steps(pool, 0):
                if state.samples >= most:
                    break
            loop.rest()
            loop.close()
        assert state.samples == most


@pytest.mark.parametrize("embedding_workers", [0, 1])
def test_a_look_up_ahead_that_is_refused_ends_the_run_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, embedding_workers: int
) -> None:
    read = LookAheadReads.read

    def refuse(self: LookAheadReads, pull: Any, step: int, wanted: Any) -> Any:
        if step == 4:
            raise InputError("a shard refuses step 4")
        return read(self, pull, step, wanted)

    monkeypatch.setattr(LookAheadReads, "read", refuse)
    with pytest.raises(HotrowError, match="a shard refuses step 4"):
        run(TABLES["adagrad"], hr.Sync(look_ahead=1), embedding_workers=embedding_workers)


def test_rows_that_expire_too_soon_refuse_it() -> None:
    table = hr.Table(dim=4, optimizer=hr.SGD(lr=0.1), expiry=2 * SAMPLES - 1)
    with pytest.raises(ConfigError, match=r"look_ahead=1: rows of table 't' could expire .* 16 samples or more"):
        run(table, hr.Sync(look_ahead=1))


def test_auto_measures_both_ways_and_says_which_it_took() -> None:
    said: list[str] = []

    def watch(there: Cluster, loop: TrainingLoop, step: int) -> None:
        said.extend(loop.take_remarks())

    ours = run(TABLES["adagrad"], hr.Sync(), meanwhile=watch, count=220)
    assert_same(ours, run(TABLES["adagrad"], hr.Sync(look_ahead=0), count=220))
    assert len(said) == 1
    assert re.match(r"look_ahead 'auto' takes [01]: a step takes .* ms with it and .* ms without", said[0])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("embedding_workers", [0, 1])
def test_a_cut_does_not_wait_for_rows_that_a_lost_rank_has_to_update(
    embedding_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank may end after its all-reduce and before its gradients are sent: no shard can complete the next lookup."""
    state, done, withheld = RunState(), list[int](), list[int]()
    with cluster(state, 1, embedding_workers) as there:
        facts = RunFacts(1, SAMPLES, 2 * SAMPLES)
        loop = TrainingLoop(there.site, state, mode=hr.Sync(look_ahead=1), facts=facts)
        rest_is_here = Shard.rest_is_here

        def withhold(shard: Shard, grant: int) -> bool:
            parameters = there.site._parameters
            assert parameters is not None
            if parameters.number > 8 and not withheld:
                withheld.append(grant)
                threading.Timer(1.0, setattr, (parameters, "must_cut", True)).start()  # as where a role is lost
            return grant not in withheld and rest_is_here(shard, grant)

        monkeypatch.setattr(Shard, "rest_is_here", withhold)
        leases = LeaseQueue(batches(24), done=lambda lease: done.append(lease.number))
        leases.open_epoch()
        for _ in loop.steps(leases, 0):
            pass
        loop.rest()
        loop.close()
        assert withheld
        assert sorted(done) == list(range(24))
        assert loop.statistics.counts["steps_cut"] == 1
