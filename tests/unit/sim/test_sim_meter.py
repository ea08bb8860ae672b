"""What is measured: samples over time, and intervals for pictures."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.modes import Async
from hotrow.sim import ClusterConfig, SimCluster, Speeds, Stragglers
from hotrow.sim.meter import MOST_BINS, Rate, SimMeter


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 100)), min_size=1, max_size=60))
def test_bins_that_grow_lose_no_sample(added: list[tuple[float, int]]) -> None:
    rate, now_s = Rate(), 0.0
    for gap_s, samples in added:
        now_s += gap_s
        rate.add(now_s, samples)
    assert sum(rate.bins) == sum(samples for _, samples in added)
    assert len(rate.bins) <= MOST_BINS
    assert now_s < len(rate.bins) * rate.width_s


def test_windows_are_whole_and_hold_what_came_in_them() -> None:
    rate = Rate()
    for place in range(100):
        rate.add(place * 0.1 + 0.05, 10)
    windows = rate.windows(10.0, 1.0)
    assert len(windows) == pytest.approx(10, abs=1)
    assert all(samples_per_s == pytest.approx(100, rel=0.06) for _, samples_per_s in windows)
    assert rate.windows(0.0, 0.0) == []


def test_a_window_without_samples_is_a_window() -> None:
    rate = Rate()
    rate.add(0.0005, 4)
    assert rate.windows(0.003, 0.001) == [(0.0, 4000.0), (0.001, 0.0), (0.002, 0.0)]


def test_lanes_stop_at_their_number_and_say_how_many_are_missing() -> None:
    meter = SimMeter(lanes=2)
    for start in range(4):
        meter.lane(0, float(start), start + 0.5, "compute")
    meter.lane(0, 9.0, 9.0, "wait")  # of no length
    assert [lane.start_s for lane in meter.lanes] == [0.0, 1.0]
    assert meter.lanes_left_out == 2
    nothing = SimMeter(lanes=0)
    nothing.lane(0, 0.0, 1.0, "compute")
    assert (nothing.lanes, nothing.lanes_left_out) == ([], 0)


def test_a_result_has_the_rates_of_all_and_of_each() -> None:
    speeds = Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(1,), factor=2.0),))
    config = ClusterConfig(workers=2, local_batch=10, speeds=speeds, window_s=4.0)
    result = SimCluster(Async(), config, data=10_000).run(until_s=100.0)
    assert (result.seconds, result.samples_applied, result.finished) == (100.0, 1500, False)
    assert result.qps == 15.0
    assert {number: each.qps for number, each in result.workers.items()} == {0: 10.0, 1: 5.0}
    assert (result.local_qps, result.local_qps_spread) == (7.5, 2.5)
    assert [each.busy_share for each in result.workers.values()] == [1.0, 1.0]
    assert result.qps_spread == pytest.approx(0.0, abs=2.6)
    assert sum(rate for _, rate in result.rates) / len(result.rates) == pytest.approx(15.0, rel=0.05)
    document = json.loads(json.dumps(result.document()))
    assert document["workers"]["1"]["batches"] == 50
    assert document["statistics"]["granted"] == 152
