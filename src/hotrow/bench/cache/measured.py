"""All of `hotrow bench cache`, one part after the other; Ray is started for those that need clusters."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotrow.bench.cache import against_oracles, decisions, hit, policies, saved_bytes
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.cache.report import CacheResults
from hotrow.bench.rounds import BenchProgress
from hotrow.bench.workload import torch_threads


def measure(
    plan: CachePlan, parts: tuple[str, ...], folder: Path, data: Path | None, watch: BenchProgress
) -> CacheResults:
    """Files are made in `folder`; `data` has data sets in folders of their own."""
    found = CacheResults()
    with torch_threads(1):
        if "bytes" in parts:
            figures, found.grid = saved_bytes.measure_traces(plan, data, watch)
            found.figures |= figures
        if "oracles" in parts:
            figures, found.oracles = against_oracles.measure(plan, data, watch)
            found.figures |= figures
        if "policies" in parts:
            figures, found.policies, found.points = policies.measure(plan, watch)
            found.figures |= figures
        if "hit" in parts:
            found.figures |= hit.measure(plan, watch)
            found.figures |= decisions.measure(plan, watch)
        if "wire" in parts or "epoch" in parts:
            with _ray(plan):
                _on_clusters(plan, parts, folder, watch, found)
    return found


def _on_clusters(
    plan: CachePlan, parts: tuple[str, ...], folder: Path, watch: BenchProgress, found: CacheResults
) -> None:
    from hotrow.bench.cache import epoch

    if "wire" in parts:
        figures, found.wire = saved_bytes.measure_wire(plan, folder, watch)
        found.figures |= figures
    if "epoch" in parts:
        figures, found.epochs = epoch.measure(plan, folder, watch)
        found.figures |= figures


@contextmanager
def _ray(plan: CachePlan) -> Iterator[None]:
    """Room for two clusters."""
    from hotrow.bench.cluster.measured import ray_for_roles

    with ray_for_roles(2 * (plan.workers + 2)):
        yield
