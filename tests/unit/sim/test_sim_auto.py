"""Auto in virtual time: there and back as the cluster slows down and recovers, and nothing in between."""

from itertools import pairwise

from hotrow.sim import ClusterConfig, CountingWork, Faults, LogNormal, Network, Speeds, Stragglers
from hotrow.sim.auto import AutoDecision, AutoPilot
from hotrow.sim.cluster import SimCluster
from hotrow.sim.faults import Crash
from hotrow.switching import Auto

SLOW = Stragglers(workers=(1, 4), factor=4.0, from_s=300.0, until_s=900.0)
# Dense parameters make a batch in GBA two seconds longer; Sync reduces them at no cost.
NETWORK = Network(worker_bandwidth=100)
DENSE = 100


def driven(
    rule: Auto, *, faults: Faults | None = None, slow: Stragglers = SLOW, parts: int = 6
) -> tuple[AutoPilot, SimCluster]:
    speeds = Speeds(batch_s=10.0, sample_s=0.0, batches=LogNormal(sigma=0.01), stragglers=(slow,))
    config = ClusterConfig(
        workers=6, local_batch=1, global_batch=parts, speeds=speeds, network=NETWORK, faults=faults or Faults()
    )
    pilot = AutoPilot(rule, config, dense_bytes=DENSE)
    cluster = pilot.cluster(data=10**6, work=CountingWork(dense_bytes=DENSE), seed=1)
    return pilot, cluster


def modes(told: list[AutoDecision]) -> list[str]:
    return [each.mode for each in told]


def test_it_goes_to_gba_when_workers_straggle_and_back_to_sync_when_they_do_not() -> None:
    pilot, cluster = driven(Auto(minimum_stay=60.0))
    cluster.run(until_s=2000.0)
    assert modes(pilot.decisions) == ["gba", "sync"]
    there, back = pilot.decisions
    assert 300 < there.time_s < 600
    assert 900 < back.time_s < 1600
    assert there.sentence.startswith("to GBA: ")
    assert cluster.mode.name == "sync"
    assert pilot.stays > 50


def test_the_tolerance_of_the_rule_is_that_of_the_gba_it_goes_to() -> None:
    pilot, cluster = driven(Auto(tolerance=9, minimum_stay=60.0))
    cluster.run(until_s=850.0)
    assert cluster.mode.model_dump()["tolerance"] == 9
    assert len(pilot.decisions) == 1


def test_advice_is_told_and_not_taken() -> None:
    pilot, cluster = driven(Auto(advise=True, minimum_stay=60.0))
    cluster.run(until_s=850.0)
    assert cluster.mode.name == "sync"
    assert modes(pilot.decisions)[0] == "gba"
    assert all(each.sentence.startswith("advice: ") and not each.switch for each in pilot.decisions)


def test_a_gain_that_nobody_can_have_changes_nothing() -> None:
    pilot, cluster = driven(Auto(gain=50.0))
    cluster.run(until_s=2000.0)
    assert pilot.decisions == []


def test_who_crashed_is_forgotten() -> None:
    """A straggler that is gone holds nobody back: the other five fill the five parts of a step evenly."""
    crash = Faults(crashes=(Crash(worker=0, at_s=1000.0),), detect_s=1.0)
    slow = Stragglers(workers=(0,), factor=4.0, from_s=300.0)
    pilot, cluster = driven(Auto(minimum_stay=60.0), faults=crash, slow=slow, parts=5)
    cluster.run(until_s=2500.0)
    assert modes(pilot.decisions) == ["gba", "sync"]
    assert pilot.decisions[1].time_s > 1000


def test_who_came_back_is_known_again() -> None:
    crash = Faults(crashes=(Crash(worker=0, at_s=100.0, restart_after_s=50.0),), detect_s=1.0)
    pilot, cluster = driven(Auto(minimum_stay=60.0), faults=crash)
    cluster.run(until_s=2000.0)
    assert modes(pilot.decisions) == ["gba", "sync"]


def test_a_hasty_rule_changes_as_often_as_it_says() -> None:
    """Steps that close while a switch drains ask for no second one."""
    slow = Stragglers(share=0.4, factor=6.0, every_s=60.0)
    pilot, cluster = driven(Auto(gain=0.0, minimum_stay=0.0, window=1), slow=slow)
    cluster.run(until_s=6000.0)
    told = modes(pilot.decisions)
    assert len(told) > 10
    assert all(first != then for first, then in pairwise(told))
