"""All connections as the side that is asked sees them: who proved the key, what each has open. No socket, no clock.

Memory is bounded whatever strangers do: handshakes under way and proven peers are kept in two lists of fixed length.
Who falls out of one is told "who are you" when it speaks next, and starts again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hotrow.transport import envelope
from hotrow.transport.envelope import Opened, opened, sealed
from hotrow.transport.limits import Limits
from hotrow.transport.security import SIZE, ClusterKey, ServerHandshake, Session

Reason = Literal["unproven", "mac", "decode", "busy", "repeated"]


@dataclass(frozen=True, slots=True)
class Refused:
    """What is not passed on: why, and the one frame to say to its sender."""

    reason: Reason
    say: bytes | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """Nothing to pass on, but perhaps one frame to say."""

    frame: bytes | None = None


@dataclass(slots=True)
class Peer:
    """One that proved the key."""

    session: Session
    open: set[int] = field(default_factory=set)  # numbers of asks that are not answered


class Peers:
    """Everybody who is connected, by routing id."""

    def __init__(self, key: ClusterKey, limits: Limits, *, macs: bool) -> None:
        self._key, self._limits, self._macs = key, limits, macs
        self._greeted: OrderedDict[bytes, ServerHandshake] = OrderedDict()
        self._proven: OrderedDict[bytes, Peer] = OrderedDict()

    @property
    def sizes(self) -> tuple[int, int]:
        """How many are in the middle of a handshake, and how many proved the key."""
        return len(self._greeted), len(self._proven)

    def hear(self, who: bytes, frames: Sequence[memoryview]) -> Opened | Say | Refused:
        """An ask to pass on, or what to do instead."""
        if not frames or len(frames) > self._limits.frames or frames[0].nbytes > envelope.LONGEST:
            return Refused("decode")
        first, rest = bytes(frames[0]), frames[1:]
        match first[:1]:
            case envelope.HELLO if len(first) == 1 + SIZE and not rest:
                return self._greet(who, first[1:])
            case envelope.PROOF if not rest:
                return self._admit(who, first[1:])
            case envelope.ASK | envelope.PROBE:
                return self._open(who, first, rest)
            case _:
                return Refused("decode")

    def answer(self, who: bytes, number: int, header: bytes, frames: Sequence[memoryview]) -> bytes | None:
        """The first frame of an answer; None where the peer is not known any more. The ask is open no longer."""
        peer = self._proven.get(who)
        if peer is None:
            return None
        peer.open.discard(number)
        return sealed(peer.session, envelope.ANSWER, number, header, frames)

    def _greet(self, who: bytes, hello: bytes) -> Say:
        handshake = ServerHandshake(self._key, hello, macs=self._macs)
        self._greeted[who] = handshake
        self._greeted.move_to_end(who)
        if len(self._greeted) > self._limits.unproven_peers:
            self._greeted.popitem(last=False)
        return Say(envelope.CHALLENGE + b"".join(handshake.challenge))

    def _admit(self, who: bytes, proof: bytes) -> Say | Refused:
        handshake = self._greeted.pop(who, None)
        session = None if handshake is None else handshake.accept(proof)
        if session is None:  # an earlier session of this peer, if any, goes on: a false proof must not end it
            return Refused("unproven", envelope.WHO)
        before = self._proven.get(who)
        self._proven[who] = Peer(session, set() if before is None else before.open)
        self._proven.move_to_end(who)
        if len(self._proven) > self._limits.peers:
            self._proven.popitem(last=False)
        return Say()

    def _open(self, who: bytes, first: bytes, rest: Sequence[memoryview]) -> Opened | Say | Refused:
        peer = self._proven.get(who)
        if peer is None:
            return Refused("unproven", envelope.WHO)
        told = opened(peer.session, first, rest)
        if told is None:
            return Refused("mac", envelope.WHO)
        self._proven.move_to_end(who)
        if first[:1] == envelope.PROBE:
            kind = envelope.IN_HAND if told.number in peer.open else envelope.NOT_HAD
            return Say(sealed(peer.session, kind, told.number))
        if told.number in peer.open:
            return Refused("repeated")
        if len(peer.open) >= self._limits.open_asks:
            return Refused("busy")
        peer.open.add(told.number)
        return told
