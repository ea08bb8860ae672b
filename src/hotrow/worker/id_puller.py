"""Ids that an embedding worker pulls from loaders. They are taken in the order of the requests, however they arrive."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from msgspec.structs import replace

from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.messages import BatchAt, IdsGiven, LookUp, PullBatch
from hotrow.transport.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class PulledIds:
    """Ids that were requested from a loader."""

    request: Request
    message: LookUp
    loader: str
    asked: Future[Answer]

    def lookup(self) -> tuple[LookUp, list[memoryview]]:
        """The lookup with its ids, which are here."""
        answer = self.asked.result()
        ids = answer.of(IdsGiven, self.loader)
        return replace(self.message, count=ids.count, parts=ids.parts, at=None), answer.frames


class IdPuller:
    """All of one embedding worker. In the thread that computes, which `post` hands a call to."""

    def __init__(
        self, wire: RpcClient, post: Callable[[Callable[[], None]], None], take: Callable[[PulledIds], None]
    ) -> None:
        self._wire, self._post, self._take = wire, post, take
        self._pulling: deque[PulledIds] = deque()
        self._connected: set[str] = set()  # loaders

    def __len__(self) -> int:
        return len(self._pulling)

    def pull(self, request: Request, message: LookUp, at: BatchAt) -> None:
        """Take ids that a loader has, once they and those of the requests before are here."""
        self._wire.connect(at.loader, at.address, near=True)
        self._connected.add(at.loader)
        asked = self._wire.request(at.loader, PullBatch(at.reading, at.epoch, at.index, "ids"))
        self._pulling.append(PulledIds(request, message, at.loader, asked))
        asked.add_done_callback(lambda _: self._post(self._take_arrived))

    def _take_arrived(self) -> None:
        while self._pulling and self._pulling[0].asked.done():
            self._take(self._pulling.popleft())

    def forget(self, loader: str) -> None:
        """A loader is gone, or has nothing more to give."""
        if loader in self._connected:
            self._connected.remove(loader)
            self._wire.forget(loader)

    def clear(self) -> list[Request]:
        """Take nothing more; returns the requests that waited."""
        waiting = [each.request for each in self._pulling]
        self._pulling.clear()
        return waiting
