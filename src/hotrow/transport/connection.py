"""One connection as the side that asks sees it: the handshake, the seals, the open asks. No socket; time handed in.

What is to be sent lies in `outbox` after each call. Asks made before the handshake is done wait for it; a "who are you"
(the other side started anew, or needed the room) begins another handshake, after which all open asks are sent again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hotrow.transport import envelope
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import opened, sealed
from hotrow.transport.limits import RetryPolicy
from hotrow.transport.pending import NEVER, PendingRequest, PendingRequests
from hotrow.transport.security import Challenge, ClientHandshake, ClusterKey, Session, new_name

OTHER_KEY = "it does not know this cluster's key"
SILENT = "is it running, and does it have the same key and security?"


class Answered(NamedTuple):
    """An ask whose answer came; header and frames are the other side's."""

    ask: PendingRequest
    header: bytes | memoryview
    frames: list[memoryview]


class Connection:
    """A connection to one peer."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        macs: bool,
        patience: RetryPolicy,
        chance: Callable[[], float],
        counts: WireCounts,
        name: bytes | None = None,
    ) -> None:
        """`name`: of the line whose asks this one takes over."""
        self._key, self._macs = key, macs
        self.name = new_name() if name is None else name  # by which the peer knows it again, over all connections
        self._patience, self._chance, self._counts = patience, chance, counts
        self._handshake: ClientHandshake | None = None
        self._session: Session | None = None
        self._greetings = 0  # hellos since the peer was last heard
        self._greet_s = 0.0  # when to say hello (again)
        self.asks = PendingRequests(patience, chance)
        self.outbox: list[list[bytes | memoryview]] = []
        self.heard_s = float("-inf")
        self.trouble = SILENT  # what is known about a peer that is not heard

    def put(self, ask: PendingRequest, now: float) -> None:
        """A new ask, or one of another line's. Numbers of new ones rise."""
        self.asks.add(ask)
        if self._session is not None:
            self._send(ask, self._session, now)

    def put_off(self, ask: PendingRequest, now: float) -> None:
        """The answer to an ask was that there is no room: it is sent again after a pause."""
        self._counts.busy += 1
        self.asks.put_off(ask, now)

    def hear(self, frames: Sequence[memoryview], now: float) -> Answered | None:
        """What came. Whatever is not understood is counted and changes nothing."""
        first, rest = bytes(frames[0][: envelope.LONGEST + 1]), frames[1:]
        match first[:1]:
            case envelope.CHALLENGE:
                self._prove(first[1:], now)
            case envelope.WHO if self._session is not None:
                self._session = None  # _greet_s is past, unless the last handshake led to nothing just now
            case envelope.ANSWER | envelope.IN_HAND | envelope.NOT_HAD if self._session is not None:
                return self._open(self._session, first, rest, now)
            case envelope.WHO:
                pass  # several messages of the old session met a peer that started anew
            case _:
                self._counts.refused_decode += 1
        return None

    def tick(self, now: float) -> list[PendingRequest]:
        """Do what time demands; gives back the asks whose peer is lost."""
        if self._session is None and now >= self._greet_s:
            self._handshake = ClientHandshake(self._key, macs=self._macs, name=self.name)
            self.outbox.append([envelope.HELLO + self._handshake.hello])
            self._greet_s = now + self._patience.pause_s(self._greetings, self._chance())
            self._greetings += 1
        due, lost = self.asks.due(now, self.heard_s)
        if self._session is not None:
            for ask in due:
                self._look_after(ask, self._session, now)
        return lost

    @property
    def next_s(self) -> float:
        """When tick has something to do."""
        return min(self.asks.next_s, self._greet_s if self._session is None else NEVER)

    def _prove(self, data: bytes, now: float) -> None:
        challenge = Challenge.parse(data)
        if challenge is None or self._handshake is None or challenge.echo != self._handshake.hello:
            return  # of an earlier hello, or nobody asked
        proven = self._handshake.prove(challenge)
        if proven is None:
            self.trouble = OTHER_KEY
            self._counts.refused_mac += 1
            return
        proof, self._session = proven
        self._handshake, self.trouble = None, SILENT
        self._counts.handshakes += 1
        self.outbox.append([envelope.PROOF + proof])
        for ask in self.asks.all():
            self._send(ask, self._session, now)

    def _open(self, session: Session, first: bytes, rest: Sequence[memoryview], now: float) -> Answered | None:
        told = opened(session, first, rest)
        if told is None:
            self._counts.refused_mac += 1
            return None
        self.heard_s, self._greetings, self._greet_s = now, 0, now
        if first[:1] == envelope.ANSWER:
            ask = self.asks.take(told.number)
            if ask is not None:
                return Answered(ask, told.header, told.frames)
            self._counts.unasked += 1  # a second answer, or one that came too late
        elif first[:1] == envelope.NOT_HAD and (ask := self.asks.find(told.number)) is not None:
            self._send(ask, session, now)
        return None

    def _look_after(self, ask: PendingRequest, session: Session, now: float) -> None:
        if ask.put_off:
            self._send(ask, session, now)
            return
        self._counts.probes += 1
        self.outbox.append([sealed(session, envelope.PROBE, ask.number)])
        self.asks.sent(ask, now)

    def _send(self, ask: PendingRequest, session: Session, now: float) -> None:
        if ask.attempts:
            self._counts.resends += 1
        else:
            self._counts.asks += 1
        first = sealed(session, envelope.ASK, ask.number, ask.header, ask.frames, below=self.asks.lowest)
        self.outbox.append([first, ask.header, *ask.frames])
        self.asks.sent(ask, now)
