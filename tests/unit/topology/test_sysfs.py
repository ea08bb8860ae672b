"""What is in /sys of a host is read as it is there, and what is missing there is left out."""

import os
from pathlib import Path

import pytest

from hotrow.errors import InputError
from hotrow.topology.machine import cpus_text, parse_cpus
from hotrow.topology.sysfs import read_topology
from unit.topology.made_hosts import FOUR_SOCKETS, ONE_NODE, TWO_SOCKETS, put


def test_two_sockets_are_read_with_siblings_caches_and_devices(tmp_path: Path) -> None:
    found = read_topology(TWO_SOCKETS.write(tmp_path))
    assert (found.sockets, len(found.nodes), len(found.cores)) == (2, 2, 16)
    assert found.cores[0].cpus == (0, 16)
    assert [node.memory_bytes for node in found.nodes] == [64 << 30, 64 << 30]
    assert found.nodes[1].distances == (21, 10)
    assert [(each.level, each.size_bytes, each.instances, each.shared_by) for each in found.caches] == [
        (1, 32 << 10, 16, 2),
        (2, 1 << 20, 16, 2),
        (3, 32 << 20, 2, 16),
    ]
    assert [(gpu.name, gpu.node) for gpu in found.of_kind("GPU")] == [("0000:10:00.0", 0), ("0000:11:00.0", 1)]
    assert [(disk.name, disk.node, disk.detail) for disk in found.of_kind("disk")] == [
        ("nvme0n1", 1, "2.0 TB"),
        ("nvme1n1", 1, "2.0 TB"),
    ]
    assert [(nic.name, nic.node, nic.detail, nic.fast) for nic in found.of_kind("NIC")] == [
        ("eth0", 0, "25 Gb/s", True),
        ("eth1", 1, "down", False),
    ]
    assert found.allowed == tuple(range(32))


def test_the_host_of_the_paper_has_its_gpus_on_two_of_four_sockets(tmp_path: Path) -> None:
    found = read_topology(FOUR_SOCKETS.write(tmp_path))
    assert [gpu.node for gpu in found.of_kind("GPU")] == [0] * 4 + [1] * 4
    assert [disk.node for disk in found.of_kind("disk")] == [2] * 4 + [3] * 4


def test_a_display_controller_of_a_server_is_no_gpu(tmp_path: Path) -> None:
    assert read_topology(ONE_NODE.write(tmp_path)).of_kind("GPU") == ()


def test_a_device_without_a_known_node_has_none(tmp_path: Path) -> None:
    root = ONE_NODE.write(tmp_path)
    for path in root.glob("devices/pci0000:00/*/numa_node"):
        path.write_text("-1\n")
    assert {device.node for device in read_topology(root).devices} == {None}


def test_a_kernel_without_numa_has_one_node_with_all_cores(tmp_path: Path) -> None:
    put(tmp_path / "devices/system/cpu/online", "0-3")
    found = read_topology(tmp_path)
    assert [node.cpus for node in found.nodes] == [(0, 1, 2, 3)]
    assert found.usable_nodes == (0,)


def test_this_machine_is_read_with_the_cores_that_the_process_may_use() -> None:
    found = read_topology()
    assert set(found.allowed) == os.sched_getaffinity(0)
    assert found.nodes
    assert found.caches or not Path("/sys/devices/system/cpu/cpu0/cache").exists()


def test_a_folder_that_is_no_sys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no devices/system/cpu in it"):
        read_topology(tmp_path)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8", (0, 1, 2, 3, 8)), ("", ()), ("5", (5,)), ("0-1,3-4", (0, 1, 3, 4))]
)
def test_sets_of_processors_are_read_and_written_as_the_kernel_does(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text + "\n") == cpus
    assert cpus_text(cpus) == text


def test_a_text_that_is_no_set_is_refused() -> None:
    with pytest.raises(InputError, match="is no list of processors"):
        parse_cpus("0-x")
