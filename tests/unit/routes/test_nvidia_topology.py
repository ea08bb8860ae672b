"""The output of `nvidia-smi topo -m` becomes links, sockets and switches; what it cannot be gets a sentence.

All texts are composed here, in the layout of the command.
"""

import pytest

from hotrow.errors import InputError
from hotrow.routes import parse_nvidia_topology, plan_routes

CUBE_MESH = """
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\
\tmlx5_0\tmlx5_1\tmlx5_2\tmlx5_3\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\tPHB\tSYS\tSYS\t0-19,40-59\t0
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\tPHB\tSYS\tSYS\t0-19,40-59\t0
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\tPIX\tSYS\tSYS\t0-19,40-59\t0
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\tPIX\tSYS\tSYS\t0-19,40-59\t0
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\tSYS\tPIX\tPHB\t20-39,60-79\t1
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\tSYS\tPIX\tPHB\t20-39,60-79\t1
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tPHB\tPIX\t20-39,60-79\t1
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tPHB\tPIX\t20-39,60-79\t1
mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X \tPHB\tSYS\tSYS
mlx5_1\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tSYS\tSYS\tPHB\t X \tSYS\tSYS
mlx5_2\tSYS\tSYS\tSYS\tSYS\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\t X \tPHB
mlx5_3\tSYS\tSYS\tSYS\tSYS\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tPHB\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def without_columns(text: str, first: int, last: int) -> str:
    """Cells between tabs; rows of other devices than GPUs go too."""
    lines = [line.split("\t") for line in text.splitlines() if "\t" in line and not line.startswith("mlx")]
    return "\n".join("\t".join(line[:first] + line[last:]) for line in lines)


def all_to_all(gpus: int, kind: str) -> str:
    names = [f"GPU{number}" for number in range(gpus)]
    rows = [[name, *("X" if name == other else kind for other in names), "0-47", "0", "N/A"] for name in names]
    head = ["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    return "\n".join("\t".join(line) for line in [head, *rows])


def test_a_hybrid_cube_mesh_with_network_interfaces() -> None:
    found = parse_nvidia_topology(CUBE_MESH)
    assert found.kinds[0] == ("X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS")
    assert (found.sockets, found.switches) == ((0,) * 4 + (1,) * 4, (0, 0, 1, 1, 2, 2, 3, 3))
    assert (found.switched, found.assumptions) == (False, ())
    fabric = found.fabric()
    assert fabric.links[0] == (0, 25, 25, 50, 50, 0, 0, 0)
    assert fabric.port_gbps is None
    plan = plan_routes(fabric, 25_000_000)
    assert plan.two_phase_s == pytest.approx(3e-3, rel=1e-4), "the paper's node with other numbers"


def test_without_network_interfaces_switches_are_not_known() -> None:
    found = parse_nvidia_topology(without_columns(CUBE_MESH, 9, 13))
    assert found.kinds == parse_nvidia_topology(CUBE_MESH).kinds
    assert (found.sockets, found.switches) == ((0,) * 4 + (1,) * 4, tuple(range(8)))
    assert found.assumptions[0].startswith("switches: the text shows no GPUs that share one")


@pytest.mark.parametrize(("first", "last"), [(14, 15), (13, 15)], ids=["no NUMA affinity", "no affinity"])
def test_sockets_without_the_columns_of_affinity(first: int, last: int) -> None:
    found = parse_nvidia_topology(without_columns(CUBE_MESH, first, last))
    assert found.sockets == (0,) * 4 + (1,) * 4
    assert len(found.assumptions) == (first == 13)


def test_an_affinity_that_is_not_available_is_none() -> None:
    text = CUBE_MESH.replace("0-19,40-59\t0", "0-19,40-59\tN/A").replace("20-39,60-79\t1", "20-39,60-79\tN/A")
    assert parse_nvidia_topology(text).sockets == (0,) * 4 + (1,) * 4


def test_columns_may_be_parted_by_spaces() -> None:
    spaces = CUBE_MESH.replace("\t", "    ")
    assert parse_nvidia_topology(spaces) == parse_nvidia_topology(CUBE_MESH)


@pytest.mark.parametrize(("kind", "port"), [("NV18", 450), ("NV12", 300), ("NV6", 150)])
def test_behind_a_switch_nothing_is_forwarded_and_ports_limit_a_gpu(kind: str, port: float) -> None:
    found = parse_nvidia_topology(all_to_all(8, kind))
    plan = plan_routes(found.fabric(), 10**9)
    assert found.switched
    assert plan.fabric.port_gbps == port
    assert {route.kind for route in plan.routes} == {"direct"}
    assert plan.two_phase_s == plan.direct_s == pytest.approx(7 / port)


def test_eighteen_links_over_several_peers_are_no_switch_and_nineteen_are() -> None:
    assert not parse_nvidia_topology(all_to_all(4, "NV6")).switched
    assert parse_nvidia_topology(all_to_all(4, "NV7")).switched


def test_a_single_gpu() -> None:
    for text in ("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n", "      GPU0\nGPU0   X\n"):
        found = parse_nvidia_topology(text)
        assert (found.kinds, found.sockets, found.switches) == ((("X",),), (0,), (0,))
        assert plan_routes(found.fabric(), 1_000).routes == ()


def test_pcie_switches_are_links_and_processors_are_not() -> None:
    rows = ["X PIX PXB NODE", "PIX X PHB SYS", "PXB PHB X SYS", "NODE SYS SYS X"]
    text = "\n".join(["GPU0 GPU1 GPU2 GPU3", *(f"GPU{number} {row}" for number, row in enumerate(rows))])
    found = parse_nvidia_topology(text)
    assert found.fabric(pcie_gbps=12).links[0] == (0, 12, 12, 0)
    assert found.switches == (0, 0, 0, 1)
    plan = plan_routes(found.fabric(pcie_gbps=12), 1_000)
    assert {(route.source, route.target): route.kind for route in plan.routes}[1, 2] == "forwarded"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "topology: has no line that begins with GPU0: give the output of `nvidia-smi topo -m`"),
        ("nvidia-smi: command not found", "topology: has no line that begins with GPU0"),
        ("GPU0 GPU1\nGPU0 X NV1\n", "topology: has columns of GPU0, GPU1 and rows of GPU0: give its whole output"),
        ("GPU0 GPU1\nGPU0 X\nGPU1 NV1 X", "topology, row GPU0: has 1 of 2 columns"),
        ("GPU0 GPU1\nGPU0 X NV19\nGPU1 NV19 X", "topology, row GPU0, column GPU1: 'NV19' is none of NV1 to NV18, PIX"),
        ("GPU0 GPU1\nGPU0 X X\nGPU1 X X", "topology, row GPU0, column GPU1: 'X' is none of"),
        ("GPU0 GPU1\nGPU0 X NV1\nGPU1 NV2 X", "topology: GPU1 to GPU0 is NV2 and back NV1: both must be the same"),
        ("GPU0 GPU1\nGPU0 NV1 NV1\nGPU1 NV1 X", "topology, row GPU0, column GPU0: 'NV1' must be X"),
    ],
)
def test_a_text_that_is_no_topology_gets_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_nvidia_topology(text)
    assert str(raised.value).startswith(sentence)
