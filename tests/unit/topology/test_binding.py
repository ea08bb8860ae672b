"""The binding plan, from both sides: one node binds nothing; several bind each role near its device."""

from dataclasses import replace
from pathlib import Path

import pytest

from hotrow.topology.binding import BindingPlan, ThreadCounts, ThreadRole, plan_binding
from hotrow.topology.machine import Topology
from hotrow.topology.sysfs import read_topology
from unit.topology.made_hosts import FOUR_SOCKETS, ONE_NODE, TWO_CORES, TWO_SOCKETS, MadeHost


@pytest.fixture
def paper(tmp_path: Path) -> Topology:
    return read_topology(FOUR_SOCKETS.write(tmp_path))


@pytest.fixture
def two(tmp_path: Path) -> Topology:
    return read_topology(TWO_SOCKETS.write(tmp_path))


def nodes(plan: BindingPlan, role: ThreadRole) -> list[int]:
    return [binding.node for binding in plan.bindings if binding.role == role]


def test_one_node_binds_nothing_and_says_so(tmp_path: Path) -> None:
    plan = plan_binding(read_topology(ONE_NODE.write(tmp_path)), ThreadCounts(trainers=2))
    assert (plan.bindings, plan.interleave) == ((), ())
    assert plan.summary.startswith("one NUMA node: ")
    assert plan.of("trainer") is None


def test_on_the_host_of_the_paper_each_role_is_near_its_device(paper: Topology) -> None:
    plan = plan_binding(paper, ThreadCounts(trainers=8, store=4))
    assert nodes(plan, "reader") == [0], "the network interface"
    assert nodes(plan, "trainer") == [0] * 4 + [1] * 4, "the GPUs"
    assert nodes(plan, "store") == [0, 1, 2, 3]
    assert plan.interleave == (0, 1, 2, 3)
    assert all(binding.reason for binding in plan.bindings)


def test_every_thread_stays_on_the_processors_of_its_node(paper: Topology) -> None:
    plan = plan_binding(paper, ThreadCounts(trainers=9, store=5, readers=2))
    for binding in plan.bindings:
        assert set(binding.cpus) <= set(paper.nodes[binding.node].cpus), binding


def test_a_node_without_a_processor_of_the_process_is_not_used(two: Topology) -> None:
    confined = replace(two, allowed=(0, 1, 16))
    plan = plan_binding(confined, ThreadCounts())
    assert plan.bindings == ()
    assert "only node 0 has both memory and processors that this process may use (0-1,16)" in plan.summary
    wider = plan_binding(replace(two, allowed=(0, 1, 16, 8)), ThreadCounts(trainers=2))
    assert [binding.cpus for binding in wider.bindings if binding.role == "trainer"] == [(0, 1, 16), (8,)]


def test_a_node_with_memory_and_no_processor_is_not_used(tmp_path: Path) -> None:
    host = MadeHost([[(0,), (1,)], []])
    assert plan_binding(read_topology(host.write(tmp_path)), ThreadCounts()).bindings == ()


def test_a_device_of_an_unknown_node_is_left_free_with_the_reason(two: Topology) -> None:
    unknown = replace(two, devices=tuple(replace(device, node=None) for device in two.devices))
    plan = plan_binding(unknown, ThreadCounts(trainers=2, readers=2))
    gpus = [device.name for device in two.devices if device.kind == "GPU"]
    assert plan.unbound == tuple(
        f"GPU {name}: its node is unknown or has no processor for this process" for name in gpus
    )
    assert nodes(plan, "trainer") == nodes(plan, "reader") == [0, 1], "dealt in turn"


def test_more_threads_than_planned_take_the_bindings_in_turn(two: Topology) -> None:
    plan = plan_binding(two, ThreadCounts(trainers=2))
    assert plan.of("trainer", 2) == plan.of("trainer", 0)
    assert plan.of("trainer", 3) == plan.of("trainer", 1)


def test_a_core_for_each_node_is_enough(tmp_path: Path) -> None:
    plan = plan_binding(read_topology(TWO_CORES.write(tmp_path)), ThreadCounts(trainers=2, store=2))
    assert {binding.name: binding.cpus for binding in plan.bindings} == {
        "reader 0": (0,),
        "trainer 0": (1,),
        "trainer 1": (1,),
        "store 0": (0,),
        "store 1": (1,),
    }
