"""A trainer of a cluster on a GPU beside the same on the CPU: same losses in every kind of mode, and how fast each is.

    python benchmarks/gpu_trainer.py --json benchmarks/results/gpu_trainer.json

Two shards and the trainer are processes behind real sockets; Ray is not needed. With one device there is one trainer,
so collectives are NCCL's with a single rank. Without a device it says so and measures the CPU alone.
"""

import argparse
import json
import multiprocessing
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hotrow.client.sharded import ShardedTables
from hotrow.config import Table
from hotrow.data.loader import Loader
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.models.deepfm import DeepFM
from hotrow.modes import GBA, Async, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.nn.inputs import InputShape
from hotrow.optim.dense import KStepAdam
from hotrow.optim.sparse import Adagrad
from hotrow.runtime.cluster.backend import ClusterBackend
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.server.dense_service import DenseService
from hotrow.server.dense_shard import DenseShard, spread
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Stop
from hotrow.transport.server import RpcServer
from hotrow.worker.process import TrainerProcess
from hotrow.worker.setup import TrainerSetup

SHARDS = ["shard 0", "shard 1"]
FEATURES, NUMBERS, DIM = 26, 13, 16
TABLES = {"default": Table(dim=DIM, optimizer=Adagrad(lr=0.05, initial=1e-8))}
ALIKE = {"sync": Sync(), "k_step": KStep(k=4, warmup=0), "async": Async(), "gba": GBA()}
TOLERANCE = 1e-4


def network(hidden: list[int], rule: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    shape = InputShape(NUMBERS, {f"id_{place}": DIM for place in range(1, FEATURES + 1)})
    model = DeepFM(shape, hidden=tuple(hidden), activation="tanh")
    made = KStepAdam if rule == "k_step" else torch.optim.Adam
    return model, made(model.parameters(), lr=0.001)


def places(model: nn.Module) -> dict[str, list[int]]:
    return dict(zip(SHARDS, spread([each.numel() for each in model.parameters()], len(SHARDS)), strict=True))


def serve_shard(number: int, hidden: list[int], rule: str, told: Connection) -> None:
    torch.set_num_threads(1)
    model, optimizer = network(hidden, rule)
    with RpcServer(security="off") as server:
        shard = Shard(TABLES, number=number, shards=len(SHARDS))
        piece = DenseShard(model, optimizer, places(model)[SHARDS[number]], buffers=number == 0)
        told.send(server.address)
        ShardServer(shard, server, DenseService(piece)).serve()
        shard.close()


def serve_trainer(device: str, threads: int, hidden: list[int], rule: str, told: Connection) -> None:
    model, optimizer = network(hidden, rule)
    with RpcServer(security="off") as server, RpcClient(security="off") as wire:
        for name, address in told.recv().items():
            wire.connect(name, address)
        setup = TrainerSetup(TABLES, SHARDS, model, optimizer, [0.001], places(model), threads=threads, device=device)
        trainer = TrainerProcess(setup, server, wire)
        told.send(server.address)
        trainer.serve()


@contextmanager
def cluster(device: str, threads: int, hidden: list[int], rule: str, now: Any) -> Iterator[ClusterBackend]:
    spawn = multiprocessing.get_context("spawn")
    started = []

    def start(serve: Any, *given: Any, first: Any = None) -> str:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(*given, theirs), daemon=True)
        process.start()
        started.append(process)
        theirs.close()  # so that the end of the process is the end of the pipe
        if first is not None:
            ours.send(first)
        return str(ours.recv())

    addresses = {name: start(serve_shard, number, hidden, rule) for number, name in enumerate(SHARDS)}
    addresses["trainer 0"] = start(serve_trainer, device, threads, hidden, rule, first=dict(addresses))
    model, optimizer = network(hidden, rule)
    with RpcClient(security="off") as wire:
        for name, address in addresses.items():
            wire.connect(name, address)
        roles = Roles(wire, SHARDS, ["trainer 0"], lambda: None)
        client = ShardedTables(TABLES, wire, SHARDS, threads=1)
        hosts: dict[str, str] = defaultdict(lambda: "127.0.0.1")
        try:
            yield ClusterBackend(model, client, optimizer, roles, now, places=places(model), hosts=hosts)
        finally:
            for name in reversed(addresses):
                wire.request(name, Stop()).result(30)
    for process in started:
        process.join(30)


def trained(
    device: str, mode: Mode, hidden: list[int], steps: int, samples: int, *, threads: int = 1, skip: int = 0
) -> tuple[list[float], float]:
    """Losses of all steps, and samples a second after the first ones."""
    seen = {"samples": 0}

    def account(more: int, dense_step: bool) -> tuple[int, float]:
        seen["samples"] += more
        return seen["samples"], 1.0

    stream = SyntheticSource(SyntheticConfig(rows=steps * samples, test_rows=0, ids=200_000))
    losses, moments = [], []
    with cluster(device, threads, hidden, mode.name, lambda: (seen["samples"], 1.0)) as site:
        engine = TrainingLoop(site, account, mode=mode, facts=RunFacts(1, samples, samples))
        loader = Loader(stream, samples)
        pool = LeaseQueue(iter(loader))
        pool.open_epoch()
        for step in engine.steps(pool, 0, loader.done):
            moments.append(time.perf_counter())
            losses += [float(batch.loss) for batch in step.batches]
        engine.rest()
        engine.close()
        pool.close()
    passed = moments[-1] - moments[skip] if len(moments) > skip + 1 else float("nan")
    return losses, samples * (len(moments) - 1 - skip) / passed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    found: dict[str, Any] = {"torch": torch.__version__, "cpu": platform.processor() or platform.machine()}
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    found["device"] = torch.cuda.get_device_name() if len(devices) == 2 else None
    for name, mode in ALIKE.items():
        losses = {device: trained(device, mode, [64, 32], given.steps, given.samples)[0] for device in devices}
        assert all(len(each) == given.steps for each in losses.values()), {
            key: len(each) for key, each in losses.items()
        }
        if "cuda" in losses:
            apart = np.abs(np.subtract(losses["cuda"], losses["cpu"])) / np.abs(losses["cpu"])
            found[f"{name}_apart_millionths"] = round(1e6 * float(apart.max()), 3)
            found[f"{name}_same"] = bool(apart.max() <= TOLERANCE)
        print(
            name,
            losses["cpu"][0],
            losses["cpu"][-1],
            {key: value for key, value in found.items() if name in key},
            flush=True,
        )
    for hidden in ([64, 32], [400, 400, 400], [4096, 4096, 1024]):
        label = "x".join(map(str, hidden))
        for device in devices:
            threads = given.threads if device == "cpu" else 1
            steps = given.steps if hidden[0] < 4096 or device == "cuda" else 12
            _, rate = trained(device, Hybrid(), hidden, steps, given.samples, threads=threads, skip=steps // 4)
            found[f"hybrid_{label}_{device}_samples_per_s"] = round(rate)
            print(label, device, round(rate), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
