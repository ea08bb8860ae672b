"""Workers come and go while an engine makes steps: every batch is trained once, by whoever is there."""

import random
import threading
from collections.abc import Sequence

import pytest

from hotrow.errors import ConfigError, InputError
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Ended, Event, Grant, Joined, Pushed, Ready
from hotrow.switching import Observation
from hotrow.types import RoleId
from unit.runtime.scripted_backend import Run, ScriptedBackend
from unit.runtime.small_training import trainer_of

TOKEN = [Async(), BulkSync(bulk=3), BoundedStaleness(bound=1), BackupWorkers(backups=1), GBA()]
TOGETHER = [Sync(), Hybrid(max_in_flight=2), KStep(k=2, warmup=0)]
each_token_mode = pytest.mark.parametrize("mode", TOKEN, ids=lambda mode: str(mode.name))
each_mode_in_step = pytest.mark.parametrize("mode", TOGETHER, ids=lambda mode: str(mode.name))


def of_worker(heard: Sequence[Event], worker: int) -> list[Event]:
    return [event for event in heard if getattr(event, "worker", None) == worker]


@each_token_mode
def test_a_newcomer_is_begun_on_where_the_run_stands_and_gets_batches(mode: Mode) -> None:
    run = Run(mode, 2)
    for number, step in enumerate(run.steps(60)):
        if number == 2:
            request = run.request("trainer 2", joins=True)
            assert not request.done.done()  # not while somebody has a step in hand
            at = step.step + 1
    assert run.site.begun == [("trainer 2", 2, at)]
    assert request.done.result() is None
    assert of_worker(run.heard, 2)[:2] == [Joined(2), Ready(2)]
    assert sum(isinstance(event, Pushed) for event in of_worker(run.heard, 2)) > 10
    assert sorted(run.done) == list(range(60))
    assert run.engine.facts.workers == 3
    assert len(run.site.opened) == 1  # nobody else had to stop for it


@each_token_mode
def test_a_leaver_ends_what_it_has_and_gets_no_more(mode: Mode) -> None:
    run = Run(mode, 3)
    for number, _ in enumerate(run.steps(60)):
        if number == 2:
            request = run.request("trainer 0", joins=False)
            held = [grant for grant in run.site.out if grant.worker == 0]
            before = len(run.heard)
        if number > 2 and any(grant in run.site.out for grant in held):
            assert not run.site.gone
    assert run.site.gone == ["trainer 0"]
    assert request.done.result() is None
    after = of_worker(run.heard[before:], 0)
    assert after[-1] == Ended(0)
    assert [type(event) for event in after] in ([Pushed, Ended], [Ended])
    assert sorted(run.done) == list(range(60))
    assert run.engine.facts.workers == 2
    assert run.site.names == ["trainer 1", "trainer 2"]


@pytest.mark.parametrize("mode", TOGETHER[:1] + TOKEN[-1:], ids=lambda mode: str(mode.name))
def test_numbers_rise_within_a_mode_and_begin_with_0_in_the_next(mode: Mode) -> None:
    """A number that was free again would mix two workers up in whoever remembers them."""
    run = Run(GBA(), 2)
    for number, _ in enumerate(run.steps(100)):
        if number == 1:
            run.request("trainer 0", joins=False)
        if number == 3:
            assert run.site.gone == ["trainer 0"]
            run.request("trainer 2", joins=True)
        if number == 4:
            assert run.engine.workers == [1, 2]
            run.heard.clear()
        if number == 8:
            assert {event.worker for event in run.heard if isinstance(event, Ready)} == {1, 2}
            run.engine.switch(Sync() if mode == GBA() else mode)
            run.engine.switch(mode)
            assert run.engine.workers == [0, 1]
            run.heard.clear()
    assert {event.worker for event in run.heard if isinstance(event, Ready)} == {0, 1}
    assert run.site.opened[-1] == (mode.name, 2)
    assert sorted(run.done) == list(range(100))


def test_data_that_a_leaver_waited_with_go_to_one_that_found_no_more() -> None:
    """0 is ahead and waits with the last batch; 1 found none and was told so; then 0 leaves."""
    order = iter([0, 1, 3])

    def last(out: list[Grant]) -> Grant:
        worker = next(order, None)
        return next((grant for grant in out if grant.worker == worker), out[0])

    run = Run(BoundedStaleness(bound=0), 4, last=last)
    trained_by: dict[int, int] = {}
    for number, _ in enumerate(run.steps(5)):
        trained_by |= {grant.grant: grant.worker for grant in run.site.out}
        if number == 2:
            assert Ended(1) in run.heard
            assert {grant.worker for grant in run.site.out} == {2}
            run.request("trainer 0", joins=False)
    assert run.site.gone == ["trainer 0"]
    assert trained_by[5] == 1
    assert sorted(run.done) == list(range(5))


