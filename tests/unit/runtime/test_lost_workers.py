"""Workers that are lost while a mode runs: their batches are trained by others, once, and what is lost is counted."""

from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Joined, Lost
from hotrow.runtime import loop as loop_module
from hotrow.runtime.cluster import roles as roles_module
from hotrow.runtime.losses import RoleLoss, RoleLost, SavedRows
from hotrow.transport.errors import RemoteFault
from hotrow.types import RoleId
from unit.runtime.loader_threads import loaders_of
from unit.runtime.scripted_backend import SAMPLES, Run

TOKEN = [Async(), BulkSync(bulk=3), BoundedStaleness(bound=1), BackupWorkers(backups=1), GBA()]
TOGETHER = [Sync(look_ahead=0), Sync(look_ahead=1), Hybrid(), KStep(k=3)]
BATCHES = 60
ONE, TWO = RoleId("trainer", 1), RoleId("trainer", 2)


def check_trained_once(run: Run) -> None:
    assert sorted(run.done) == list(range(BATCHES))
    late = run.engine.statistics.samples_dropped.get("late", 0)
    assert run.state.samples + late == BATCHES * SAMPLES


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("mode", TOKEN, ids=lambda mode: str(mode.name))
def test_others_train_what_a_lost_worker_held(mode: Mode, stays: bool) -> None:
    run = Run(mode, workers=3)
    lost: list[int] = []

    def lose() -> None:
        lost.append(run.site.out[0].worker)
        run.site.lose(run.site.working[lost[0]], stays=stays, scores=6)

    run.site.act_at, run.site.act = 14, lose
    list(run.steps(BATCHES))
    check_trained_once(run)
    (victim,) = lost
    assert Lost(victim) in run.heard
    assert (Joined(victim) in run.heard[run.heard.index(Lost(victim)) :]) == stays
    counted = run.engine.statistics
    assert counted.dropped["lost"] == 1
    assert counted.samples_dropped["lost"] == SAMPLES
    assert len(run.site.parameters.discarded) == counted.dropped.get("late", 0) + 1
    assert run.engine.facts.workers == 3 - (not stays)
    if not stays:
        assert (counted.counts["trainers_lost"], counted.counts["scores_lost"]) == (1, 6)
        (told, dealt) = run.engine.take_remarks()
        assert told.startswith(f"trainer {victim} is gone: it was killed: the scores of 6 samples are missing")
        assert dealt == "batches that were lost and are dealt again: 1"


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("mode", TOGETHER, ids=lambda mode: f"{mode.name}-{getattr(mode, 'look_ahead', '')}")
def test_modes_with_common_steps_open_again_without_a_lost_worker(mode: Mode, ahead: int) -> None:
    """The step counts where a trainer that is left has ended it, else all of it is dealt again."""
    run = Run(mode, workers=4)
    run.site.act_at, run.site.act = 14, lambda: run.site.lose(TWO)
    run.site.ahead = ahead
    list(run.steps(BATCHES))
    check_trained_once(run)
    assert run.site.opened == [(mode.name, 4), (mode.name, 3)]
    counted = run.engine.statistics.counts
    assert (counted["trainers_lost"], counted["steps_cut"]) == (1, 1)
    assert ("pushes_unanswered" in counted) == bool(ahead)
    assert "dense_steps_lost" not in counted


def test_all_steps_that_trainers_have_ended_count_where_they_run_ahead() -> None:
    """In Hybrid a cut link to a shard keeps replies back, and not the all-reduce of the next steps."""
    run = Run(Hybrid(max_in_flight=4), workers=4)
    run.site.act_at, run.site.act = 14, lambda: run.site.lose(TWO)
    run.site.ahead = 3
    steps = list(run.steps(BATCHES))
    check_trained_once(run)
    assert [step.step for step in steps] == list(range(len(steps)))
    told = run.engine.take_remarks()
    assert any("it counts with 2 after it" in each for each in told), told
    counted = run.engine.statistics.counts
    assert counted["steps_cut"] == 1
    assert counted["pushes_unanswered"] == 11  # of three steps of four batches: one is answered
    assert len(set(run.site.unanswered)) == 11, "shards are asked for their rows"
    assert "dense_steps_lost" not in counted


@pytest.mark.parametrize("mode", [GBA(), Sync()], ids=lambda mode: str(mode.name))
def test_the_loss_of_all_workers_ends_the_run(mode: Mode) -> None:
    run = Run(mode, workers=1)
    run.site.act_at, run.site.act = 14, lambda: run.site.lose(RoleId("trainer", 0))
    with pytest.raises(RoleLost, match="all are gone"):
        list(run.steps(BATCHES))


def test_a_worker_is_lost_at_rest_while_it_leaves_and_before_it_joins() -> None:
    run = Run(GBA(), workers=3)
    for number, _ in enumerate(run.steps(BATCHES)):
        if number == 2:
            leaves = run.request("trainer 1", joins=False)
            run.site.lose(ONE)
        if number == 4:
            run.site.lose(TWO)
            run.engine.rest()
    check_trained_once(run)
    assert leaves.done.result(1) is None
    assert run.engine.facts.workers == 1


