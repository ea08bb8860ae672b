"""`hotrow plan routes` prints the routes between GPUs as tables, and refuses what it cannot plan in a sentence."""

import json
from pathlib import Path

import pytest

from unit.cli.conftest import Command
from unit.routes.test_nvidia_topology import CUBE_MESH, all_to_all

LINE = "0, 25, 0\n25, 0, 50\n0, 50, 0\n"


def test_a_topology_is_planned_shown_and_written(hotrow: Command) -> None:
    Path("topo.txt").write_text(CUBE_MESH)
    done = hotrow("plan", "routes", "--topo", "topo.txt", "--size", "25MB", "--json", "plan.json")
    assert done.exit_code == 0, done.output
    assert "two phases: 3.000 ms, no other choice of middlemen is faster" in done.stdout
    assert "nothing was measured" in done.stdout
    found = json.loads(Path("plan.json").read_text())
    assert len(found["buffers"]) == 24
    assert sum(found["buffer_bytes"]) == 24 * 25_000_000
    row = next(line for line in done.stdout.splitlines() if line.startswith("0 "))
    assert row.split()[1:6] == ["-", "25", "25", "50", "50"]
    via = {(each["source"], each["target"]): each["middleman"] for each in found["routes"]}
    assert f"via {via[0, 5]}" in row
    copies = [copy for phase in found["phases"] for copy in phase["copies"]]
    assert sum(copy["size"] for copy in copies) == (56 + 24) * 25_000_000
    assert found["saved"] > found["saved_at_once"] > 0.5


def test_the_way_over_the_host_is_compared_for_each_kind_of_copies(hotrow: Command) -> None:
    Path("links.csv").write_text(LINE)
    done = hotrow("plan", "routes", "--matrix", "links.csv", "--size", "1GB", "--sockets", "0,0,1", "--pcie-gbps", 10)
    assert done.exit_code == 0, done.output
    direct = 1e3 * (1 / 10 + 1 / 19.2 + 1 / 10)
    assert f"over the host, copies one after the other: {direct:.3f} ms" in done.stdout
    assert "over the host, copies all at once: 100.000 ms" in done.stdout


def test_without_sockets_the_way_over_the_host_is_not_known(hotrow: Command) -> None:
    Path("links.csv").write_text(LINE)
    done = hotrow("plan", "routes", "--matrix", "links.csv")
    assert done.exit_code == 0, done.output
    assert "over the host: not known, give --sockets" in done.stdout


def test_where_all_pairs_have_links_there_is_one_phase(hotrow: Command) -> None:
    Path("topo.txt").write_text(all_to_all(8, "NV18"))
    done = hotrow("plan", "routes", "--topo", "topo.txt", "--size", "450MB")
    assert done.exit_code == 0, done.output
    assert "all pairs have a link: one phase, 7.000 ms" in done.stdout
    assert "via" not in done.stdout


def test_a_matrix_may_have_names_and_remarks(hotrow: Command) -> None:
    Path("links.csv").write_text("# rates\n,GPU0,GPU1\n\nGPU0,0,25\nGPU1,25,0\n")
    done = hotrow("plan", "routes", "--matrix", "links.csv", "--size", "25MB")
    assert done.exit_code == 0, done.output
    assert "one phase, 1.000 ms" in done.stdout


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (LINE, [], "hotrow plan routes: give either --topo"),
        (LINE, ["--matrix", "f", "--topo", "f"], "hotrow plan routes: give either --topo"),
        (LINE, ["--matrix", "none"], "--matrix none: cannot be read (No such file or directory): give a text file"),
        ("", ["--matrix", "f"], "--matrix f: matrix: has no line of rates: write one for each GPU"),
        ("0,x\n1,0", ["--matrix", "f"], "--matrix f: matrix, line 1, column 2: 'x' must be a rate in GB/s"),
        ("0,1,2\n1,0", ["--matrix", "f"], "--matrix f: links[0]: has 3 rates and the matrix 2 rows"),
        ("0,nan\n1,0", ["--matrix", "f"], "--matrix f: links[0][1]=nan: must be a rate in GB/s"),
        ("0,1,0\n1,0,0\n0,0,0", ["--matrix", "f"], "links[0][2]=0: no GPU has links to both (and 3 pairs more)"),
        (LINE, ["--matrix", "f", "--sockets", "0,1"], "--sockets 0,1: must be a number for each of 3 GPUs"),
        (LINE, ["--matrix", "f", "--sockets", "0,a,1"], "--sockets 0,a,1: must be a number for each of 3 GPUs"),
        (LINE, ["--matrix", "f", "--size", "8"], "--size 8: is not a size: write a number and a unit"),
        (LINE, ["--topo", "f"], "--topo f: topology: has no line that begins with GPU0"),
        (CUBE_MESH, ["--topo", "f", "--sockets", "0"], "--sockets 0: belongs to --matrix; --topo has the sockets"),
        (CUBE_MESH, ["--topo", "f", "--pcie-gbps", "0"], "--pcie-gbps=0.0: must be above 0, in GB/s"),
        (CUBE_MESH, ["--topo", "f", "--nvlink-gbps", "-1"], "--nvlink-gbps=-1.0: must be above 0, in GB/s"),
        (CUBE_MESH, ["--topo", "f", "--nvlink-gbps", "0"], "--nvlink-gbps=0.0: must be above 0, in GB/s"),
        (LINE, ["--matrix", "f", "--nvlink-gbps", "50"], "--nvlink-gbps 50: belongs to --topo; --matrix has the rates"),
        (LINE, ["--matrix", "f", "--socket-gbps", "50"], "--pcie-gbps, --socket-gbps: are of the way over the host"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_a_sentence(hotrow: Command, text: str, options: list[str], sentence: str) -> None:
    Path("f").write_text(text)
    done = hotrow("plan", "routes", *options)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"hotrow: {sentence}"), done.stderr
