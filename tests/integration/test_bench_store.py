"""`hotrow bench store` at tiny sizes: contestants do the same work, all figures are there, the pieces are right."""

import json
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fbgemm_peer import FbgemmPeer, lack
from numpy.typing import NDArray

from hotrow import Adagrad, RowwiseAdagrad, Table, _native
from hotrow.bench import report
from hotrow.bench.curve import measure_curve
from hotrow.bench.growth import worst_stall_ms
from hotrow.bench.ids import keys_of, random_order_keys, zipf_batches
from hotrow.bench.limits import step_limit
from hotrow.bench.peers import StorePeer, load_adapters
from hotrow.bench.picture import curve_svg, threads_svg
from hotrow.bench.plan import StorePlan
from hotrow.bench.rounds import BURST, WARM_UP_ROUNDS, SilentProgress, interleave, median_ratio
from hotrow.bench.store import SHARED, measure
from hotrow.bench.threads import ThreadsPlan, measure_threads
from hotrow.bench.torch_peers import TorchPeer
from hotrow.errors import ConfigError
from hotrow.store import RamTier

TWIN = Path(__file__).with_name("twin_peer.py")
TINY = StorePlan(rows=2_000, dims=(4,), rounds=2, threads=1, samples=16, pool=4, copy_bytes=1 << 16)
WANTED = [
    "step_mids",
    "step_vs_torch",
    "step_vs_twin",
    "rowwise_vs_twin",
    "find_mids",
    "limit_share",
    "unique_mids",
    "bytes_per_row_overhead",
    "worst_growth_ms",
    "worst_idle_stall_ms",
    "worst_touch_stall_ms",
    "rowwise_mids",
    "torch_mids",
    "twin_mids",
    "twin_rowwise_mids",
    "twin_huge_share",
    "random_read_mrows",
    "evict_step_vs_plain",
    "evicted_per_batch",
    "bytes_per_row_overhead_lru",
    "shm_vs_anon",
    "bf16_vs_fp32",
    "attach_mrows",
    "attach_open_ms",
]

needs_fbgemm = pytest.mark.skipif(lack() is not None, reason="FBGEMM is not installed")


