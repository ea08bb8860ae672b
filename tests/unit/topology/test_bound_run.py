"""Threads of a real run have the processors of the plan, as the kernel tells them; without the setting all of them.

The machine of the test has one node: the run is told of two, each with one of its cores.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from unit.topology.made_hosts import ONE_NODE, TWO_CORES, MadeHost

PROGRAM = """
import json, sys, threading
from pathlib import Path
import numpy as np
import hotrow as hr
from hotrow import _native
from hotrow.data import ArrowSource, Schema
from hotrow.topology import sysfs
from hotrow.topology.affinity import allowed_cpus
import pyarrow as pa

def threads():
    names = {each.native_id: each.name for each in threading.enumerate()}
    found = {}
    for task in Path("/proc/self/task").iterdir():
        comm = (task / "comm").read_text().strip()
        name = "store" if comm == "hotrow-store" else names.get(int(task.name))
        if name:
            found.setdefault(name, set()).add(allowed_cpus(int(task.name)))
    return {name: sorted(cpus) for name, cpus in found.items()}


rng = np.random.default_rng(0)
rows = 8192 * 12
data = pa.table({"clicked": rng.integers(0, 2, rows), "user": rng.integers(0, 10**9, rows)})
source = ArrowSource(data, Schema(label="clicked", ids=["user"]))


def trained(root, workers, bind):
    sysfs.SYS = Path(root)
    model = hr.models.build("lr", hr.InputShape(numbers=0, fields={"user": 1}))
    mode = hr.Async() if workers > 1 else hr.Sync(look_ahead=1)
    trainer = hr.Trainer(
        model, hr.Table(dim=8), global_batch=8192, workers=workers, mode=mode, threads=2, report_every_s=0.0,
        engine={"name": "local", "bind_cores": bind},
    )
    seen, remarks, before = {}, [], _native.interleave_counts()
    for report in trainer.fit(source):
        seen |= threads()
        if hasattr(report, "sentence"):
            remarks.append(report.sentence)
    blocks = [new - old for new, old in zip(_native.interleave_counts(), before)]
    maps = Path("/proc/self/numa_maps")
    interleaved = sum("interleave" in line for line in maps.read_text().splitlines()) if maps.exists() else None
    trainer.close()
    return {"seen": seen, "remarks": remarks, "blocks": blocks, "maps": interleaved, "after": threads()}


print(json.dumps([trained(*case) for case in json.loads(sys.argv[1])]))
"""


CASES: dict[str, tuple[MadeHost, int, bool]] = {
    "not wanted": (TWO_CORES, 2, False),
    "one node": (ONE_NODE, 2, True),
    "one worker": (TWO_CORES, 1, True),
    "two workers": (TWO_CORES, 2, True),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases, one after the other in one process."""
    roots = [host.write(tmp_path_factory.mktemp("sys")) for host, _, _ in CASES.values()]
    cases = [(str(root), workers, bind) for root, (_, workers, bind) in zip(roots, CASES.values(), strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(cases)],
        capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


FREE = [sorted(os.sched_getaffinity(0))]
needs_two_cores = pytest.mark.skipif(
    not {0, 1} <= os.sched_getaffinity(0), reason="the test needs processors 0 and 1 of this machine"
)


@needs_two_cores
def test_every_role_of_a_run_with_several_workers_is_bound(runs: dict[str, Any]) -> None:
    seen = runs["two workers"]["seen"]
    assert seen["worker-0"] == [[1]], "near the GPU"
    assert seen["worker-1"] == [[1]]
    assert seen["hotrow-reader"] == [[0]], "near the network interface"
    assert seen["store"] == [[0]], "the thread of the store beside the one that calls"
    assert seen["MainThread"] == [[0]], "which updates rows"
    assert any(remark.startswith("bind_cores: 2 NUMA nodes: ") for remark in runs["two workers"]["remarks"])


@needs_two_cores
def test_one_worker_computes_near_its_gpu_while_rows_are_read_ahead(runs: dict[str, Any]) -> None:
    seen = runs["one worker"]["seen"]
    assert seen["MainThread"] == [[1]]
    assert seen["look-ahead_0"] == [[0]]


@needs_two_cores
def test_memory_of_a_table_is_interleaved_while_threads_are_bound(runs: dict[str, Any]) -> None:
    found = runs["one worker"]
    if any("refuses mbind" in remark for remark in found["remarks"]):
        pytest.skip("the system of this test refuses mbind")  # in a container without CAP_SYS_NICE
    blocks, refused = found["blocks"]
    assert blocks > 0
    assert refused == 0
    assert found["maps"] is None or found["maps"] > 0, "as the kernel tells it"


@needs_two_cores
def test_the_end_of_a_run_sets_threads_free(runs: dict[str, Any]) -> None:
    after = runs["two workers"]["after"]
    assert after["MainThread"] == FREE
    assert after["store"] == FREE


@pytest.mark.parametrize("case", ["one node", "not wanted"])
def test_nothing_is_bound_on_one_node_or_without_the_setting(case: str, runs: dict[str, Any]) -> None:
    found = runs[case]
    assert {name: cpus for name, cpus in found["seen"].items() if cpus != FREE} == {}
    assert "store" in found["seen"]
    assert found["blocks"] == [0, 0]
    said = [remark for remark in found["remarks"] if remark.startswith("bind_cores: ")]
    assert [remark.startswith("bind_cores: one NUMA node") for remark in said] == [True] * (case == "one node")
