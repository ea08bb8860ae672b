"""What is measured on this machine becomes settings of the cluster."""

import math
from dataclasses import astuple

import pytest

from hotrow.sim.study.calibrate import Compute, line_through, measured_compute, measured_wire
from hotrow.sim.study.study import Calibrated, Simulation, calibrated
from hotrow.sim.study.work import StudyRows
from simulations import TRAINED, config


def test_two_points_are_a_line() -> None:
    assert astuple(line_through(100, 0.3, 200, 0.5)) == pytest.approx((0.1, 0.002))


def test_noise_makes_no_part_negative_and_loses_no_time() -> None:
    steep = line_through(100, 0.1, 200, 0.4)  # the line would cut the axis below 0
    assert steep == Compute(0.0, 0.4 / 200)
    falling = line_through(100, 0.5, 200, 0.4)
    assert falling == Compute(0.5, 0.0)
    assert astuple(line_through(100, 0.2, 200, 0.4)) == pytest.approx((0.0, 0.002))


def test_a_batch_is_timed_at_two_sizes_and_alone_where_it_cannot_be_halved() -> None:
    sizes: list[int] = []
    measured_compute(sizes.append, 10)
    assert set(sizes) == {10, 5}
    assert sizes.count(10) == sizes.count(5)
    sizes.clear()
    found = measured_compute(sizes.append, 1)
    assert set(sizes) == {1}
    assert found.batch_s == 0


def test_a_wire_has_latency_and_bandwidth() -> None:
    wire = measured_wire()
    assert 0 < wire.latency_s < 1
    assert wire.bandwidth > 1_000_000


def test_measured_settings_fill_what_the_file_leaves_out_and_nothing_else() -> None:
    made = config(
        TRAINED,
        cluster={"speeds": {"calibrate": True, "batches": {"name": "log_normal", "sigma": 0.1}},
                 "network": {"calibrate": True, "latency_s": 0.5}},
    )  # fmt: skip
    found, settings = calibrated(made, StudyRows(made))
    speeds, network = found.cluster.speeds, found.cluster.network
    assert math.isfinite(speeds.batch_s)
    assert speeds.batch_s + 16 * speeds.sample_s > 0
    assert speeds.batches == made.cluster.speeds.batches
    assert network.latency_s == 0.5
    assert network.bandwidth == network.worker_bandwidth == network.reduce_bandwidth
    assert settings["cluster.speeds.sample_s"] == speeds.sample_s
    assert settings["cluster.speeds.calibrate"] is settings["cluster.network.calibrate"] is False
    assert "cluster.network.latency_s" not in settings


def test_only_what_asks_for_it_is_measured_and_the_simulation_goes_on_with_it() -> None:
    made = config(cluster={"network": {"calibrate": True}})
    simulation = Simulation(made, ["sync"])
    first = next(iter(simulation))
    assert isinstance(first, Calibrated)
    assert not any("speeds" in name for name in first.settings)
    assert simulation.config.cluster.network.latency_s == first.settings["cluster.network.latency_s"]
    assert simulation.config.cluster.speeds == made.cluster.speeds
