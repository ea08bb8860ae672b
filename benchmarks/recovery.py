"""How long a run stands still where a shard is killed, and what keeping dense parameters in shared memory costs.

    python benchmarks/recovery.py --json benchmarks/results/recovery.json

One shard with rows of dim 16 and Adagrad, one trainer that trains in async, on a Ray that is started for it.
"""

import argparse
import json
import os
import secrets
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.bench.machine import provenance
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.modes import Async
from hotrow.nn.inputs import Inputs
from hotrow.runtime.cluster.shard_restarts import StartShard
from hotrow.server.dense_memory import DenseMemory
from hotrow.server.shared_rows import dense_path
from hotrow.trainer import Progress, Trainer
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Query, QueryReply
from hotrow.types import RoleId

FEATURES, DIM, SAMPLES, CHUNK = 8, 16, 512, 500_000
SHARD = RoleId("shard", 0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES * DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, inputs: Inputs) -> Tensor:
        odds: Tensor = self.layers(inputs.rows.flatten(1))[:, 0]
        return odds


class TimedStart:
    """Starts a shard, and notes when that began and ended."""

    def __init__(self, start: StartShard) -> None:
        self._start = start
        self.began = self.ended = 0.0

    def __call__(self, name: RoleId, *, incarnation: int, checkpoint: str | None) -> str:
        self.began = time.monotonic()
        address = self._start(name, incarnation=incarnation, checkpoint=checkpoint)
        self.ended = time.monotonic()
        return address


def batches(rows: int, count: int) -> list[Batch]:
    chance = np.random.default_rng(0)
    names = tuple(f"f{number}" for number in range(FEATURES))
    made = []
    for _ in range(count):
        block = FeatureBlock("default", "one", names, chance.integers(0, rows, SAMPLES * FEATURES))
        labels = (chance.random((SAMPLES, 1)) < 0.3).astype(np.float32)
        made.append(Batch((block,), np.zeros((SAMPLES, 0), np.float32), labels))
    return made


def recovery(trainer: Trainer, rows: int) -> dict[str, float]:
    """Seconds from the kill to each stage."""
    assert trainer._open.cluster is not None
    restarts = trainer._open.cluster.shard_restarts
    restarts._start = timed = TimedStart(restarts._start)
    assert trainer.cluster is not None
    pid, killed, answered, rate = trainer.cluster.roles[SHARD].pid, 0.0, 0.0, []
    before = time.monotonic()
    for report in trainer.fit(batches(rows, 120)):
        if not isinstance(report, Progress):
            continue
        now = time.monotonic()
        if killed and timed.ended and not answered:
            answered = now
        if not killed:
            rate.append(now - before)
        before = now
        if report.samples % (120 * SAMPLES) == 60 * SAMPLES:
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
    scan = figures(trainer)["attach_s"]
    return {
        "noticed_s": timed.began - killed,
        "process_start_s": timed.ended - timed.began - scan,
        "scan_s": scan,
        "first_pull_s": answered - timed.ended,
        "whole_s": answered - killed,
        "step_s": statistics.median(rate[5:]),
    }


def figures(trainer: Trainer) -> dict[str, float]:
    cluster = trainer.cluster
    assert cluster is not None
    with RpcClient(security=cluster.security, key=cluster.key) as wire:
        wire.connect("shard", cluster.roles[SHARD].address)
        return wire.request("shard", Query("status")).result().of(QueryReply, "shard").figures


def fill(trainer: Trainer, rows: int) -> None:
    tier = trainer.tables.tiers["default"]
    chance = np.random.default_rng(1)
    for start in range(0, rows, CHUNK):
        keys = np.arange(start, min(rows, start + CHUNK), dtype=np.uint64)
        tier.put(keys, chance.normal(size=(len(keys), DIM)).astype(np.float32), None, {})


def dense_write_ms(parameters: int, rounds: int = 30) -> float:
    """The median time to write parameters and both moments of Adam."""
    memory = DenseMemory(dense_path(f"run-{secrets.token_hex(4)}", 0, 1))
    tensors = {name: torch.randn(parameters) for name in ("parameter", "exp_avg", "exp_avg_sq")}
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        memory.write(tensors, {"step": 1, "order": 1})
        took.append(time.perf_counter() - began)
    memory.close()
    return 1_000 * statistics.median(took)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--kills", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    table = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.05))
    found: dict[str, Any] = {"rows": given.rows, "dim": DIM, "kills": []}
    engine = hr.Ray(trainers=1, shards=1, replace_lost=given.kills)
    trainer = Trainer(Net(), table, engine=engine, mode=Async(), global_batch=SAMPLES, report_every_s=0, threads=1)
    try:
        fill(trainer, given.rows)
        for _ in range(given.kills):
            found["kills"].append(recovery(trainer, given.rows))
    finally:
        trainer.close()
    for name in found["kills"][0]:
        found[name] = round(statistics.median(each[name] for each in found["kills"]), 3)
    found["dense_parameters"] = 500_000
    found["dense_write_ms"] = round(dense_write_ms(500_000), 2)
    found |= provenance("python benchmarks/recovery.py")
    print(json.dumps({name: value for name, value in found.items() if name.endswith(("_s", "_ms"))}, indent=2))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
