"""Blocks of code that SIGINT does not interrupt.

A step changes rows, dense parameters and the position in the data one after the other. Interrupted between them, a
checkpoint would hold a batch that counts as not trained, and a resume would train it twice. Interrupted inside a
library that holds a lock, the program would wait for that lock for ever when it saves.
"""

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # those of `signal` convert to enums, which takes 7 µs
from _signal import signal as set_handler
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any


class _Block:
    """The outermost block that is open. A class: a generator would take longer than what most blocks do."""

    __slots__ = ("_before", "_delivered", "_held", "again", "holds_all")

    def __init__(self) -> None:
        self._before: Handler | int | None = None  # the handler outside of it
        self._held: tuple[int, FrameType | None] | None = None
        self._delivered = False  # one, inside the block: its receiver ends what it does, and another one is the second
        self.again = False  # a second one came meanwhile
        self.holds_all = False  # a second SIGINT waits as well

    def __enter__(self) -> None:
        self._before = getsignal(signal.SIGINT)
        if callable(self._before):  # else it is ignored, or handled outside of Python
            set_handler(signal.SIGINT, self.hold)
            _blocks.append(self)

    def __exit__(self, *error: object) -> None:
        if callable(self._before):
            _blocks.clear()  # first: the handler outside may raise at once
            set_handler(signal.SIGINT, self._before)
            if error[0] is None:
                self.deliver()

    def hold(self, number: int, frame: FrameType | None) -> None:
        """Keep SIGINT for later; a second one is delivered at once, or at the end of `defer_every_sigint`."""
        self.again = self._delivered or self._held is not None
        if self.again and not self.holds_all:
            self._call(number, frame)
        self._held = (number, frame)

    def deliver(self) -> None:
        held, self._held, self.again = self._held, None, False
        if held is not None:
            self._delivered = True
            self._call(*held)

    def _call(self, number: int, frame: FrameType | None) -> None:
        if callable(self._before):
            self._before(number, frame)


Handler = Callable[[int, FrameType | None], Any]
_blocks: list[_Block] = []  # at most one: signals belong to the whole process
_NESTED = nullcontext()


def defer_sigint() -> AbstractContextManager[None]:
    """Defer SIGINT to the end of the block or to `deliver_pending_sigint`; a second one is delivered at once.

    Nested blocks belong to the outermost one. Only the main thread receives SIGINT: elsewhere this does nothing.
    """
    nested = _blocks or threading.current_thread() is not threading.main_thread()
    return _NESTED if nested else _Block()


class _EveryBlock:
    """A block in which a second SIGINT waits as well."""

    __slots__ = ("_block", "_deferred")

    def __enter__(self) -> None:
        self._deferred = defer_sigint()
        self._deferred.__enter__()
        main = threading.current_thread() is threading.main_thread()
        self._block = _blocks[0] if _blocks and main else None
        if self._block is not None:
            self._block.holds_all = True

    def __exit__(self, *error: Any) -> None:
        try:
            if self._block is not None:
                self._block.holds_all = False
                if error[0] is None and self._block.again:
                    self._block.deliver()
        except BaseException as raised:
            self._deferred.__exit__(type(raised), raised, None)
            raise
        self._deferred.__exit__(*error)


def defer_every_sigint() -> AbstractContextManager[None]:
    """Defer SIGINT as `defer_sigint` does, and a second one to the end of this block: for a change that is soon over.

    Cut off in the middle, it would leave half a step.
    """
    return _EveryBlock()


def deliver_pending_sigint() -> None:
    """Deliver a SIGINT that is deferred."""
    if _blocks and threading.current_thread() is threading.main_thread():
        _blocks[0].deliver()
