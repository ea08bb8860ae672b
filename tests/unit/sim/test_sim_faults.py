"""Faults as data: checked when made, and drawn for each message by itself."""

import pytest

from hotrow.errors import ConfigError
from hotrow.sim.config import ClusterConfig
from hotrow.sim.faults import Crash, Fates, Faults, Join, Messages, Pause, ShardCrash, drawn_faults


def test_fates_come_as_often_as_their_chances_say() -> None:
    fates = Fates(Messages(loss=0.2, duplicate=0.3, delay=0.4, delay_s=10.0, timeout_s=1.0), seed=1)
    copies = [fates.copies(grant, 0, 1) for grant in range(5000)]
    arrived = [each for each in copies if each]
    assert 1 - len(arrived) / 5000 == pytest.approx(0.2, abs=0.02)
    assert sum(len(each) == 2 for each in arrived) / len(arrived) == pytest.approx(0.3, abs=0.03)
    late = [each[0] for each in arrived if each[0] > 0]
    assert len(late) / len(arrived) == pytest.approx(0.4, abs=0.03)
    assert sum(late) / len(late) == pytest.approx(5.0, abs=0.3)
    assert all(each[1] >= each[0] for each in arrived if len(each) == 2)


def test_a_lost_request_costs_a_timeout_each_time() -> None:
    fates = Fates(Messages(loss=0.5, timeout_s=2.0), seed=3)
    delays = [fates.pull_delay_s(grant) for grant in range(4000)]
    assert {delay % 2.0 for delay in delays} == {0.0}
    assert sum(delays) / 4000 == pytest.approx(2.0, abs=0.15)  # as often lost as not: once on average


def test_the_fate_of_a_message_does_not_depend_on_others() -> None:
    messages = Messages(loss=0.3, duplicate=0.3, delay=0.3, delay_s=1.0)
    forward, backward = Fates(messages, seed=9), Fates(messages, seed=9)
    assert [forward.copies(n, 1, 2) for n in range(50)] == [backward.copies(n, 1, 2) for n in range(49, -1, -1)][::-1]
    assert [forward.copies(n, 1, 2) for n in range(50)] != [Fates(messages, seed=8).copies(n, 1, 2) for n in range(50)]
    assert [forward.copies(n, 1, 2) for n in range(50)] != [forward.copies(n, 1, 3) for n in range(50)]


def test_drawn_faults_fit_any_cluster_and_leave_the_first_worker_alone() -> None:
    drawn = [drawn_faults(seed, 2 + seed % 7, 30.0) for seed in range(200)]
    for seed, faults in enumerate(drawn):
        ClusterConfig(workers=2 + seed % 7, local_batch=1, faults=faults)
        assert all(crash.worker > 0 and crash.at_s < 30 for crash in faults.crashes)
    assert {len(faults.crashes) > 0 for faults in drawn} == {True, False}
    assert any(crash.restart_after_s is None for faults in drawn for crash in faults.crashes)
    assert any(crash.cut_off for faults in drawn for crash in faults.crashes)
    assert any(faults.joins for faults in drawn)
    assert any(faults.pauses for faults in drawn)
    assert not any(faults.shard_crashes for faults in drawn)


def test_drawn_crashes_of_shards_fit_their_number() -> None:
    drawn = [drawn_faults(seed, 2, 30.0, shards=1 + seed % 3) for seed in range(200)]
    for seed, faults in enumerate(drawn):
        ClusterConfig(workers=2, local_batch=1, shards=1 + seed % 3, faults=faults)
        assert all(crash.at_s < 30 for crash in faults.shard_crashes)
    assert {crash.shard for faults in drawn for crash in faults.shard_crashes} == {0, 1, 2}
    assert {len(faults.shard_crashes) for faults in drawn} == {0, 1, 2, 3, 4}


def test_servers_are_silent_while_they_pause_or_a_shard_is_down() -> None:
    crashes = (ShardCrash(shard=0, at_s=3, restart_after_s=2), ShardCrash(shard=1, at_s=9, restart_after_s=1))
    faults = Faults(pauses=(Pause(at_s=1, for_s=2.5), Pause(at_s=20, for_s=1)), shard_crashes=crashes)
    assert faults.silent == [(1, 5), (9, 10), (20, 21)]
    assert Faults().silent == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Faults(crashes=(Crash(worker=1, at_s=5), Crash(worker=1, at_s=9))),
            "worker 1 crashes at 9 s and is down since 5 s: give the first crash a restart_after_s that ends before",
        ),
        (
            lambda: Faults(crashes=(Crash(worker=1, at_s=8), Crash(worker=1, at_s=5, restart_after_s=4))),
            "worker 1 crashes at 8 s and is down since 5 s",
        ),
        (lambda: Faults(joins=(Join(worker=4, at_s=1), Join(worker=4, at_s=2))), "worker 4 joins twice"),
        (
            lambda: Faults(
                shard_crashes=(
                    ShardCrash(shard=0, at_s=5, restart_after_s=2),
                    ShardCrash(shard=1, at_s=6, restart_after_s=2),
                )
            ),
            "shard 1 crashes at 6 s, and shard 0 is down since 5 s: give the first crash a restart_after_s that ends",
        ),
        (
            lambda: ClusterConfig(
                workers=2,
                local_batch=1,
                shards=2,
                faults=Faults(shard_crashes=(ShardCrash(shard=2, at_s=1, restart_after_s=1),)),
            ),
            "shard 2 crashes, but there are 0 to 1: set shards, or another number",
        ),
        (
            lambda: Faults(pauses=(Pause(at_s=3, for_s=1), Pause(at_s=1, for_s=2.5))),
            "the pauses at 1 s and 3 s overlap: make one of them",
        ),
        (lambda: Messages(delay=0.1), "with delay=0.1 messages are late by no time: give delay_s too"),
        (lambda: Messages(loss=0.95), "Messages.loss=0.95"),
        (
            lambda: ClusterConfig(workers=4, local_batch=1, faults=Faults(crashes=(Crash(worker=4, at_s=1),))),
            "worker 4 crashes at 1 s and is not present: there are 0 to 3, and those in joins from their at_s on",
        ),
        (
            lambda: ClusterConfig(workers=4, local_batch=1, faults=Faults(joins=(Join(worker=3, at_s=1),))),
            "worker 3 is present from the start, as all below workers=4: number those that join from 4 on",
        ),
        (
            lambda: ClusterConfig(workers=4, local_batch=8, global_batch=7),
            "ClusterConfig.global_batch=7: is below local_batch=8: a global batch holds one local batch or more",
        ),
    ],
)
def test_settings_that_cannot_be_are_told_in_a_sentence(make: object, told: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError) as error:
        make()
    assert told in str(error.value)


def test_crashes_one_after_the_other_and_of_those_who_joined_are_fine() -> None:
    crashes = (Crash(worker=1, at_s=5, restart_after_s=4), Crash(worker=1, at_s=9), Crash(worker=4, at_s=2))
    config = ClusterConfig(workers=4, local_batch=8, faults=Faults(crashes=crashes, joins=(Join(worker=4, at_s=2),)))
    assert config.facts.global_batch == 32
