"""Threads of this process are bound as a plan says, what the system refuses is told, and all are set free again."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hotrow import _native
from hotrow.topology import sysfs
from hotrow.topology.affinity import ThreadBinder, allowed_cpus, bind_process, rehearse
from hotrow.topology.binding import Binding, BindingPlan
from unit.topology.made_hosts import ONE_NODE, TWO_CORES

FREE = tuple(sorted(os.sched_getaffinity(0)))
MISSING = 1000  # a processor that no machine of a test has

pytestmark = pytest.mark.skipif(not {0, 1} <= set(FREE), reason="needs processors 0 and 1 of this machine")


def in_a_thread(call: Callable[[], object]) -> tuple[int, ...]:
    """The processors of a thread after a call in it."""
    found: list[tuple[int, ...]] = []

    def run() -> None:
        call()
        found.append(allowed_cpus(threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def plan(*cpus: int) -> BindingPlan:
    return BindingPlan("made", tuple(Binding("trainer", place, (cpu,), 0, "") for place, cpu in enumerate(cpus)))


def test_a_thread_gets_the_processors_of_its_role_and_number() -> None:
    binder = ThreadBinder(plan(0, 1))
    assert in_a_thread(lambda: binder.bind("trainer", 0)) == (0,)
    assert in_a_thread(lambda: binder.bind("trainer", 1)) == (1,)
    assert in_a_thread(lambda: binder.bind("store")) == FREE, "the plan has no such role"


def test_closing_sets_a_thread_free() -> None:
    binder = ThreadBinder(plan(1))

    def bind_and_close() -> None:
        binder.bind("trainer")
        assert allowed_cpus(threading.get_native_id()) == (1,)
        binder.close()

    assert in_a_thread(bind_and_close) == FREE


def test_what_the_system_refuses_is_told_and_the_thread_stays_free() -> None:
    binder = ThreadBinder(plan(MISSING))
    assert in_a_thread(lambda: binder.bind("trainer")) == FREE
    assert binder.refused == [f"trainer 0 is not bound to {MISSING}: Invalid argument"]
    assert binder.remarks == ["bind_cores: made", f"bind_cores: {binder.refused[0]}"]


def test_a_system_without_affinity_trains_unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.delattr(os, "sched_setaffinity")
    binder = ThreadBinder()
    binder.open()
    assert in_a_thread(lambda: binder.bind("trainer")) == FREE
    binder.close()
    assert (binder.remarks, binder.refused) == ([], [])


def test_a_rehearsal_shows_each_line_as_the_kernel_has_it() -> None:
    tried, _ = rehearse(plan(0, MISSING))
    assert [each.bound for each in tried] == [True, False]
    assert (tried[0].found, tried[1].found) == ((0,), FREE)
    assert tried[1].error == "Invalid argument"


def test_nodes_that_do_not_exist_cannot_be_interleaved() -> None:
    there = {int(path.name[4:]) for path in Path("/sys/devices/system/node").glob("node[0-9]*")}
    if _native.interleave_memory([min(there, default=0)]) != 0:
        pytest.skip("the system of this test refuses mbind")
    assert _native.interleave_memory([63]) != 0
    assert rehearse(BindingPlan("made", interleave=(63,)))[1] == "Invalid argument"
    assert _native.interleave_memory([]) == 0


@pytest.mark.parametrize("sets", [[[]], [[-1]], [[1 << 20]]])
def test_sets_that_are_none_are_refused(sets: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="bind_pool: "):
        _native.bind_pool(sets)


def test_a_role_of_a_cluster_is_bound_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysfs, "SYS", TWO_CORES.write(tmp_path / "two"))
    assert in_a_thread(lambda: bind_process("store", 0)) == (0,)
    assert in_a_thread(lambda: bind_process("store", 3)) == (1,), "nodes in turn"
    assert in_a_thread(lambda: bind_process("reader", 1)) == (0,), "near the network interface"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert in_a_thread(lambda: bind_process("trainer", 2)) == (1,), "near the first GPU that it sees"
    monkeypatch.setattr(sysfs, "SYS", ONE_NODE.write(tmp_path / "one"))
    assert in_a_thread(lambda: bind_process("store", 1)) == FREE
