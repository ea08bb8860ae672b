"""Automatic switching over a day: what is counted, what is compared, and where its promises break."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hotrow.reproduce import auto_auc, auto_day
from hotrow.reproduce.auto_day import promises
from hotrow.reproduce.auto_schedule import Stretch
from hotrow.reproduce.auto_throughput import DAYS, LOCAL_BATCH, WORKERS, cluster, stretches, throughput
from hotrow.reproduce.results import silent
from hotrow.reproduce.settings import GLOBAL_BATCH, TASK
from hotrow.sim.auto import AutoDecision
from hotrow.switching import Auto


def test_a_day_of_longer_steps_keeps_its_proportions() -> None:
    day = DAYS["working day"]
    short, long = cluster(day), cluster(day, batch_s=160.0, local_batch=64, dense_bytes=4_000)
    for config, batch_s, dense_bytes in ((short, 16.0, 200_000_000), (long, 160.0, 4_000)):
        assert config.speeds.sample_s * config.local_batch == pytest.approx(batch_s)
        assert config.network.message_s(dense_bytes) == pytest.approx(0.1 * batch_s, rel=0.001)
        assert config.network.all_reduce_s(WORKERS, dense_bytes) == pytest.approx(0.02 * batch_s, rel=0.05)
        assert config.speeds.stragglers[0].every_s == pytest.approx(300.0 / 16.0 * batch_s)


def test_what_the_controller_told_becomes_stretches_of_the_day() -> None:
    told = [AutoDecision(10.0, 1, "gba", True, "to GBA"), AutoDecision(30.0, 2, "sync", True, "to Sync")]
    assert stretches(told, 50.0) == [
        Stretch("sync", 0.0, 10.0),
        Stretch("gba", 10.0, 30.0),
        Stretch("sync", 30.0, 50.0),
    ]
    assert stretches([], 50.0) == [Stretch("sync", 0.0, 50.0)]


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """A day of steps that take ten times as long."""
    return throughput(cluster(DAYS["two shifts"], batch_s=160.0), {"auto": Auto()}, 1)


def test_nobody_beats_the_upper_bound_and_both_pure_modes_lose_to_switching(counted: dict[str, Any]) -> None:
    whole = WORKERS * LOCAL_BATCH * 86_400 / 16.0 / 10 / (WORKERS * LOCAL_BATCH)  # steps of a machine that never waits
    assert counted["upper_bound_samples"] < whole * WORKERS * LOCAL_BATCH
    auto = counted["auto"]["samples"]
    assert max(auto, *(counted[name] for name in ("sync", "gba", "schedule"))) < 1.0
    assert counted["schedule"] > max(counted["sync"], counted["gba"])
    assert auto > counted["sync"]
    assert counted["quiet_lead"] > 0.1


def test_the_one_who_knows_switches_for_noon_and_the_controller_says_why(counted: dict[str, Any]) -> None:
    assert [each["mode"] for each in counted["schedule_switches"]] == ["gba", "sync", "gba", "sync"]
    auto = counted["auto"]
    assert auto["switches"][0]["mode"] == "gba"
    assert auto["switches"][0]["sentence"].startswith("to GBA: ")
    assert auto["needless"] <= len(auto["switches"])


def test_models_are_compared_pair_by_pair_on_the_same_rows() -> None:
    task = replace(TASK, days=2, train_rows=14 * GLOBAL_BATCH, test_rows=4_000)
    told: list[str] = []
    found = auto_auc.compared(task, Auto(minimum_stay=0.0, window=5), (1, 2), told.append)
    assert len(told) == len(found["pairs"]) == 2
    for pair in found["pairs"]:
        assert 0.5 < pair["sync"] < 1.0
        assert abs(pair["auto"] - pair["sync"]) < 0.05
    gaps = [pair["auto"] - pair["sync"] for pair in found["pairs"]]
    assert found["auto_minus_sync"]["mean"] == pytest.approx(sum(gaps) / 2)
    assert found["auto_minus_sync"]["low"] <= min(gaps)


def test_auto_that_never_switches_trains_the_same_bits_as_sync() -> None:
    task = replace(TASK, days=2, train_rows=6 * GLOBAL_BATCH, test_rows=4_000)
    found = auto_auc.compared(task, Auto(minimum_stay=1e9), (3, 4), silent)
    assert [pair["switches"] for pair in found["pairs"]] == [[], []]
    assert found["auto_minus_sync"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "pairs": 2}


def judged(
    *, auto: float = 0.96, needless: int = 2, crossings: int = 2, low: float = -9e-4, high: float = 9e-4
) -> list[bool]:
    day = {"auto": {"samples": auto, "needless": needless}, "schedule_switches": [{}] * crossings}
    auc = {"auto_minus_sync": {"mean": 0.0, "low": low, "high": high, "pairs": 5}}
    return [each["holds"] for each in promises({"day": {"1": day}}, auc)]


def test_promises_break_on_the_other_side_of_their_bounds() -> None:
    assert judged() == [True, True, True, True]
    assert judged(crossings=1) == [False, True, True, True]
    assert judged(auto=0.949) == [True, False, True, True]
    assert judged(needless=3) == [True, True, False, True]
    assert judged(low=-1.1e-3) == judged(high=1.1e-3) == [True, True, True, False]


def test_one_bad_seed_breaks_a_promise() -> None:
    good: dict[str, Any] = {"auto": {"samples": 0.96, "needless": 0}, "schedule_switches": [{}, {}]}
    bad = good | {"auto": {"samples": 0.9, "needless": 3}}
    auc = {"auto_minus_sync": {"mean": 0.0, "low": 0.0, "high": 0.0, "pairs": 5}}
    held = [each["holds"] for each in promises({"day": {"1": good, "2": bad}}, auc)]
    assert held == [True, False, False, True]


@pytest.mark.slow
def test_a_quick_run_is_plain_data() -> None:
    told: list[str] = []
    result = auto_day.run(True, tell=told.append)
    assert json.loads(json.dumps(result)) == result
    assert len(told) == 5
    assert "few stragglers" in "\n".join(auto_day.lines(result))
