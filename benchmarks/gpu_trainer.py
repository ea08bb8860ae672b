"""A trainer of a cluster on a GPU beside the same on the CPU: same losses in every kind of mode and with every kind of
cache, how fast each is, and how many bytes cross the bus to the GPU.

    python benchmarks/gpu_trainer.py --json benchmarks/results/gpu_trainer.json
    python benchmarks/gpu_trainer.py --part caches --json caches.json

Two shards and the trainer are processes behind real sockets; neither Ray nor pyarrow is needed. With one device there
is one trainer, so collectives are NCCL's with a single rank. Without a device it says so and measures the CPU alone.
It exits with 1 where losses differ.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpu_provenance import gpu_provenance
from script_options import options_with_json, whole_number
from trainer_processes import Job, cluster, leases
from zipf_batches import FEATURES

from hotrow.config import Cache, Table
from hotrow.modes import GBA, Async, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.obs.cache_counts import hit_share
from hotrow.obs.table_counts import by_table
from hotrow.optim.sparse import Adagrad
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.state import RunState

ALIKE = {"sync": Sync(), "k_step": KStep(k=4, warmup=0), "async": Async(), "gba": GBA()}
IN_ORDER = Hybrid(max_in_flight=1)  # a cache of one trainer changes nothing then
TOLERANCE = 1e-4
SMALL = [64, 32]


@dataclass(frozen=True)
class Trained:
    """One run."""

    losses: list[float]
    samples_per_s: float  # after the first steps
    figures: dict[str, float]  # of the trainer


@dataclass(frozen=True)
class Workload:
    steps: int
    samples: int
    ids: int  # of each feature
    dim: int
    threads: int

    def table(self, cache: Cache | None = None) -> Table:
        return Table(dim=self.dim, optimizer=Adagrad(lr=0.05, initial=1e-8), cache=cache)

    def trained(self, device: str, mode: Mode, hidden: list[int], cache: Cache | None = None) -> Trained:
        threads = self.threads if device == "cpu" else 1
        job = Job({"default": self.table(cache)}, hidden, k_step=mode.name == "k_step", threads=threads)
        state, skip = RunState(), self.steps // 4
        losses, moments = [], []
        data = list(leases(self.steps, self.samples, self.ids))  # made before the clock runs
        with cluster(device, job, state) as there:
            facts = RunFacts(1, self.samples, self.samples)
            loop = TrainingLoop(there.backend, state, mode=mode, facts=facts)
            pool = LeaseQueue(iter(data))
            pool.open_epoch()
            for step in loop.steps(pool, 0):
                moments.append(time.perf_counter())
                losses += [float(batch.loss) for batch in step.batches]
            figures = there.figures()
            loop.rest()
            loop.close()
            pool.close()
        timed = len(moments) - 1 - skip
        assert len(losses) == self.steps, f"{len(losses)} of {self.steps} batches were trained"
        return Trained(losses, self.samples * timed / (moments[-1] - moments[skip]), figures)


def apart(ours: Trained, theirs: Trained) -> float:
    """The largest difference of two losses, as a part of theirs."""
    return float((np.abs(np.subtract(ours.losses, theirs.losses)) / np.abs(theirs.losses)).max())


def modes_alike(work: Workload, devices: list[str], found: dict[str, Any]) -> None:
    for name, mode in ALIKE.items():
        runs = {device: work.trained(device, mode, SMALL) for device in devices}
        if "cuda" in runs:
            note_same(found, name, runs["cuda"], runs["cpu"])
        print(name, runs["cpu"].losses[0], runs["cpu"].losses[-1], flush=True)


def note_same(found: dict[str, Any], name: str, ours: Trained, theirs: Trained) -> None:
    found[f"{name}_apart_millionths"] = round(1e6 * apart(ours, theirs), 3)
    found[f"{name}_same"] = apart(ours, theirs) <= TOLERANCE


def speeds(work: Workload, devices: list[str], found: dict[str, Any]) -> None:
    for hidden in (SMALL, [400, 400, 400], [4096, 4096, 1024]):
        label = "x".join(map(str, hidden))
        for device in devices:
            rate = work.trained(device, Hybrid(), hidden).samples_per_s
            found[f"hybrid_{label}_{device}_samples_per_s"] = round(rate)
            print(label, device, round(rate), flush=True)


def bus_bytes(work: Workload, run: Trained) -> float:
    """Bytes of rows, vectors, gradients and places of ids that a sample moves to the GPU and back."""
    names = ("cache_to_device.default", "cache_from_device.default")
    if names[0] in run.figures:
        return sum(run.figures[name] for name in names) / (work.steps * work.samples)
    return FEATURES * work.dim * 4 * 2  # vectors there, gradients back


def caches(work: Workload, devices: list[str], found: dict[str, Any], capacity: int, staleness: int) -> None:
    """Without a cache, with one in host memory, with one in GPU memory."""
    device = devices[-1]
    kinds = {
        "none": None,
        "host": Cache(capacity=capacity, staleness=staleness, memory="host"),
        "gpu": Cache(capacity=capacity, staleness=staleness),
    }
    if device == "cpu":
        del kinds["gpu"]
    reference = work.trained("cpu", IN_ORDER, SMALL)
    for kind, cache in kinds.items():
        if (device, kind) != ("cpu", "none"):  # that run is the reference
            run = work.trained(device, IN_ORDER, SMALL, cache)
            check_place(kind, run)
            note_same(found, f"cache_{kind}", run, reference)
    for kind, cache in kinds.items():
        run = work.trained(device, Hybrid(), [400, 400, 400], cache)
        check_place(kind, run)
        found[f"cache_{kind}_samples_per_s"] = round(run.samples_per_s)
        found[f"cache_{kind}_wire_bytes_per_sample"] = round(
            (run.figures["bytes_sent"] + run.figures["bytes_received"]) / (work.steps * work.samples)
        )
        if device == "cuda":
            found[f"cache_{kind}_bus_bytes_per_sample"] = round(bus_bytes(work, run))
        if cache is not None:
            found[f"cache_{kind}_hit_share"] = round(hit_share(by_table(run.figures, "cache")["default"]), 4)
        print(kind, {name: value for name, value in found.items() if f"cache_{kind}_" in name}, flush=True)


def check_place(kind: str, run: Trained) -> None:
    """A trainer that cannot keep cached rows in GPU memory keeps them in host memory, and logs why."""
    if kind == "gpu" and "cache_to_device.default" not in run.figures:
        raise SystemExit("gpu_trainer: the cached rows are not in GPU memory: pip install 'hotrow[gpu]' for Triton")


def different(found: dict[str, Any]) -> list[str]:
    """What was trained to other losses than on the CPU."""
    return [name.removesuffix("_same") for name, same in found.items() if name.endswith("_same") and not same]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=["modes", "speeds", "caches"], action="append")
    parser.add_argument("--steps", type=whole_number(2), default=60)
    parser.add_argument("--samples", type=whole_number(1), default=4096)
    parser.add_argument("--ids", type=whole_number(1), default=100_000, help="of each of the 26 features")
    parser.add_argument("--dim", type=whole_number(1), default=16)
    parser.add_argument("--threads", type=whole_number(1), default=1)
    parser.add_argument("--capacity", type=whole_number(1), default=500_000, help="rows of a cache")
    parser.add_argument("--staleness", type=whole_number(0), default=10, help="of a cache")
    parser.add_argument("--commit", help="of the sources, where there is no git")
    given = options_with_json(parser)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    if len(devices) == 1:
        print("gpu_trainer: no GPU here: the CPU alone is measured", file=sys.stderr)
    found: dict[str, Any] = {
        **gpu_provenance("gpu_trainer.py", given.commit),
        "arguments": {name: value for name, value in vars(given).items() if name not in ("json", "commit")},
    }
    work = Workload(given.steps, given.samples, given.ids, given.dim, given.threads)
    for part in given.part or ["modes", "speeds", "caches"]:
        if part == "modes":
            modes_alike(work, devices, found)
        elif part == "speeds":
            speeds(work, devices, found)
        else:
            caches(work, devices, found, given.capacity, given.staleness)
        if given.json is not None:  # after every part
            given.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    if names := different(found):
        raise SystemExit(
            f"gpu_trainer: losses differ from those on the CPU by more than {TOLERANCE}: {', '.join(names)}"
        )


if __name__ == "__main__":
    main()