class Replacement:
    """Starts a worker that joins after a while."""

    def __init__(self, run: Run) -> None:
        self.run, self.looks = run, 0

    @property
    def pending(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            self.run.request("trainer 7", joins=True)
        return self.looks < 4

    def replace(self, name: RoleId) -> None:
        assert name == "trainer 0"


@pytest.mark.parametrize("mode", TOGETHER, ids=lambda mode: f"{mode.name}-{getattr(mode, 'look_ahead', '')}")
def test_without_trainers_dense_parameters_come_from_the_checkpoint_and_the_steps_go_on(mode: Mode) -> None:
    run = Run(mode, workers=1)
    run.engine.replacements["trainer"] = Replacement(run)
    run.site.saved = SavedRows("runs/x/checkpoint", step=1, samples=8)
    run.site.act_at, run.site.act = 14, lambda: run.site.lose(RoleId("trainer", 0))
    steps = [stepped.step for stepped in run.steps(BATCHES)]
    check_trained_once(run)
    assert steps == list(range(15)), "the counter does not go back"
    counted, told = run.engine.statistics.counts, run.engine.take_remarks()
    (restored,) = (each for each in told if each.startswith("no trainer was left"))
    assert counted["dense_steps_lost"] >= 2
    assert counted["dense_samples_lost"] == counted["dense_steps_lost"] * 8
    lost = f"dense updates lost: {counted['dense_steps_lost']} steps, {counted['dense_samples_lost']} samples"
    assert restored == (
        "no trainer was left: dense parameters are those of the checkpoint of step 1, rows stay as they are; " + lost
    )


def test_without_trainers_a_checkpoint_does_not_help_where_none_is_started() -> None:
    run = Run(Sync(), workers=1)
    run.site.saved = SavedRows("runs/x/checkpoint", step=1)
    run.site.act_at, run.site.act = 14, lambda: run.site.lose(RoleId("trainer", 0))
    with pytest.raises(RoleLost, match="all are gone"):
        list(run.steps(BATCHES))


def test_a_run_without_workers_waits_for_one_that_is_being_started() -> None:
    run = Run(GBA(), workers=1)
    run.engine.replacements["trainer"] = Replacement(run)
    for number, _ in enumerate(run.steps(BATCHES)):
        if number == 3:
            run.site.lose(RoleId("trainer", 0))
    check_trained_once(run)
    assert run.site.begun == [("trainer 7", 1, 4)]


class NeedsShard(Replacement):
    """Its worker can start only once the loop has looked for lost roles: it starts lost shards again."""

    @property
    def pending(self) -> bool:
        self.looks += 1
        assert self.looks < 100, "the loop waits for a worker that waits for a shard"
        if self.run.site.looked and not self.joined:
            self.joined = True
            self.run.request("trainer 7", joins=True)
        return not self.joined

    joined = False


@pytest.mark.parametrize("mode", [GBA(), Hybrid()], ids=lambda mode: str(mode.name))
def test_a_run_that_waits_for_a_worker_starts_lost_shards_again_meanwhile(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "WAKE_S", 0.001)
    run = Run(mode, workers=1)
    run.engine.replacements["trainer"] = NeedsShard(run)
    run.site.saved = SavedRows("runs/x/checkpoint", step=1, samples=8)

    def lose() -> None:
        run.site.looked = 0
        run.site.lose(RoleId("trainer", 0))

    run.site.act_at, run.site.act = 14, lose
    list(run.steps(BATCHES))
    check_trained_once(run)


class SecondAttempt(Replacement):
    """The first worker that it starts is lost before it joins, and that loss is known before the join."""

    @property
    def pending(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            self.run.site.lost_before.append("trainer 6")
            self.run.site.role_losses.append(RoleLoss(RoleId("trainer", 6), "it was killed"))
            self.run.engine.take_remarks()
            self.refused = self.run.request("trainer 6", joins=True)
        if self.looks == 6:
            self.run.request("trainer 7", joins=True)
        return self.looks < 7

    def replace(self, name: RoleId) -> None:
        assert name in ("trainer 0", "trainer 6")


def test_a_worker_whose_loss_is_known_before_it_joins_is_no_worker() -> None:
    """It once counted as the one that is left: the run waited for no other, and span without end."""
    run = Run(GBA(), workers=1)
    replacement = run.engine.replacements["trainer"] = SecondAttempt(run)
    for number, _ in enumerate(run.steps(BATCHES)):
        if number == 3:
            run.site.lose(RoleId("trainer", 0))
    check_trained_once(run)
    assert isinstance(replacement.refused.done.exception(1), RoleLost)
    assert run.site.begun == [("trainer 7", 1, 4)]
    assert run.engine.facts.workers == 1


@pytest.mark.parametrize(("error", "waits"), [(RemoteFault("lost", "a rank", "trainer 1"), True), (None, False)])
def test_a_loss_that_ray_notices_late_is_waited_for_where_an_error_says_so(
    error: RemoteFault | None, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles_module, "LOSS_S", 0.0)
    with loaders_of(2, as_trainers=True) as made:
        noticed: Iterator[dict[RoleId, str]] = chain([{}, {}], repeat({ONE: "it was killed"}))
        monkeypatch.setattr(made.processes, "lost", lambda: next(noticed))
        assert made.roles.caused_by_loss([ONE], error) == waits
