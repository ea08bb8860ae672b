"""What disciplines keep so that nobody has to look at all workers for each event: it is what looking would find."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow import modes
from hotrow.modes import BackupWorkers, BoundedStaleness, Hybrid, Mode, mode_of
from hotrow.modes.backup_workers import Backups
from hotrow.modes.base import Discipline
from hotrow.modes.bounded_staleness import Bounded
from hotrow.modes.hybrid import DenseInStep
from hotrow.sim import ClusterConfig, LogNormal, SimCluster, Speeds
from profiles import examples
from unit.modes.test_any_events import act
from unit.modes.tiny_cluster import cluster_of

KEEPERS = st.sampled_from(
    [
        BoundedStaleness(bound=0),
        BoundedStaleness(bound=2),
        BackupWorkers(backups=0),
        BackupWorkers(backups=1),
        Hybrid(max_in_flight=1),
        Hybrid(max_in_flight=3),
    ]
)
WHAT = st.sampled_from(["ask"] * 6 + ["push"] * 8 + ["lose", "join", "join", "drain", "resume", "again", "copy"])
LONG = st.lists(st.tuples(WHAT, st.integers(0, 3)), min_size=30, max_size=60)


@given(KEEPERS, st.integers(2, 4), st.integers(1, 5), LONG)
@settings(max_examples=examples(150))
def test_what_is_kept_is_what_a_look_at_all_workers_finds(
    mode: Mode, workers: int, parts: int, actions: list[tuple[str, int]]
) -> None:
    cluster = cluster_of(mode, workers=workers, parts=parts, batches=25)
    for worker in range(workers):
        cluster.join(worker)
    for what, worker in actions:
        act(cluster, what, worker % workers)
        look(cluster.discipline)


def look(discipline: Discipline) -> None:
    match discipline:
        case Bounded():
            finished = list(discipline.done.values())
            assert discipline.slowest == min(finished, default=0)
            assert discipline.at_slowest == finished.count(discipline.slowest)
            if not discipline.draining:
                assert all(discipline.done[each] - discipline.slowest > discipline.bound for each in discipline.waiting)
        case Backups():
            out = discipline.grants.out
            busy = {worker for worker, _ in out.values()}
            assert discipline.awaited == discipline.live - discipline.gave - busy
            assert discipline.tokens.keys() == out.keys()
            assert discipline.fresh == sum(token == discipline.step for token in discipline.tokens.values())
        case DenseInStep():
            held = Counter(worker for worker, _ in discipline.grants.out.values())
            assert +Counter(discipline.held) == held
            for step in discipline.dealt.values():
                assert +Counter(step.shares) == Counter(step.holders.values())
            front = discipline._front()
            assert all(not discipline._room(step) for step in range(discipline.step, front))
            if not discipline.draining:
                assert not any(discipline._has_turn(worker, front) for worker in discipline.waiting)


@pytest.mark.parametrize("name", modes.MODES)
def test_a_push_costs_no_more_among_many_workers(name: str) -> None:
    """Counted in instructions of the interpreter within the modes, so no clock is asked."""
    few, many = (instructions(partial(run, name, size)) / (20 * size) for size in (20, 160))
    assert many < 1.5 * few


def run(name: str, workers: int) -> None:
    mode = mode_of({"name": name, "backups": workers // 10} if name == "backup_workers" else name)
    speeds = Speeds(sample_s=1.0, machines=LogNormal(sigma=0.1), batches=LogNormal(sigma=0.3))
    SimCluster(mode, ClusterConfig(workers=workers, local_batch=1, speeds=speeds), data=20 * workers).run()


def instructions(run: Callable[[], None]) -> int:
    """That `run` executes in files of `hotrow.modes`."""
    folder, counted = str(Path(modes.__file__).parent), 0

    def inside(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal counted
        counted += event == "opcode"
        return inside

    def entered(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return inside

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        run()
    finally:
        sys.settrace(before)
    return counted
