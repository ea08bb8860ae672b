"""All of `hotrow bench cluster`, one part after the other, on one Ray that is started for those that need it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import ray

from hotrow.bench.cluster import (
    coordinator,
    delay,
    look_ahead,
    overhead,
    peers,
    readers,
    same,
    straggler,
    talk,
    talk_rings,
    wire_bytes,
)
from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.peers import Adapter
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.bench.train import write_file
from hotrow.bench.workload import torch_threads
from hotrow.runtime.ray.own import own_ray

ROLES = 64  # places for actors: more than are ever there at once


def measure(
    plan: ClusterPlan, parts: tuple[str, ...], folder: Path, watch: BenchProgress, adapters: Sequence[Adapter] = ()
) -> Figures:
    """The figures of some parts, flat. A file is made in `folder`."""
    alone: Mapping[str, Callable[[], Figures]] = {  # they need neither Ray nor the file
        "shared-memory": lambda: talk_rings.measure(plan, watch),
        "coordinator": lambda: coordinator.measure(plan, watch),
    }
    found: Figures = {}
    for part in parts:
        if part in alone:
            found |= alone[part]()
    on_ray = tuple(part for part in parts if part not in alone)
    if on_ray:
        with ray_for_roles(), torch_threads(1):
            found |= _parts(plan, on_ray, folder, watch, adapters)
    return found


@contextmanager
def ray_for_roles(roles: int = ROLES) -> Iterator[None]:
    """One for all parts, unless this process has one already. It starts a process for each role beforehand."""
    if ray.is_initialized():
        yield
        return
    with own_ray(roles, log_to_driver=False):
        yield


def _parts(
    plan: ClusterPlan, parts: tuple[str, ...], folder: Path, watch: BenchProgress, adapters: Sequence[Adapter]
) -> Figures:
    found, spoken = talk.measure(plan, watch)
    watch.stage("writing the file", plan.rounds)
    file = folder / "bench.parquet"
    source = write_file(plan.train, file, watch)
    known: Mapping[str, Callable[[], Figures]] = {
        "same": lambda: same.measure_sync(plan, watch),
        "auc": lambda: same.measure_auc(plan, folder, watch),
        "wire": lambda: wire_bytes.measure(plan, watch),
        "delay": lambda: delay.measure(plan, source, spoken, watch),
        "look-ahead": lambda: look_ahead.measure(plan, source, watch),
        "straggler": lambda: straggler.measure(plan, source, folder, watch),
        "readers": lambda: readers.measure(plan, file, source, watch),
        "overhead": lambda: overhead.measure(plan, source, watch),
        "peers": lambda: peers.measure(plan, source, file, watch, adapters),
    }
    for part in parts:
        found |= known[part]()
    return found
