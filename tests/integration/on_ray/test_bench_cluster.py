"""`hotrow bench cluster` at small sizes: every part gives its figures, on real clusters."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torchrec_peer

from hotrow.bench.cluster.measured import measure
from hotrow.bench.cluster.plan import PARTS, ClusterPlan
from hotrow.bench.rounds import Figures, SilentProgress

KEYS = {
    "shared-memory": ("shm_vs_tcp", "shm_read_vs_tcp", "shm_small_vs_tcp", "shm_gibps", "tcp_gibps"),
    "same": ("sync_equals_local", "sync_sgd_apart_millionths"),
    "auc": ("auc_gap_hybrid_sync", "auc_gap_fp16_scaled", "auc_sync"),
    "wire": ("wire_rows_ratio", "wire_pooled_ratio", "wire_pooled_shards_ratio"),
    "delay": (
        "hybrid_vs_sync_delay",
        "hybrid_vs_async_delay",
        "hybrid_bound_share",
        "hybrid_near_share",
        "narrow_bound_round_trip_ms",
    ),
    "look-ahead": (
        "sync_ahead_equals_sync",
        "sync_ahead_vs_sync_delay",
        "sync_ahead_bound_share",
        "hybrid_vs_sync_ahead_delay",
        "ahead_near_sync_ahead_step_ms",
    ),
    "readers": ("reader_scaling", "reader_scaling_share", "readers_one_samples_per_s"),
    "straggler": ("gba_straggler_kept", "sync_straggler_kept", "straggler_pace"),
    "overhead": (
        "overhead_vs_local",
        "narrow_t1_overhead_vs_local_sync",
        "narrow_t1_cluster_shard_cpu_ms",
        "narrow_t1_local_cpu_ms",
    ),
    "coordinator": (
        "coordinator_batches_per_s",
        "coordinator_gba_batches_per_s",
        "coordinator_async_batches_per_s",
    ),
    "peers": ("vs_twin_d16", "narrow_d16_sync_vs_twin", "narrow_d16_hybrid_step_ms", "narrow_d16_twin_step_ms"),
}


def whole(found: Figures, part: str) -> None:
    for key in KEYS[part]:
        value = found[key]
        assert value is not None, key
        assert math.isfinite(value), key


@pytest.mark.slow
def test_delayed_shards_give_every_figure_of_their_part(one_ray: None, tmp_path: Path) -> None:
    plan = ClusterPlan().quick()
    found = measure(plan, ("delay",), tmp_path, SilentProgress())
    whole(found, "delay")
    for kind in ("off", "key", "curve"):
        assert (found[f"wire_{kind}_round_trip_ms"] or 0) > 0
        assert (found[f"wire_{kind}_gibps"] or 0) > 0
    trip = 2 * plan.delay_s * 1e3
    assert (found["narrow_delay_sync_step_ms"] or 0) > 2 * trip  # rows have to come and gradients to go, one by one
    assert (found["narrow_bound_round_trip_ms"] or 0) > trip / plan.in_flight


@pytest.mark.slow
def test_the_command_writes_every_figure(tmp_path: Path, data_dir: object) -> None:
    out = tmp_path / "cluster.json"
    hotrow = str(Path(sys.executable).with_name("hotrow"))
    command = [hotrow, "bench", "cluster", "--quick", "--json", str(out)]
    assert callable(data_dir)
    command += ["--peer", str(Path(__file__).parents[1] / "twin_peer.py")]
    if torchrec_peer.lack() is None:
        command += ["--peer", torchrec_peer.__file__]
    command += ["--criteo", str(data_dir("criteo_dac80k") / "criteo_dac80k.tsv.gz")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    for part in PARTS:
        whole(found, part)
    assert found["sync_equals_local"] == 1
    assert found["sync_ahead_equals_sync"] == 1
    assert found["wire_rows_ratio"] <= 0.25
    assert found["wire_pooled_ratio"] <= 0.55
    assert {"commit", "machine", "versions"} <= set(found)
    assert str(tmp_path) not in json.dumps(found["job"])