def trained(peer: StorePeer, optimizer: Adagrad | RowwiseAdagrad) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Values of the peer and of ours after the same steps from the same first values."""
    rows, dim = peer.values.shape
    tier = RamTier(Table(dim=dim, optimizer=optimizer), threads=2)
    keys, rng = keys_of(np.arange(rows)), np.random.default_rng(5)
    tier.put(keys, peer.values.numpy().copy(), np.zeros((rows, tier.state_dim), np.float32))
    for step, batch in enumerate(zipf_batches(rows, 400, 6)):
        gradients = rng.normal(0, 1, (400, dim)).astype(np.float32)
        peer.step(batch.rows, torch.from_numpy(gradients))
        tier.apply(batch.keys, gradients, step=step)
    ours = np.empty((rows, dim), np.float32)
    tier.find(keys, ours)
    return peer.values.numpy(), ours


def test_torch_peer_does_what_our_step_does() -> None:
    theirs, ours = trained(TorchPeer(300, 16, lr=0.05), Adagrad(lr=0.05))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@needs_fbgemm
@pytest.mark.parametrize("rowwise", [False, True])
def test_fbgemm_peer_does_what_our_step_does(rowwise: bool) -> None:
    optimizer = RowwiseAdagrad(lr=0.05) if rowwise else Adagrad(lr=0.05)
    theirs, ours = trained(FbgemmPeer(300, 16, lr=0.05, rowwise=rowwise), optimizer)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_every_promised_figure_is_there_and_finite() -> None:
    figures = measure(TINY, SilentProgress(), load_adapters([TWIN], "store"))
    for key in [f"d4_{name}" for name in WANTED] + list(SHARED):
        value = figures[key]
        assert value is not None, key
        assert math.isfinite(value), key


def test_without_a_peer_torch_and_the_machine_are_measured_and_threads_given_back(tmp_path: Path) -> None:
    path, before = tmp_path / "result.json", torch.get_num_threads()
    report.write_json(path, report.document(TINY, measure(TINY, SilentProgress()), None))
    assert torch.get_num_threads() == before
    result = json.loads(path.read_text())
    assert [key for key in result if key.startswith("d4_step_vs_")] == ["d4_step_vs_torch"]
    assert result["d4_step_vs_torch"] > 0
    assert {"command", "commit", "machine", "versions", "isa", "date", "limits"} <= result.keys()


def test_curve_has_a_point_for_each_size_and_a_picture_that_parses() -> None:
    points = measure_curve(TINY, SilentProgress())
    assert [point["rows"] for point in points] == [200, 400, 1_000, 2_000, 4_000]
    drawing = ElementTree.fromstring(curve_svg(points, "sizes < & > are escaped"))
    assert len(drawing.findall(".//{*}polyline")) == 4
    assert "Hotrow, whole step" in "".join(drawing.itertext())


def test_threads_have_a_point_each_and_a_picture_that_parses() -> None:
    plan = replace(ThreadsPlan().quick(), rows=2_000, batches=(256, 12_288), most=3, rounds=1)
    assert plan.threads == [1, 2, 3]
    assert replace(plan, most=8).threads == [1, 2, 4, 8]
    points = measure_threads(plan, SilentProgress())
    assert [point["threads"] for point in points] == [1, 2, 3]
    for point in points:
        for ids in plan.batches:
            step_ms = ids / point[f"d4_{ids}_mids"] / 1e3
            parts_ms = sum(point[f"d4_{ids}_{part}_ms"] for part in ("plan", "find", "apply"))
            assert 0 < parts_ms < 5 * step_ms
            assert point[f"d4_{ids}_torch_mids"] > 0
    drawing = ElementTree.fromstring(threads_svg(points, 4, plan.batches, "a & b"))
    assert len(drawing.findall(".//{*}polyline")) == 4
    with pytest.raises(ConfigError, match="take fewer --rows"):
        replace(plan, rows=10**12).check_memory()


def test_zipf_ids_follow_the_exact_weights() -> None:
    (batch,) = zipf_batches(rows=50, ids=400_000, batches=1)
    share = np.sort(np.bincount(batch.rows, minlength=50) / 400_000)[::-1]
    weight = np.arange(1, 51) ** -1.05
    np.testing.assert_allclose(share, weight / weight.sum(), atol=0.003)
    assert batch.unique == 50


def test_keys_are_distinct_and_large() -> None:
    keys = random_order_keys(100_000)
    assert len(np.unique(keys)) == 100_000
    assert np.median(keys) > 2**60
    np.testing.assert_array_equal(np.sort(keys), np.sort(keys_of(np.arange(100_000))))


def test_a_stall_is_measured_against_its_neighbours() -> None:
    seconds = np.linspace(0.010, 0.020, 200)  # slower as it grows is no stall
    seconds[120] += 0.025
    assert worst_stall_ms(seconds) == pytest.approx(25, abs=1)


def test_ratios_are_taken_within_a_round() -> None:
    weather = np.array([1.0, 10.0, 3.0])  # how slow the machine was in each round
    assert median_ratio(2 * weather, weather) == pytest.approx(2)


def test_everyone_runs_in_every_round_and_warm_up_is_left_out() -> None:
    turns: dict[str, list[int]] = {"a": [], "b": []}

    def contestant(name: str, turn: int) -> float:
        turns[name].append(turn)
        return float(turn // BURST)

    seconds = interleave({"a": lambda n: contestant("a", n), "b": lambda n: contestant("b", n)}, 4, SilentProgress())
    assert turns == {name: list(range((WARM_UP_ROUNDS + 4) * BURST)) for name in "ab"}
    for taken in seconds.values():
        np.testing.assert_array_equal(taken, WARM_UP_ROUNDS + np.arange(4.0))


def test_limit_of_a_step_adds_random_reads_and_straight_bytes() -> None:
    one, none = np.array([1.0]), np.array([0.0])
    assert step_limit(100, 40, 16, 16, one, none) == pytest.approx(140)  # 100 values, 40 states
    assert step_limit(100, 40, 16, 16, none, one) == pytest.approx(4 * (2 * 100 * 16 + 40 * 32))


def test_limits_take_time_and_refuse_rows_that_are_not_there() -> None:
    field = _native.RowField(1_000, 40, 2)  # 40 bytes: a row that is no whole number of cache lines
    assert field.read_seconds(np.arange(1_000), 2) > 0
    assert field.read_seconds(np.empty(0, np.int64), 2) >= 0
    assert _native.CopyField(1 << 16, 2).copy_seconds(2) > 0
    for row in (-1, 1_000):
        with pytest.raises(ValueError, match=f"row {row}: must be 0 to 999"):
            field.read_seconds(np.array([0, row]), 1)
    with pytest.raises(ValueError, match="row_bytes=6"):
        _native.RowField(10, 6, 1)
    with pytest.raises(ValueError, match="threads=0"):
        _native.CopyField(64, 0)


def test_a_run_that_does_not_fit_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigError, match="take fewer --rows"):
        StorePlan(rows=10**12).check_memory()
