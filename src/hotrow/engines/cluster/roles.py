"""Who is in a cluster, by the names its wire knows them under, and how all of them are asked the same."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from hotrow.engines.cluster.embedders import Embedders
from hotrow.errors import InputError
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import Exchange, Exchanged, Message
from hotrow.transport.wire import Answer, Wire

WAKE_S = 0.1  # how long the loss of a role may go unnoticed


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """`alive` raises, naming the role, where one of them is gone."""

    wire: Wire
    shards: Sequence[str]
    trainers: Sequence[str]
    alive: Callable[[], None]
    embedders: Embedders | None = None  # None: trainers talk to the shards themselves

    def incarnations(self) -> list[int]:
        """Of all shards, as they are now."""
        found = []
        for name in self.shards:
            told = self.answer(self.wire.ask(name, Exchange(0))).message
            if not isinstance(told, Exchanged):
                raise InputError(f"{name} answered {type(told).__name__} to an exchange: is it of another version?")
            found.append(told.incarnation)
        return found

    def answer(self, asked: Future[Answer]) -> Answer:
        """Wait for it; a role that is gone meanwhile is named."""
        while not wait([asked], timeout=WAKE_S).done:
            self.alive()
        return asked.result()

    def ask_all(
        self, names: Sequence[str], message: Message, frames: Sequence[Buffer] = (), *, deadline: bool = True
    ) -> list[Future[Answer]]:
        """The same question to several."""
        return [self.wire.ask(name, message, frames, deadline=deadline) for name in names]
