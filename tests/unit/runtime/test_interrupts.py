"""A Ctrl-C never comes in the middle of a step, and never gets lost."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.runtime.interrupts import defer_every_sigint, defer_sigint, deliver_pending_sigint
from hotrow.server.core import ApplyResult
from unit.runtime.local_server import server_of
from unit.trainer.conftest import Made, make_trainer


def test_an_interrupt_comes_when_the_block_is_done() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            signal.raise_signal(signal.SIGINT)
            done.append("after it")
        done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_everything_is_as_before() -> None:
    with defer_sigint():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fault_of_the_block_comes_out_and_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), defer_sigint():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupts_that_are_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_sigint():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_block_inside_another_is_a_part_of_it() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            with defer_sigint():
                signal.raise_signal(signal.SIGINT)
            done.append("after the inner one")
        done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after the inner one"]


def test_a_breath_lets_it_come_once_and_not_before() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            deliver_pending_sigint()
            signal.raise_signal(signal.SIGINT)
            done.append("held")
            try:
                deliver_pending_sigint()
            except KeyboardInterrupt:
                done.append("came")
            deliver_pending_sigint()
        done.append("over")

    work()
    deliver_pending_sigint()  # outside of a block it is nothing
    assert done == ["held", "came", "over"]


def test_a_breath_after_a_block_inside_still_counts() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            with defer_sigint():
                pass
            signal.raise_signal(signal.SIGINT)
            done.append("held")
            deliver_pending_sigint()
            done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["held"]


def test_a_second_interrupt_comes_at_once() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            signal.raise_signal(signal.SIGINT)
            done.append("held")
            signal.raise_signal(signal.SIGINT)
            done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["held"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_works_without_it() -> None:
    worked = []

    def work() -> None:
        with defer_sigint():
            worked.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert worked == [1]


@pytest.mark.parametrize("at", [1, 3])
def test_a_step_that_is_interrupted_is_whole(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer()
    apply = server_of(trainer).apply
    steps = []

    def interrupted(*arguments: Any, **settings: Any) -> ApplyResult:
        steps.append(1)
        if len(steps) == at:
            signal.raise_signal(signal.SIGINT)
        return apply(*arguments, **settings)

    monkeypatch.setattr(server_of(trainer), "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(trainer.fit(Made(1000)))
    position = trainer.position
    assert position is not None
    assert trainer.samples == position.samples == 64 * at
    assert trainer.step == at
    trainer.close()


def test_an_evaluation_can_be_interrupted_between_two_batches() -> None:
    trainer = make_trainer()
    seen = []

    def work() -> None:
        with defer_sigint():
            trainer.evaluate(batch for batch in watched())

    def watched() -> Iterator[Batch]:
        for _, batch in Loader(Made(1000), 100):
            seen.append(1)
            if len(seen) == 3:
                signal.raise_signal(signal.SIGINT)
            yield batch

    with pytest.raises(KeyboardInterrupt):
        work()
    assert len(seen) == 3
    trainer.close()


def test_an_interrupt_after_one_that_came_is_a_second_one() -> None:
    """Whoever got the first one ends what it does: the next one cuts that off."""
    done = []

    def work() -> None:
        with defer_sigint():
            signal.raise_signal(signal.SIGINT)
            try:
                deliver_pending_sigint()
            except KeyboardInterrupt:
                done.append("first")
            with defer_every_sigint():
                signal.raise_signal(signal.SIGINT)
                done.append("a change that is soon over")
            done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first", "a change that is soon over"]