@each_token_mode
@pytest.mark.parametrize("left", [0, 1])
def test_one_that_joins_when_the_data_are_over_has_its_part_of_the_next_epoch(mode: Mode, left: int) -> None:
    run = Run(mode, 2)
    asked = False
    left += mode.name == "backup_workers"  # one is late in every step, also in the last
    for _ in run.steps(24, epochs=2):
        if not asked and len(run.done) + len(run.site.out) >= 24 and len(run.site.out) <= left:
            asked = True
            run.request("trainer 2", joins=True)
    assert asked
    assert [name for name, _, _ in run.site.begun] == ["trainer 2"]
    assert sum(isinstance(event, Pushed) for event in of_worker(run.heard, 2)) > 2
    assert sorted(run.done) == list(range(48))


@each_token_mode
def test_the_last_one_stays(mode: Mode) -> None:
    run = Run(mode, 3)
    for number, _ in enumerate(run.steps(40)):
        if number == 1:
            requests = [run.request(f"trainer {worker}", joins=False) for worker in (1, 0, 2)]
    kept = [request for request in requests if request.done.exception() is not None]
    assert run.site.names == [request.name for request in kept]
    lasts = {"backup_workers": r"backups=1: is for several workers"}  # of two one may be late, of one none
    assert len(kept) == (2 if mode.name in lasts else 1)
    with pytest.raises((InputError, ConfigError), match=lasts.get(mode.name, "'trainer 2': is the last trainer")):
        kept[-1].done.result()
    assert sorted(run.done) == list(range(40))


def test_who_is_not_there_cannot_leave_and_nothing_changes() -> None:
    run = Run(GBA(), 2)
    for number, _ in enumerate(run.steps(40)):
        if number == 1:
            request = run.request("trainer 7", joins=False)
    with pytest.raises(InputError, match="'trainer 7': there is no such trainer; there are: trainer 0, trainer 1"):
        request.done.result()
    assert (run.site.gone, run.engine.facts.workers) == ([], 2)


@each_mode_in_step
def test_where_all_end_steps_together_they_begin_anew_in_their_new_number(mode: Mode) -> None:
    run = Run(mode, 2, parts=6)
    for number, _ in enumerate(run.steps(100)):
        if number == 2:
            came = run.request("trainer 2", joins=True)
        if number == 6:
            left = run.request("trainer 0", joins=False)
    assert run.site.opened == [(mode.name, 2), (mode.name, 3), (mode.name, 2)]
    assert (came.done.result(), left.done.result()) == (None, None)
    assert run.site.begun == []  # the mode was opened for it
    assert run.site.names == ["trainer 1", "trainer 2"]
    assert sorted(run.done) == list(range(100))


@each_mode_in_step
def test_a_number_that_does_not_divide_a_step_is_refused_and_nothing_changes(mode: Mode) -> None:
    run = Run(mode, 2)
    for number, _ in enumerate(run.steps(100)):
        if number == 2:
            request = run.request("trainer 2", joins=True)
    with pytest.raises(ConfigError, match=r"trainers=3: .*or switch to a mode without common steps first, as gba"):
        request.done.result()
    assert run.site.opened == [(mode.name, 2)]
    assert run.site.gone == ["trainer 2"]  # it was started for nothing
    assert run.engine.facts.workers == 2
    assert sorted(run.done) == list(range(100))
    with pytest.raises(ConfigError, match="trainers=3"):
        run.engine.check_join()


def test_between_fits_wishes_come_true_at_once() -> None:
    run = Run(GBA(), 2)
    assert run.request("trainer 2", joins=True).done.done()
    assert run.request("trainer 0", joins=False).done.done()
    assert (run.site.names, run.engine.facts.workers) == (["trainer 1", "trainer 2"], 2)
    list(run.steps(20))
    assert run.site.opened == [("gba", 2)]
    assert run.request("trainer 1", joins=False).done.done()
    assert run.site.names == ["trainer 2"]


def test_what_is_wished_with_the_last_step_in_hand_comes_true_when_the_fit_ends() -> None:
    run = Run(Async(), 2)
    for _ in run.steps(20):
        if len(run.done) == 20:
            requests = [run.request("trainer 2", joins=True), run.request("trainer 0", joins=False)]
    assert [request.done.result() for request in requests] == [None, None]
    assert run.site.names == ["trainer 1", "trainer 2"]


def test_a_fit_that_is_broken_off_leaves_no_wish_open() -> None:
    run = Run(GBA(), 3)
    steps = run.steps(40)
    next(steps)
    requests = [run.request("trainer 0", joins=False), run.request("trainer 3", joins=True)]
    run.engine.close()
    assert all(request.done.done() for request in requests)
    assert run.site.names == ["trainer 1", "trainer 2", "trainer 3"]


