"""Blocks of code that SIGINT does not interrupt.

A step changes rows, dense parameters and the position in the data one after the other. Interrupted between them, a
checkpoint would hold a batch that counts as not trained, and a resume would train it twice. Interrupted inside a
library that holds a lock, the program would wait for that lock for ever when it saves.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(slots=True)
class _Block:
    """The outermost block that is open."""

    before: Callable[[int, FrameType | None], Any]  # the handler outside of it
    held: tuple[int, FrameType | None] | None = None
    holds_all: bool = False  # a second SIGINT waits as well
    again: bool = False  # a second one came meanwhile

    def hold(self, number: int, frame: FrameType | None) -> None:
        """Keep SIGINT for later; a second one is delivered at once, or at the end of `defer_every_sigint`."""
        self.again = self.held is not None
        if self.again and not self.holds_all:
            self.before(number, frame)
        self.held = (number, frame)

    def deliver(self) -> None:
        held, self.held, self.again = self.held, None, False
        if held is not None:
            self.before(*held)


_blocks: list[_Block] = []  # at most one: signals belong to the whole process


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Defer SIGINT to the end of the block or to `deliver_pending_sigint`; a second one is delivered at once.

    Nested blocks belong to the outermost one. Only the main thread receives SIGINT: elsewhere this does nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    if _blocks or threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    block = _Block(before)
    _blocks.append(block)
    signal.signal(signal.SIGINT, block.hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _blocks.clear()
    block.deliver()


@contextmanager
def defer_every_sigint() -> Iterator[None]:
    """Defer SIGINT as `defer_sigint` does, and a second one to the end of this block: for a change that is soon over.

    Cut off in the middle, it would leave half a step.
    """
    with defer_sigint():
        block = _blocks[0] if _blocks and threading.current_thread() is threading.main_thread() else None
        if block is None:
            yield
            return
        block.holds_all = True
        try:
            yield
        finally:
            block.holds_all = False
        if block.again:
            block.deliver()


def deliver_pending_sigint() -> None:
    """Deliver a SIGINT that is deferred."""
    if _blocks and threading.current_thread() is threading.main_thread():
        _blocks[0].deliver()
