"""Who is in a cluster, by the names its wire knows them under, and how all of them are asked the same."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from hotrow.errors import InputError
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import Exchange, Exchanged, Message
from hotrow.transport.wire import Answer, Wire


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """`alive` raises, naming the role, where one of them is gone."""

    wire: Wire
    shards: Sequence[str]
    trainers: Sequence[str]
    alive: Callable[[], None]

    def incarnations(self) -> list[int]:
        """Of all shards, as they are now."""
        found = []
        for name in self.shards:
            told = self.wire.ask(name, Exchange(0)).result().message
            if not isinstance(told, Exchanged):
                raise InputError(f"{name} answered {type(told).__name__} to an exchange: is it of another version?")
            found.append(told.incarnation)
        return found

    def ask_all(
        self, names: Sequence[str], message: Message, frames: Sequence[Buffer] = (), *, deadline: bool = True
    ) -> list[Future[Answer]]:
        """The same question to several."""
        return [self.wire.ask(name, message, frames, deadline=deadline) for name in names]