@pytest.mark.parametrize("at_rest", [True, False])
def test_whoever_lets_a_worker_go_hears_that_it_could_not_be_stopped(
    at_rest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(site: ScriptedBackend, name: RoleId) -> None:
        site.names.remove(name)
        raise InputError(f"{name!r}: there is no such peer")

    monkeypatch.setattr(ScriptedBackend, "stop_worker", fail)
    run = Run(GBA(), 3)
    steps = run.steps(40)
    if not at_rest:
        next(steps)
    request = run.request("trainer 0", joins=False)
    list(steps)
    assert sorted(run.done) == list(range(40))
    with pytest.raises(InputError, match="'trainer 0': there is no such peer"):
        request.done.result(0)


def test_whoever_lets_a_worker_join_hears_that_it_could_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InputError("trainer 3 does not answer")

    monkeypatch.setattr(ScriptedBackend, "start_worker", fail)
    run = Run(GBA(), 3)
    steps = run.steps(40)
    next(steps)
    request = run.request("trainer 3", joins=True)
    with pytest.raises(InputError, match="trainer 3 does not answer"):
        list(steps)
    with pytest.raises(InputError, match="trainer 3 does not answer"):
        request.done.result(0)


def test_a_wish_that_is_refused_is_answered_where_the_worker_cannot_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise InputError("trainer 2: there is no such peer")

    monkeypatch.setattr(ScriptedBackend, "stop_worker", fail)
    run = Run(Sync(), 2)
    with pytest.raises(ConfigError, match="trainers=3"):
        run.request("trainer 2", joins=True).done.result(0)


def test_a_wish_cannot_be_called_off_behind_the_engines_back() -> None:
    run = Run(GBA(), 2)
    for number, _ in enumerate(run.steps(40)):
        if number == 1:
            assert not run.request("trainer 2", joins=True).done.cancel()
    assert run.site.names == ["trainer 0", "trainer 1", "trainer 2"]


def test_who_watches_forgets_those_that_left_and_those_with_another_number() -> None:
    told: list[tuple[str, int]] = []

    class Ears:
        def joined(self, worker: int) -> None:
            told.append(("joined", worker))

        def ended(self, worker: int) -> None:
            told.append(("ended", worker))

        def lost(self, worker: int) -> None:
            told.append(("lost", worker))

        def finished(self, seen: Observation) -> None: ...

        def stepped(self, time_s: float) -> None: ...

    run = Run(GBA(), 3)
    run.engine.observe(Ears())
    for number, _ in enumerate(run.steps(80)):
        if number == 1:
            run.request("trainer 1", joins=False)
            run.request("trainer 3", joins=True)
        if number == 5:
            assert told[3:] == [("joined", 3), ("ended", 1), ("lost", 1)]
            told.clear()
            run.engine.switch(Async())  # 0, 2 and 3 are 0, 1 and 2 from now on
            assert told[:5] == [("lost", 2), ("lost", 3), ("joined", 0), ("joined", 1), ("joined", 2)]


@pytest.mark.parametrize("seed", range(30))
def test_any_wishes_at_any_time_in_any_mode(seed: int) -> None:
    """Every lease is done once, whoever comes, goes and is slow, and the engine knows who is there."""
    chance = random.Random(seed)
    run = Run(GBA(), 2, parts=6, last=chance.choice)
    names = iter(f"trainer {number}" for number in range(2, 1000))
    modes = [*TOKEN, *TOGETHER]
    requests = []
    for _ in run.steps(150, epochs=2):
        while chance.random() < 0.3:
            comes = chance.random() < 0.5
            requests.append(run.request(next(names) if comes else chance.choice(run.site.names), joins=comes))
        if chance.random() < 0.05:
            try:
                run.engine.switch(chance.choice(modes))
            except ConfigError:
                continue  # too few or too many for it
    assert sorted(run.done) == list(range(300))
    assert all(request.done.done() for request in requests)
    assert run.engine.facts.workers == len(run.site.names)
    joined = {request.name for request in requests if request.joins and request.done.exception() is None}
    assert joined - set(run.site.gone) <= set(run.site.names)


def test_requests_of_other_threads() -> None:
    run = Run(GBA(), 2)
    requests = []
    stop = threading.Event()

    def come_and_go(first: int) -> None:
        for number in range(first, first + 40):
            name = f"trainer {number}"
            requests.extend([run.request(name, joins=True), run.request(name, joins=False)])
            stop.wait(0.001)

    threads = [threading.Thread(target=come_and_go, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        list(run.steps(400))
    for thread in threads:
        thread.join()
    assert [request.done.result(10) for request in requests] == [None] * 160
    assert run.site.names == ["trainer 0", "trainer 1"]
    assert sorted(run.done) == sorted([*range(400)] * 3)


def test_workers_of_one_process_neither_join_nor_leave() -> None:
    trainer = trainer_of(GBA(), 2)
    for ask in (lambda: trainer.join("trainer"), lambda: trainer.leave("trainer 1")):
        with pytest.raises(ConfigError, match=r"engine='local': .* neither join nor leave: train with hotrow.Ray\(\)"):
            ask()
    trainer.close()
