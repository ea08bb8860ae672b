"""Several hosts, as far as one machine has them: two raylets, each with some of the roles."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).parents[2]
TOLD = "trainer 1 takes part", "the node of trainer 1 is being drained: it leaves", "trainer 1 has left"


def told_by(program: str) -> dict[str, Any]:
    """The result of a program of its own: a process knows one Ray at a time."""
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", f"integration.on_ray.{program}"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_a_run_takes_the_trainer_of_a_node_that_comes_and_gives_it_back_when_the_node_is_drained() -> None:
    told = told_by("elastic_nodes")
    assert told["counts"] == [1, 2, 1]
    joined, drained, left = (told["told"].index(each) for each in TOLD)
    assert joined < drained < left
    assert told["samples"] == told["read"], "every sample is trained once"
    assert "trainers_lost" not in told["statistics"]
    assert told["global_batch"] == 16


def test_a_cluster_on_two_nodes_trains_as_one_process_does() -> None:
    told = told_by("two_nodes")
    np.testing.assert_allclose(told["found"], told["expected"], rtol=0, atol=1e-5)
    assert len(told["found"]) == 20
    nodes = {name: node for name, (node, _) in told["where"].items()}
    assert sorted(nodes) == ["shard 0", "trainer 0", "trainer 1"]
    assert len(set(nodes.values())) == 2
    assert not any("127.0.0.1" in address for _, address in told["where"].values())
    assert told["ended"]
