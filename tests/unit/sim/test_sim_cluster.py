"""The cluster: what takes how long, who comes and goes, switches, and runs that repeat."""

from collections.abc import Sequence

import pytest

from hotrow.errors import ConfigError, InputError
from hotrow.modes import GBA, Async, BackupWorkers, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Apply, Discipline, Effect, Event, Grant, Group, Joined, Lost, Pushed, Ready, RunFacts
from hotrow.modes.mode import Dense
from hotrow.sim import (
    BatchBytes,
    Checkers,
    ClusterConfig,
    CountingWork,
    Crash,
    Faults,
    Join,
    LogNormal,
    Messages,
    Network,
    Pause,
    ShardCrash,
    SimCluster,
    SimLease,
    Speeds,
    Stragglers,
    Trace,
    drawn_faults,
)
from hotrow.switching import Observation

SECOND = Speeds(batch_s=1.0, sample_s=0.0)


class Seen:
    """Everything that passes by."""

    def __init__(self) -> None:
        self.modes: list[tuple[float, str, RunFacts]] = []
        self.events: list[tuple[float, Event]] = []
        self.effects: list[tuple[float, Effect]] = []
        self.cuts: list[float] = []

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        self.modes.append((time_s, mode.name, facts))

    def cut(self, time_s: float) -> None:
        self.cuts.append(time_s)

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        self.events.append((time_s, event))
        self.effects += [(time_s, effect) for effect in effects]

    def times(self, kind: type, worker: int | None = None) -> list[float]:
        seen = [*self.events, *self.effects]
        kinds = [(time_s, each) for time_s, each in seen if isinstance(each, kind)]
        return [round(time_s, 9) for time_s, each in kinds if worker in (None, getattr(each, "worker", -1))]

    @property
    def pushes(self) -> list[tuple[float, int, int]]:
        """(time, worker, grant) of each."""
        return [(time_s, event.worker, event.grant) for time_s, event in self.events if isinstance(event, Pushed)]

    @property
    def applied(self) -> list[int]:
        """Grants in the order in which they were applied."""
        return [part.grant for _, each in self.effects if isinstance(each, Apply) for part in each.parts]


def run(mode: Mode, data: int, work: CountingWork | None = None, seed: int = 0, **settings: object) -> Seen:
    seen, checkers = Seen(), Checkers()
    config = ClusterConfig(**{"workers": 2, "local_batch": 10, "speeds": SECOND, **settings})
    result = SimCluster(mode, config, data=data, work=work, seed=seed, watchers=[seen, checkers]).run()
    checkers.end(data)
    assert result.finished
    return seen


# What takes how long


def test_a_batch_takes_its_pull_its_computing_and_its_push() -> None:
    network = Network(latency_s=0.25, bandwidth=100)
    seen = run(Async(), 20, CountingWork(dense_bytes=50, row_bytes_per_sample=10), workers=1, network=network)
    down = up = 0.25 + (50 + 100) / 100
    assert seen.times(Pushed) == [down + 1.0 + up, 2 * (down + 1.0 + up)]
    assert seen.times(Grant) == [0.0, down + 1.0 + up]


def test_workers_queue_for_the_servers_links() -> None:
    seen = run(Async(), 30, CountingWork(row_bytes_per_sample=10), workers=3, network=Network(bandwidth=100))
    assert seen.times(Pushed) == [3.0, 4.0, 5.0]  # pulled by 1, 2, 3; computed by 2, 3, 4; the link is free each time


def test_in_sync_dense_gradients_go_by_the_ring_and_rows_by_the_servers() -> None:
    network = Network(latency_s=0.1, bandwidth=1000, reduce_latency_s=0.01, reduce_bandwidth=1000)
    work = CountingWork(dense_bytes=3000, row_bytes_per_sample=10)
    seen = run(Sync(), 40, work, network=network)
    ring = network.all_reduce_s(2, 3000)
    assert ring == pytest.approx(3.02)
    first_pull, second_pull = 0.2, 0.3  # latency, and the queue of 100 bytes each
    assert seen.times(Pushed)[:2] == pytest.approx([first_pull + 1 + 0.2, second_pull + 1 + 0.2])
    begun = second_pull + 1 + ring  # the collective begins when the last gradient is computed, not when its rows are in
    assert seen.times(Pushed)[2:] == pytest.approx([begun + 1 + 0.2, begun + 1 + 0.3])


