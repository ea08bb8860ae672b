"""Several hosts, as far as one machine has them: two raylets, each with some of the roles."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[2]


def test_a_cluster_on_two_nodes_trains_as_one_process_does() -> None:
    """In a program of its own: a process knows one Ray at a time."""
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "integration.on_ray.two_nodes"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(told["found"], told["expected"], rtol=0, atol=1e-5)
    assert len(told["found"]) == 20
    nodes = {name: node for name, (node, _) in told["where"].items()}
    assert sorted(nodes) == ["shard 0", "trainer 0", "trainer 1"]
    assert len(set(nodes.values())) == 2
    assert not any("127.0.0.1" in address for _, address in told["where"].values())
    assert told["ended"]
