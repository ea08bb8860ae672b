"""`hotrow plan` prints a host and a run as tables, writes files, and refuses what it cannot plan in a sentence."""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from small_run import write_data
from unit.cli.conftest import Command
from unit.topology.made_hosts import FOUR_SOCKETS, TWO_SOCKETS

CLUSTER = """
[cluster]
hosts = 2
ram = "1GB"
disk = "10GB"
disk_read = "1GB"
cores = 8
gpus = 0
network_gbps = 10
trainer_samples_per_s = 5000
"""


def test_topology_of_this_machine_is_shown(hotrow: Command) -> None:
    done = hotrow("plan", "topology", "--json", "found.json")
    assert done.exit_code == 0, done.output
    assert "node 0" in done.stdout
    assert json.loads(Path("found.json").read_text())["topology"]["nodes"][0]["number"] == 0


def test_topology_of_another_host_is_planned_with_reasons(hotrow: Command) -> None:
    done = hotrow("plan", "topology", "--sys", FOUR_SOCKETS.write(Path("sys")), "--trainers", 8, "--json", "found.json")
    assert done.exit_code == 0, done.output
    assert "GPU 0000:17:00.0 is attached to node 1" in done.stdout
    assert "nvme7n1" in done.stdout, "a device of node 3"
    found = json.loads(Path("found.json").read_text())
    roles = [binding["role"] for binding in found["plan"]["bindings"]]
    assert Counter(roles) == {"reader": 1, "trainer": 8, "store": 1}


def test_apply_is_for_this_host_alone(hotrow: Command) -> None:
    done = hotrow("plan", "topology", "--apply", "--sys", TWO_SOCKETS.write(Path("sys")))
    assert done.exit_code == 2
    assert "is another host, whose threads cannot be bound here" in done.stderr


def test_capacity_of_a_run_is_printed_written_and_drawn(hotrow: Command) -> None:
    config = write_data(Path())
    config.write_text(config.read_text() + CLUSTER)
    done = hotrow("plan", "capacity", config, "--json", "plan.json", "--picture", "plan.svg")
    assert done.exit_code == 0, done.output
    assert "Sync: with one trainer there is nothing to wait for" in done.stdout
    assert "all 3,000 rows were read" in done.stdout
    found = json.loads(Path("plan.json").read_text())
    assert found["tables"][0]["distinct"] == 70, "40 users and 30 items"
    assert found["trainer_samples_per_s"] == 5000
    assert found["hosts"]["assumptions"] == []
    assert ElementTree.parse("plan.svg").getroot().tag.endswith("svg")


def test_a_cluster_of_another_file_is_taken_and_training_reads_the_section_too(hotrow: Command) -> None:
    config = write_data(Path())
    Path("hosts.toml").write_text(CLUSTER)
    done = hotrow("plan", "capacity", config, "--cluster", "hosts.toml", "--rows", 300_000, "--json", "plan.json")
    assert done.exit_code == 0, done.output
    assert "3,000 of 300,000 rows were read" in done.stdout
    assert json.loads(Path("plan.json").read_text())["hosts"]["hosts"] == 2
    config.write_text(config.read_text() + CLUSTER)
    assert hotrow("train", config).exit_code == 0


REFUSED = {
    "no file": ((), "give the config of a run, or --parameters"),
    "both": (("small.toml", "--parameters", "100T"), "give the config of a run, or --parameters"),
    "unknown field": (("small.toml", "--set", "cluster.host=3"), "did you mean hosts?"),
    "no host": (("small.toml", "--set", "cluster.hosts=0"), "cluster.hosts=0: "),
    "no size": (("small.toml", "--set", "cluster.ram=64"), "cluster.ram=64: is not a size"),
    "no section": (("small.toml", "--cluster", "small.toml"), "has no section [cluster]"),
    "small sample": (("small.toml", "--sample", "500", "--rows", "3000"), "the sample has 500 rows: 2,000 or more"),
    "sample of unknown rows": (("small.toml", "--sample", "500"), "give --rows too"),
    "dim of a config": (("small.toml", "--dim", "16"), "--dim 16: belongs to --parameters"),
    "no number": (("--parameters", "many"), "--parameters many: must be a number"),
    "no optimizer": (("--parameters", "1T", "--optimizer", "adagard"), "did you mean adagrad?"),
    "no drawing": (("small.toml", "--picture", "plan.png"), "is drawn as .svg"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned_is_a_sentence(arguments: tuple[str, ...], message: str, hotrow: Command) -> None:
    write_data(Path())
    done = hotrow("plan", "capacity", *arguments)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_paper_s_model_is_planned_without_a_file(hotrow: Command) -> None:
    done = hotrow("plan", "capacity", "--parameters", "100T", "--dim", 128, "--json", "plan.json")
    assert done.exit_code == 0, done.output
    assert "781,250,000,000" in done.stdout
    assert json.loads(Path("plan.json").read_text())["ram_only_hosts"] == 86