def test_look_ahead_hides_the_rows_that_the_step_before_does_not_change() -> None:
    network = Network(bandwidth=100)
    steps = {}
    for look_ahead in (0, 1):
        work = CountingWork(row_bytes_per_sample=10, shared_rows=0.25)
        seen = run(Sync(look_ahead=look_ahead), 40, work, workers=1, network=network)
        steps[look_ahead] = seen.times(Pushed)
    assert steps[0] == [3.0, 6.0, 9.0, 12.0]  # pull, compute, push: a second each
    assert steps[1] == [3.0, 5.25, 7.5, 9.75]  # a quarter of the pull is left


def test_k_step_pays_for_a_merge_and_not_for_other_steps() -> None:
    work = CountingWork(dense_bytes=500)
    seen = run(KStep(k=2, warmup=0), 80, work, network=Network(reduce_bandwidth=1000))
    ring = 2 * Network(reduce_bandwidth=1000).all_reduce_s(2, 500)
    assert ring == 1.0
    assert sorted(set(seen.times(Pushed))) == [1.0, 2.0, 4.0, 5.0]  # steps 1 and 3 merge: t = 2 and 4
    merges = [effect.step for _, effect in seen.effects if isinstance(effect, Apply) and effect.group == "dense"]
    assert merges == [1, 3]


def test_hybrid_reads_rows_ahead_and_dense_parameters_when_their_step_has_come() -> None:
    seen = run(Hybrid(max_in_flight=2), 60, network=Network(latency_s=0.5))
    pushes = [event for _, event in seen.events if isinstance(event, Pushed)]
    pulled = {push.group: [each.pulled_step for each in pushes if each.group == push.group] for push in pushes}
    assert pulled["dense"] == [0, 0, 1, 1, 2, 2]
    assert pulled["embedding"] == [0, 0, 0, 0, 0, 1]  # the first asks again before the second's push closes the step
    assert sorted(set(seen.times(Pushed))) == [2.0, 3.5, 5.0]  # only the first batch waits for its rows


class OwnOfTwoGroups(Mode):
    """A mode of a user's own whose grants bring two pushes, and that is no Hybrid."""

    name: str = "own"

    @property
    def groups(self) -> tuple[Group, ...]:
        return ("embedding", "dense")

    @property
    def dense(self) -> Dense:
        return "all-reduce"

    def start(self, facts: RunFacts) -> Discipline:
        return Hybrid(max_in_flight=1).start(facts)


def test_a_mode_of_ones_own_pushes_the_groups_that_it_names() -> None:
    seen = Seen()
    config = ClusterConfig(workers=2, local_batch=10, speeds=SECOND)
    result = SimCluster(OwnOfTwoGroups(), config, data=80, watchers=[seen]).run()
    pushed = [event.group for _, event in seen.events if isinstance(event, Pushed)]
    assert sorted(pushed) == ["dense"] * 8 + ["embedding"] * 8
    assert result.samples_applied == 80


def test_a_straggler_holds_sync_back_and_not_async() -> None:
    speeds = Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(1,), factor=5.0),))
    config = ClusterConfig(workers=2, local_batch=10, speeds=speeds)
    rates = [SimCluster(mode, config, data=10**6).run(until_s=100.0).qps for mode in (Sync(), Async(), GBA())]
    assert rates == pytest.approx([4.0, 12.0, 12.0])


def test_a_pause_of_the_servers_holds_everybody_up() -> None:
    seen = run(Async(), 40, faults=Faults(pauses=(Pause(at_s=0.5, for_s=2.0),)))
    assert seen.times(Pushed) == [2.5, 2.5, 3.5, 3.5]


