"""Work that a Ctrl-C does not cut in two.

A step changes rows, dense parameters and the position in the data one after the other. Cut between them, a checkpoint
would hold a batch that counts as not trained, and a resume would train it twice. Cut inside a library that holds a
lock, the program would wait for that lock for ever when it saves.
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

    before: Callable[[int, FrameType | None], Any]  # what an interrupt did outside of it
    held: tuple[int, FrameType | None] | None = None

    def hold(self, number: int, frame: FrameType | None) -> None:
        """Keep an interrupt for later; one more, and somebody means now."""
        if self.held is not None:
            self.before(number, frame)
        self.held = (number, frame)

    def let_go(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            self.before(*held)


_blocks: list[_Block] = []  # at most one: signals belong to the whole process


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Hold an interrupt back until the end of the block, or until it takes a `breath`; a second one comes at once.

    Blocks inside it are a part of it. Only the main thread ever gets an interrupt: elsewhere this does nothing.
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
    block.let_go()


def deliver_pending_sigint() -> None:
    """A good moment for an interrupt that is held back: it comes now."""
    if _blocks and threading.current_thread() is threading.main_thread():
        _blocks[0].let_go()
