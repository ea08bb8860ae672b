"""The mode of a plan is the fastest one, with its reason, unless it gains too little over Sync."""

import pytest

from hotrow.plan.speed import GAIN, BatchSeconds, choose_mode


def seconds(compute: float = 0.1, rows: float = 0.0, disk: float = 0.0, dense: float = 0.0) -> BatchSeconds:
    return BatchSeconds(compute, rows, disk, dense)


def test_one_trainer_trains_in_sync() -> None:
    found = choose_mode(seconds(), local_batch=100, trainers=1, parts=1, slowest=1.0)
    assert found.mode == "sync"
    assert found.samples_per_s == {"sync": pytest.approx(1000)}


def test_equal_trainers_without_traffic_are_as_fast_in_every_mode_and_stay_in_sync() -> None:
    found = choose_mode(seconds(), local_batch=100, trainers=4, parts=4, slowest=1.0)
    assert found.mode == "sync"
    assert list(found.samples_per_s.values()) == [pytest.approx(4000)] * 4


def test_a_slow_trainer_is_a_reason_for_gba() -> None:
    found = choose_mode(seconds(), local_batch=100, trainers=4, parts=4, slowest=2.0)
    assert found.mode == "gba"
    assert found.samples_per_s["sync"] == pytest.approx(2000)
    assert found.samples_per_s["gba"] == pytest.approx(3500)
    assert found.reason.startswith("GBA: 75 % faster than Sync; the slowest trainer takes 2 times as long")


def test_lookups_are_a_reason_for_hybrid() -> None:
    found = choose_mode(seconds(rows=0.05, disk=0.03), local_batch=100, trainers=4, parts=4, slowest=1.0)
    assert found.mode == "hybrid"
    assert found.samples_per_s["hybrid"] == pytest.approx(4000), "lookups are hidden"
    assert found.samples_per_s["sync"] == pytest.approx(400 / 0.18)


def test_dense_gradients_are_a_reason_for_k_step() -> None:
    found = choose_mode(seconds(dense=0.1), local_batch=100, trainers=4, parts=4, slowest=1.0)
    assert found.mode == "k_step"
    assert found.samples_per_s["k_step"] == pytest.approx(400 / 0.11)


@pytest.mark.parametrize(("more", "mode"), [(0.99, "sync"), (1.01, "hybrid")])
def test_a_gain_has_to_be_larger_than_that_of_automatic_switching(more: float, mode: str) -> None:
    lookup = 0.1 * GAIN * more
    assert choose_mode(seconds(rows=lookup), local_batch=100, trainers=2, parts=2, slowest=1.0).mode == mode