# Who comes and goes


def test_a_crash_is_noticed_late_and_its_data_go_to_the_next_who_asks() -> None:
    seen = run(Async(), 40, faults=Faults(crashes=(Crash(worker=1, at_s=0.5),), detect_s=2.0))
    assert seen.times(Lost) == [2.5]
    assert seen.times(Pushed) == [1.0, 2.0, 3.0, 4.0]
    assert {worker for _, worker, _ in seen.pushes} == {0}


def test_a_restart_that_is_quicker_than_the_detector_tells_of_the_loss_itself() -> None:
    faults = Faults(crashes=(Crash(worker=1, at_s=0.5, restart_after_s=0.25),), detect_s=2.0)
    seen = run(Sync(), 40, faults=faults)
    assert seen.times(Lost) == [0.75]
    assert seen.times(Joined, worker=1) == [0.0, 0.75]
    assert [type(event).__name__ for time_s, event in seen.events if time_s == 0.75] == ["Lost", "Joined", "Ready"]


def test_who_is_cut_off_finishes_and_its_push_comes_after_its_loss_and_counts_for_nothing() -> None:
    faults = Faults(crashes=(Crash(worker=1, at_s=0.5, restart_after_s=0.2, cut_off=True),), detect_s=0.1)
    seen = run(Async(), 40, faults=faults)
    assert seen.times(Lost) == [0.6]
    assert [push for push in seen.pushes if push[1] == 1] == [(1.0, 1, 2), (1.7, 1, 3), (2.7, 1, 5)]
    assert sorted(seen.applied) == [1, 3, 4, 5]


def test_the_dead_send_nothing() -> None:
    faults = Faults(crashes=(Crash(worker=1, at_s=0.5, restart_after_s=0.2),), detect_s=0.1)
    seen = run(Async(), 40, faults=faults)
    assert [grant for *_, grant in seen.pushes] == [1, 3, 4, 5]


def test_a_batch_that_ends_at_the_moment_of_the_crash_is_lost() -> None:
    seen = run(Async(), 40, faults=Faults(crashes=(Crash(worker=1, at_s=1.0),), detect_s=0.0))
    assert seen.times(Pushed, worker=1) == []


def test_a_newcomer_takes_its_part() -> None:
    seen = run(Async(), 100, faults=Faults(joins=(Join(worker=2, at_s=1.5),)))
    assert seen.times(Pushed, worker=2) == [2.5, 3.5]


def test_when_data_come_back_somebody_who_had_ended_takes_them() -> None:
    speeds = Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(1,), factor=9.0),))
    seen = run(Sync(), 20, speeds=speeds, faults=Faults(crashes=(Crash(worker=1, at_s=2.0),), detect_s=1.0))
    assert seen.times(Joined, worker=0) == [0.0, 3.0]
    assert seen.times(Pushed) == [1.0, 4.0]


def test_a_lost_push_is_sent_again_and_a_slow_one_may_come_twice() -> None:
    faults = Faults(messages=Messages(loss=0.3, duplicate=0.3, delay=0.3, delay_s=3.0, timeout_s=1.0))
    seen = run(Async(), 1000, faults=faults, seed=4)
    pushed = [grant for *_, grant in seen.pushes]
    assert len(set(pushed)) == 100
    assert len(pushed) > 120
    first = sorted(set(pushed), key=pushed.index)
    assert first != sorted(first)


def test_a_queue_at_the_servers_makes_nobody_send_again() -> None:
    faults = Faults(messages=Messages(delay=0.5, delay_s=0.1, timeout_s=0.2))
    work = CountingWork(row_bytes_per_sample=10)
    seen = run(Async(), 200, work, workers=4, network=Network(bandwidth=50), faults=faults)
    assert sorted(grant for *_, grant in seen.pushes) == list(range(1, 21))


