"""What is under way lets go of batches that are done, however lookups and pushes travelled together."""

import gc
import weakref
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from hotrow.errors import InputError
from hotrow.transport.client import Answer
from hotrow.transport.futures import when_all
from hotrow.transport.messages import BatchRequest, Done, Samples
from hotrow.worker.exchange_queue import ExchangeQueue, PendingBatch


class Thing:
    """A batch, as far as memory is concerned."""


class Exchanged:
    """An exchange whose only shard answers at once, or when it is told."""

    def __init__(self) -> None:
        self.asked: list[Future[Answer]] = [Future()]

    def answer(self) -> None:
        self.asked[0].set_result(Answer(Done(), []))


class Client:
    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def exchange(self, push: Any, lookup: Any) -> Exchanged:
        self.sent.append((push is not None, lookup is not None))
        return Exchanged()


def hear(*_: object) -> None:
    """Somebody who holds a batch and its exchange until the word comes."""


def task(number: int, batch: Any) -> PendingBatch:
    work = BatchRequest(number, 0, number, 0, 0, 0, 1.0, 1.0, Samples(0, 0, 0, ()))
    return PendingBatch(number, number, work, None, batch, object(), 0.0, 0)  # type: ignore[arg-type]


def test_a_batch_is_let_go_when_its_gradients_have_arrived() -> None:
    client = Client()
    outgoing = ExchangeQueue(client)  # type: ignore[arg-type]
    alive = []
    begun: list[PendingBatch] = []
    for number in range(50):
        batch = Thing()
        alive.append(weakref.ref(batch))
        begun.append(task(number, batch))
        outgoing.look_up(begun[-1], may_wait=True)
        if number >= 3:
            first = begun.pop(0)
            outgoing.needed(first)
            pushed: Any = outgoing.push(object())
            when_all(pushed.asked, partial(hear, first, pushed))
            pushed.answer()
            del first, pushed
        del batch
    gc.disable()
    try:
        gc.collect()
        assert sum(each() is not None for each in alive) == len(begun)
    finally:
        gc.enable()


def test_a_lookup_that_nobody_needs_yet_travels_with_the_next_push() -> None:
    client = Client()
    outgoing = ExchangeQueue(client)  # type: ignore[arg-type]
    tasks = [task(number, None) for number in range(4)]
    for each in tasks[:3]:
        outgoing.look_up(each, may_wait=True)
    outgoing.push(object())
    outgoing.look_up(tasks[3], may_wait=True)
    outgoing.needed(tasks[3])  # somebody is about to wait for it
    assert client.sent == [(False, True), (False, True), (True, True), (False, True)]


@pytest.mark.parametrize("faults", [(), (0,), (1, 2)])
def test_the_word_comes_once_when_all_are_done_with_the_first_fault(faults: tuple[int, ...]) -> None:
    futures: list[Future[Answer]] = [Future() for _ in range(3)]
    heard: list[BaseException | None] = []
    when_all(futures, heard.append)
    for number in (2, 0, 1):
        assert heard == []
        if number in faults:
            futures[number].set_exception(ValueError(str(number)))
        else:
            futures[number].set_result(Answer(Done(), []))
    assert [str(fault) for fault in heard] == [str(faults[0]) if faults else "None"]


@pytest.mark.parametrize("with_push", [True, False])
def test_a_lookup_that_could_not_be_sent_is_sent_when_it_is_needed(with_push: bool) -> None:
    client = Client()
    outgoing = ExchangeQueue(client)  # type: ignore[arg-type]
    tasks = [task(number, None) for number in range(3)]
    for each in tasks:
        outgoing.look_up(each, may_wait=True)

    def refuse(push: Any, lookup: Any) -> Exchanged:
        raise InputError("the shard is gone")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client, "exchange", refuse)
        with pytest.raises(InputError, match="gone"):
            _ = outgoing.push(object()) if with_push else outgoing.needed(tasks[2])
    assert client.sent == [(False, True)] * 2
    outgoing.needed(tasks[2])
    assert client.sent == [(False, True)] * 3
