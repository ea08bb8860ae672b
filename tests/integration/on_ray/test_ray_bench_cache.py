"""`hotrow bench cache` on real clusters of tiny sizes: bytes, epochs over a link with a rate, and an all-gather."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hotrow.bench.cache import all_gather, clusters
from hotrow.bench.cache.counting import uncached_bytes
from hotrow.bench.cache.measured import measure
from hotrow.bench.cache.plan import CachePlan
from hotrow.bench.rounds import SilentProgress
from hotrow.errors import HotrowError
from hotrow.modes import Hybrid
from hotrow.optim.sparse import SGD

PLAN = replace(CachePlan().quick(), cluster_steps=8, cluster_warm=6)
WATCH = SilentProgress()


def test_an_all_gather_sends_the_blocks_of_all_other_ranks_and_waits_for_the_link(tmp_path: Path) -> None:
    file = tmp_path / "f.parquet"
    clusters.write_samples(PLAN, file, 1.1, WATCH)
    gbps = 1e-4  # 12.5 kB/s
    cost = all_gather.measure(replace(PLAN, cluster_steps=3), file, 0, gbps, skipped=1)
    assert cost.bytes_in == cost.bytes_out
    row = 8 + 4 * PLAN.dim
    assert row < cost.bytes_out <= (PLAN.workers - 1) * (8 + PLAN.ids * row)
    assert cost.seconds >= cost.link_s(gbps) * 0.99
    assert len(cost.processor_s) == PLAN.workers
    with pytest.raises(HotrowError, match="a rank of the all-gather ended with 1"):
        all_gather.measure(PLAN, tmp_path / "none.parquet", 0, gbps, skipped=1)


@pytest.mark.slow
def test_clusters_give_every_figure_of_their_parts(one_ray: None, tmp_path: Path) -> None:
    found = measure(PLAN, ("wire", "epoch"), tmp_path, None, WATCH)
    assert {"wire_bytes_saved_sgd", "wire_bytes_saved_adagrad", "wire_vs_trace_worst"} <= set(found.figures)
    assert {"epoch_speedup_1gbit", "epoch_bound_share", "epoch_speedup_own_cores_1gbit"} <= set(found.figures)
    assert [row.contestant for row in found.epochs] == ["hybrid cached", "hybrid", "sync look-ahead", "het ar"]
    assert [(each.mode, each.staleness) for each in found.wire[:2]] == [("hybrid", None), ("sync look-ahead", None)]
    plain = next(each for each in found.wire if each.staleness is None)
    assert plain.wire_bytes > plain.trace_bytes  # headers are on the wire only
    assert all(row.epoch_s > 0 and row.mb_per_step > 0 for row in found.epochs)


@pytest.mark.slow
def test_a_link_with_a_rate_slows_a_step_to_the_time_of_its_bytes(one_ray: None, tmp_path: Path) -> None:
    plan = replace(PLAN, dim=64)
    source = clusters.write_samples(plan, tmp_path / "f.parquet", 1.1, WATCH)
    gbps = 1e-3
    with closing(clusters.trainer_of(plan, SGD(lr=0.01), None, gbps)) as trainer:
        cost = clusters.step_cost(plan, trainer, Hybrid(), source, skipped=3)
    assert cost.nbytes > uncached_bytes(10, plan.dim)
    assert cost.seconds >= 0.8 * cost.link_s(gbps)  # messages on their way at both ends of the timed steps