def test_the_servers_do_not_answer_for_a_grant_that_was_given_up() -> None:
    pulled = list[int]()

    class Noting(CountingWork):
        def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
            pulled.append(grant.grant)
            return super().pull(grant, lease)

    faults = Faults(
        joins=(Join(worker=2, at_s=1.0),),  # it asks in the pause, is cut off in it, and is noticed before it ends
        pauses=(Pause(at_s=0.5, for_s=3.0),),
        crashes=(Crash(worker=2, at_s=1.5, cut_off=True),),
        detect_s=0.5,
    )
    seen = run(Async(), 60, Noting(), speeds=Speeds(batch_s=0.4, sample_s=0.0), faults=faults)
    (given,) = [effect.grant for _, effect in seen.effects if isinstance(effect, Grant) and effect.worker == 2]
    assert given not in pulled
    assert seen.times(Pushed, worker=2) == []


# Changes


def test_a_switch_drains_and_changes_workers_and_local_batch_at_the_same_global_batch() -> None:
    seen, checkers = Seen(), Checkers()
    config = ClusterConfig(workers=2, local_batch=20, speeds=SECOND)
    cluster = SimCluster(Sync(), config, data=320, watchers=[seen, checkers])
    cluster.switch(GBA(), workers=4, local_batch=10, at_s=2.5)
    cluster.switch(Sync(), workers=2, local_batch=20, at_s=6.5)
    result = cluster.run()
    checkers.end(320)
    assert [(time_s, name) for time_s, name, _ in seen.modes] == [(0.0, "sync"), (3.0, "gba"), (7.0, "sync")]
    assert [(facts.workers, facts.local_batch, facts.global_batch) for *_, facts in seen.modes] == [
        (2, 20, 40),
        (4, 10, 40),
        (2, 20, 40),
    ]
    applied = [effect for _, effect in seen.effects if isinstance(effect, Apply)]
    assert [each.step for each in applied] == list(range(8))
    assert {each.samples for each in applied} == {40}
    assert [len(each.parts) for each in applied] == [2, 2, 2, 4, 4, 4, 4, 2]
    assert (result.steps, result.finished, result.statistics.short_steps) == (8, True, 0)
    assert {number: each.batches for number, each in result.workers.items()} == {0: 8, 1: 8, 2: 4, 3: 4}
    assert result.workers[3].present_s == 4.0


def test_who_was_called_by_a_switch_does_not_join_again_when_its_time_comes() -> None:
    seen, checkers = Seen(), Checkers()
    config = ClusterConfig(workers=1, local_batch=10, speeds=SECOND, faults=Faults(joins=(Join(worker=1, at_s=2.5),)))
    cluster = SimCluster(Async(), config, data=60, watchers=[seen, checkers])
    cluster.switch(GBA(), workers=2, at_s=0.5)
    cluster.run()
    checkers.end(60)
    assert seen.times(Joined, worker=1) == [1.0]


def test_what_a_lost_worker_held_at_a_switch_is_cut_to_the_new_local_batch() -> None:
    seen, checkers = Seen(), Checkers()
    faults = Faults(crashes=(Crash(worker=1, at_s=2.7, restart_after_s=9.0),), detect_s=0.5)
    config = ClusterConfig(workers=2, local_batch=20, speeds=SECOND, faults=faults)
    cluster = SimCluster(Sync(), config, data=240, watchers=[seen, checkers])
    cluster.switch(GBA(), workers=4, local_batch=10, at_s=2.5)
    result = cluster.run()
    checkers.end(240)
    applied = [effect.samples for _, effect in seen.effects if isinstance(effect, Apply)]
    assert applied == [40, 40, 20, 40, 40, 40, 20]  # a short step at the drain, and one at the end
    assert result.statistics.short_steps == 2


def test_a_rest_lets_nobody_start_until_all_is_applied() -> None:
    seen, checkers = Seen(), Checkers()
    config = ClusterConfig(workers=2, local_batch=10, global_batch=30, speeds=SECOND)
    cluster = SimCluster(GBA(), config, data=120, watchers=[seen, checkers])
    cluster.rest(at_s=1.5)
    cluster.run()
    checkers.end(120)
    applied = [(time_s, len(effect.parts)) for time_s, effect in seen.effects if isinstance(effect, Apply)]
    assert applied == [(2.0, 3), (2.0, 1), (4.0, 3), (5.0, 3), (6.0, 2)]


