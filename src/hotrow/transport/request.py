"""One request of an authenticated peer, while a server handles it."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hotrow.errors import InputError
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import Fault, Message

Answering: TypeAlias = Callable[[Message, Sequence[Buffer], bool], None]  # the last: by the loop


class Request:
    """A message and its frames. It must be answered once; one that is dropped is answered with a fault."""

    __slots__ = ("_answer", "_once", "frames", "message", "peer")

    def __init__(self, peer: bytes, message: Message, frames: list[memoryview], answer: Answering) -> None:
        self.peer, self.message, self.frames = peer, message, frames
        self._answer = answer
        self._once = [True]  # popped by the reply: atomic, without a lock that a finalizer could find held

    @property
    def answered(self) -> bool:
        return not self._once

    def reply(self, message: Message, frames: Sequence[Buffer] = ()) -> None:
        """Reply, from any thread, at any later time. The frames must not change any more."""
        try:
            self._once.pop()
        except IndexError:
            text = f"a second reply to one {type(self.message).__name__}: a request is answered once"
            raise InputError(text) from None
        try:
            self._answer(message, frames, False)
        except BaseException:
            self._once.append(True)  # nothing was sent: another reply may be tried
            raise

    def __del__(self) -> None:
        if self._once:
            message = f"the {type(self.message).__name__} was dropped without an answer"
            self._answer(Fault("internal", message), (), True)
