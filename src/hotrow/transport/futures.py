"""Futures of replies, and of what follows from them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any


def uncancellable_future() -> "Future[None]":
    """A future that its holder can wait for and cannot cancel."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def when_all(futures: Sequence[Future[Any]], then: Callable[[BaseException | None], None]) -> None:
    """Call `then` once, when all are done, with the first error among them.

    A future keeps its callbacks as long as it lives: these drop all references once they were called.
    """
    unanswered, calls = list(futures), [then]
    left = [len(unanswered)]
    lock = threading.Lock()

    def done(_: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            faults = [fault for each in unanswered if (fault := each.exception()) is not None]
            unanswered.clear()
            calls.pop()(faults[0] if faults else None)

    for each in list(unanswered):
        each.add_done_callback(done)