def test_changes_are_planned_in_the_order_of_their_times() -> None:
    cluster = SimCluster(Sync(), ClusterConfig(workers=2, local_batch=10), data=100)
    cluster.rest(at_s=5.0)
    with pytest.raises(InputError, match=r"at_s=4: changes are planned one after the other"):
        cluster.switch(GBA(), at_s=4.0)


def test_a_mode_that_does_not_fit_is_refused_when_it_is_asked_for() -> None:
    config = ClusterConfig(workers=2, local_batch=10, global_batch=30)
    with pytest.raises(ConfigError, match="backups=2: must be below the 2 workers"):
        SimCluster(BackupWorkers(backups=2), config, data=100)
    cluster = SimCluster(Sync(), config, data=100)
    with pytest.raises(ConfigError, match="local_batch=20: gba puts whole local batches"):
        cluster.switch(GBA(), local_batch=20)


def test_a_controller_sees_every_batch_and_step_and_may_switch() -> None:
    batches, steps = list[Observation](), list[tuple[float, int]]()

    def on_step(time_s: float, step: int) -> None:
        steps.append((time_s, step))
        if step == 2:
            cluster.switch(GBA())

    speeds = Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(1,), factor=2.0),))
    config = ClusterConfig(workers=2, local_batch=10, speeds=speeds, network=Network(latency_s=0.25))
    cluster = SimCluster(Sync(), config, data=120, on_step=on_step, on_batch=batches.append)
    result = cluster.run()
    assert [(seen.worker, seen.busy_s) for seen in batches[:2]] == [(0, 1.5), (1, 2.5)]
    assert steps[:2] == [(2.5, 1), (5.0, 2)]
    assert [step for _, step in steps] == list(range(1, result.steps + 1))
    assert cluster.mode == GBA()
    assert sum(seen.samples for seen in batches) == 120


# Runs


def test_a_run_stops_at_a_number_of_samples_or_a_time_and_goes_on() -> None:
    config = ClusterConfig(workers=2, local_batch=10, speeds=SECOND)
    whole, pieces = Trace(), Trace()
    SimCluster(Async(), config, data=200, watchers=[whole]).run()
    cluster = SimCluster(Async(), config, data=200, watchers=[pieces])
    first = cluster.run(until_samples=50)
    assert (first.samples_applied, first.finished) == (50, False)
    second = cluster.run(until_s=6.5)
    assert (second.seconds, second.samples_applied) == (6.5, 120)
    assert first.samples_applied == 50
    assert cluster.run().finished
    assert pieces.text == whole.text


def test_a_run_goes_on_with_the_steps_and_samples_of_one_before() -> None:
    told = list[tuple[int, int]]()

    class Noting(CountingWork):
        def apply(self, effect: Apply, samples: int) -> None:
            told.append((effect.step, samples))

    config = ClusterConfig(workers=2, local_batch=10, speeds=SECOND)
    result = SimCluster(GBA(), config, data=60, work=Noting(), step=7, samples=1000).run()
    assert told == [(7, 1020), (8, 1040), (9, 1060)]
    assert (result.steps, result.samples_applied) == (3, 60)


def test_workers_that_all_are_gone_end_a_run_that_is_not_finished() -> None:
    config = ClusterConfig(
        workers=1, local_batch=10, speeds=SECOND, faults=Faults(crashes=(Crash(worker=0, at_s=1.5),))
    )
    result = SimCluster(Async(), config, data=60).run()
    assert (result.finished, result.samples_applied, result.seconds) == (False, 10, 2.5)


def noisy(workers: int = 5, seed: int = 3) -> ClusterConfig:
    speeds = Speeds(batch_s=1.0, sample_s=0.0, machines=LogNormal(sigma=0.3), batches=LogNormal(sigma=0.3))
    network = Network(latency_s=0.01, bandwidth=10_000)
    return ClusterConfig(
        workers=workers, local_batch=10, speeds=speeds, network=network, faults=drawn_faults(seed, workers, 20.0)
    )


