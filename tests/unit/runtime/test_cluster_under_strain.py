"""Runs on a cluster whose connections break, whose room is small and whose segments outlive it: nothing is lost, none
counts twice, and what cannot go on says why.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.config import Segment, Table
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.server.pushes import OVERHEAD
from hotrow.staleness import Power, Staleness, Statistics
from hotrow.transport.errors import RemoteFault
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Stop
from unit.runtime.cluster_threads import SAMPLES, TABLES, Cluster, batches, cluster
from unit.transport.cable import Cable
from unit.transport.parts import HASTY


@dataclass(slots=True)
class Outcome:
    losses: list[float] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    computed: float = 0  # batches, as trainers count them
    busy: int = 0  # times that shards had no room
    statistics: Statistics | None = None


def run(
    mode: Mode,
    *,
    trainers: int = 1,
    steps: int = 6,
    meanwhile: Callable[[Cluster, int], None] = lambda there, step: None,
    before: Callable[[Cluster], None] = lambda there: None,
    **settings: Any,
) -> Outcome:
    state = RunState()
    facts, told = RunFacts(trainers, SAMPLES, 2 * SAMPLES), Outcome()
    with cluster(state, trainers, 0, HASTY, **settings) as there:
        before(there)
        engine = TrainingLoop(there.site, state, mode=mode, facts=facts)
        pool = LeaseQueue(batches(2 * steps), done=lambda lease: told.done.append(lease.number))
        pool.open_epoch()
        with shards_end_first(there):
            for number, step in enumerate(engine.steps(pool, 0)):
                told.losses.append(float(sum(each.loss * SAMPLES for each in step.batches) / max(1, step.samples)))
                meanwhile(there, number)
        engine.rest()
        engine.close()
        told.rows = rows_of(there)
        told.counts, told.statistics = engine.statistics.counts, engine.statistics
        told.computed = sum(there.figures(f"trainer {number}")["batches"] for number in range(trainers))
        told.busy = int(sum(there.figures(name)["wire.busy"] for name in ("shard 0", "shard 1")))
    return told


@contextmanager
def shards_end_first(there: Cluster) -> Iterator[None]:
    """When a run fails: a trainer in a thread cannot be killed while it waits for rows that never come."""
    try:
        yield
    except HotrowError:
        for name in ("shard 0", "shard 1"):
            there.wire.request(name, Stop()).result(20)
        raise


def rows_of(there: Cluster) -> list[np.ndarray]:
    found = []
    for core in there.cores:
        out = np.full((50, 4), np.nan, np.float32)
        core.tables.tiers["t"].find(np.arange(50), out)
        found.append(out)
    return found


def check_same(ours: Outcome, theirs: Outcome) -> None:
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-6)
    for mine, other in zip(ours.rows, theirs.rows, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("mode", [hr.Sync(), hr.GBA()], ids=lambda mode: mode.name)
@pytest.mark.parametrize("snaps", [False, True], ids=["asks in hand", "answers lost"])
def test_a_trainer_whose_connection_breaks_again_and_again_computes_each_batch_once(mode: Mode, snaps: bool) -> None:
    """Work, Begin and GiveDense go through the cable; it is cut at any time, or by an answer, which is lost."""
    cables: list[Cable] = []
    with ExitStack() as stack:

        def through_a_cable(there: Cluster) -> None:
            cables.append(stack.enter_context(Cable(there.addresses["trainer 0"])))
            there.wire.connect("trainer 0", cables[0].address)

        def cut(there: Cluster, step: int) -> None:
            if snaps:
                cables[0].snaps = True
            else:
                cables[0].cut()

        told = run(mode, before=through_a_cable, meanwhile=cut)
        assert cables[0].connections > 4
        assert (cables[0].lost > 0) == snaps
    assert told.computed == 12
    assert sorted(told.done) == list(range(12))
    check_same(told, run(mode))


PUSH = OVERHEAD + 50 * (16 + 8 + 16)  # more than the rows of one batch take on one shard


def test_a_shard_with_little_room_slows_a_run_and_changes_nothing() -> None:
    """Each step takes one push, three trainers push at once, and there is room for one."""
    told = run(hr.BoundedStaleness(bound=3), trainers=3, steps=12, parked_bytes=PUSH)
    assert sorted(told.done) == list(range(24))
    assert told.computed == 24
    assert told.busy > 0


def test_a_step_that_can_never_have_room_ends_the_run_with_a_sentence() -> None:
    with pytest.raises(RemoteFault, match=r"a step takes 2 pushes.*parked_bytes=.*has to hold a step: raise it"):
        run(hr.GBA(), trainers=2, parked_bytes=OVERHEAD + 500)


def kept_tables(folder: Path) -> Mapping[str, Table]:
    segment = Segment(run="kept", directory=folder, keep=True)
    return {name: table.model_copy(update={"segment": segment}) for name, table in TABLES.items()}


def test_a_new_run_on_kept_segments_goes_on_changing_their_rows(tmp_path: Path) -> None:
    """The segments remember the grants of the first run, and its own begin with 1 again if nobody asks them."""
    tables = kept_tables(tmp_path)
    first = run(hr.Async(), tables=tables)
    at: dict[str, int] = {}

    def look(there: Cluster) -> None:
        at["newest"] = there.site.newest_grant()
        for ours, theirs in zip(rows_of(there), first.rows, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    second = run(hr.Async(), tables=tables, before=look)
    assert at["newest"] == 12
    changed = [(np.abs(now - then) > 0).any(1) for now, then in zip(second.rows, first.rows, strict=True)]
    assert np.logical_or(*changed).mean() > 0.9  # each id is on one of the two
    assert not any(second.counts.values())


def test_pushes_that_shards_did_not_take_are_in_the_counts_of_the_run() -> None:
    def forget(there: Cluster, step: int) -> None:
        if step == 2:  # as if a million grants had gone by
            there.cores[0].pushes.seen.add(2**21)

    told = run(hr.GBA(), meanwhile=forget)
    assert len(told.done) == 12
    assert told.counts["forgotten_pushes"] == 2 * 3


def test_dense_states_and_tensors_travel_in_as_many_frames_as_it_takes() -> None:
    """With this limit no mode could begin, nor its dense parameters be brought home."""

    def with_moments(there: Cluster) -> None:
        optimizer = there.site.optimizer
        assert optimizer is not None
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()

    for mode in (hr.Sync(), hr.GBA()):
        check_same(run(mode, before=with_moments, limits=Limits(frame_bytes=1_600)), run(mode, before=with_moments))


def test_more_batches_in_flight_than_a_plain_wire_has_asks_open() -> None:
    told = run(hr.Hybrid(max_in_flight=100), steps=80)
    assert sorted(told.done) == list(range(160))


def test_parts_are_counted_by_what_their_tensors_weighed_on_all_shards() -> None:
    """A tensor at rest halves the staleness, so only what is two steps late or more is decayed."""
    late = Staleness(decay=Power(reference=0.6), groups="dense", movement=1e-6)
    told = run(hr.Async(staleness=late), trainers=3, steps=20).statistics
    assert told is not None
    assert sum(told.data.counts.values()) == 40
    assert told.decayed == sum(count for age, count in told.data.counts.items() if age >= 2)
    assert told.data.counts[1] > 0  # the discipline has weighed these less


def test_batches_in_flight_are_bounded_on_a_cluster() -> None:
    facts = RunFacts(1, SAMPLES, SAMPLES)
    with cluster(RunState(), 0, 0) as there:
        there.site.check_mode(hr.Hybrid(max_in_flight=256), facts)
        with pytest.raises(ConfigError, match=r"max_in_flight=257: on a cluster at most 256"):
            there.site.check_mode(hr.Hybrid(max_in_flight=257), facts)


def test_a_mode_that_trainers_could_not_make_is_refused_before_they_are_told() -> None:
    class Mine(hr.Async):
        name: Any = "mine"

    with (
        cluster(RunState(), 0, 0) as there,
        pytest.raises(ConfigError, match=r"mode='mine': .* not on a cluster: set engine to 'local', or take one of"),
    ):
        there.site.check_mode(Mine(), RunFacts(1, SAMPLES, SAMPLES))


def test_an_order_that_fails_ends_the_run_and_leaves_nothing_to_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookups wait for it, so no batch would ever come; rows and dense parameters are of different steps."""
    seen = []

    def refuse(*_: object, **__: object) -> None:
        raise InputError("this order cannot be performed")

    def look(there: Cluster, step: int) -> None:
        there.site.check_consistent()
        seen.append(there.site)
        if step == 1:
            monkeypatch.setattr(there.cores[1].input, "apply", refuse)

    with pytest.raises(RemoteFault, match="shard 1: this order cannot be performed"):
        run(hr.GBA(), steps=20, meanwhile=look)
    with pytest.raises(InputError, match="the cluster has failed: close this trainer, and load the last checkpoint"):
        seen[0].check_consistent()