def trace(mode: Mode, config: ClusterConfig, seed: int) -> str:
    seen = Trace()
    SimCluster(mode, config, data=500, seed=seed, watchers=[seen], work=CountingWork(row_bytes_per_sample=5)).run()
    return seen.text


@pytest.mark.parametrize("mode", [Sync(), GBA(), Hybrid()], ids=lambda mode: mode.name)
def test_one_seed_is_one_run(mode: Mode) -> None:
    first = trace(mode, noisy(), seed=1)
    assert first == trace(mode, noisy(), seed=1)
    assert first != trace(mode, noisy(), seed=2)


def test_another_workers_crash_does_not_change_how_fast_a_worker_is() -> None:
    speeds = Speeds(batch_s=1.0, sample_s=0.0, batches=LogNormal(sigma=0.5))
    calm = run(Async(), 400, speeds=speeds)
    stormy = run(Async(), 400, speeds=speeds, faults=Faults(crashes=(Crash(worker=1, at_s=3.0),)))
    times = stormy.times(Pushed, worker=0)
    assert len(times) > len(calm.times(Pushed, worker=0))
    assert calm.times(Pushed, worker=0) == times[: len(calm.times(Pushed, worker=0))]


def test_lanes_show_what_each_worker_did() -> None:
    network = Network(latency_s=0.25)
    speeds = Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(1,), factor=2.0),))
    config = ClusterConfig(workers=2, local_batch=10, speeds=speeds, network=network, lanes=100)
    result = SimCluster(Sync(), config, data=40).run()
    mine = [(lane.start_s, lane.end_s, lane.kind) for lane in result.lanes if lane.worker == 0]
    assert sorted(mine) == [
        (0.0, 0.25, "pull"),
        (0.0, 0.25, "wait"),
        (0.25, 1.25, "compute"),
        (1.25, 1.5, "push"),
        (1.5, 2.75, "wait"),
        (2.5, 2.75, "pull"),
        (2.75, 3.75, "compute"),
        (3.75, 4.0, "push"),
    ]
    assert result.lanes_left_out == 0


def test_asking_happens_after_the_push_and_before_anything_else() -> None:
    seen = run(Async(), 60)
    kinds = [type(event) for time_s, event in seen.events if time_s == 1.0]
    assert kinds == [Pushed, Ready, Pushed, Ready]


@pytest.mark.parametrize("worker", [9, 10])
def test_a_straggler_that_is_not_there_is_refused(worker: int) -> None:
    settings = {"workers": 10, "local_batch": 4, "speeds": {"stragglers": [{"workers": [worker]}]}}
    if worker < 10:
        assert ClusterConfig(**settings).workers == 10
    else:
        with pytest.raises(ConfigError, match="name worker 10, but there are 0 to 9"):
            ClusterConfig(**settings)


def crash_of_a_shard(at_s: float) -> Faults:
    return Faults(shard_crashes=(ShardCrash(shard=0, at_s=at_s, restart_after_s=3.0),))


def test_in_token_modes_workers_wait_for_a_shard_that_restarts_and_go_on() -> None:
    seen = run(Async(), 60, faults=crash_of_a_shard(1.5))
    assert seen.times(Pushed) == [1.0, 1.0, 4.5, 4.5, 5.5, 5.5]  # computed by 2.0, and nobody answers before 4.5
    assert seen.cuts == []
    assert len(seen.applied) == 6


def test_where_a_step_is_common_it_is_cut_and_dealt_again() -> None:
    seen = run(Sync(), 60, faults=crash_of_a_shard(1.5))
    assert seen.cuts == [1.5]
    assert [name for _, name, _ in seen.modes] == ["sync", "sync"]
    assert seen.modes[1][2].step == 1
    assert seen.applied == [1, 2, 5, 6, 7, 8]  # 3 and 4 were cut, and their data went to 5 and 6
