"""All connections as the side that is asked sees them: who proved the key, what each has open. No socket, no clock.

Memory is bounded whatever strangers do: handshakes under way and proven peers are kept in two lists of fixed length.
Who falls out of one is told "who are you" when it speaks next, and starts again.

A connection that breaks is made anew, under another routing id. A peer is known again by the name that it tells with
its proof: what it asked before is in hand still, what was answered is answered again, and goes where it is now.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hotrow.transport import envelope
from hotrow.transport.envelope import Opened, opened, sealed
from hotrow.transport.limits import Limits
from hotrow.transport.reply_cache import ReplyCache
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


@dataclass(frozen=True, slots=True)
class Again:
    """An ask that was answered: the same answer, sealed anew."""

    frames: list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Asked:
    """An ask to pass on, and by which name its peer goes."""

    name: bytes
    told: Opened


@dataclass(slots=True, eq=False)
class Client:
    """One that asks, over all its connections."""

    where: bytes  # the routing id of the last one
    open: set[int] = field(default_factory=set)  # numbers of asks that are not answered
    below: int = 0  # lower numbers are never asked again: a copy of one that comes late is not handled


@dataclass(frozen=True, slots=True)
class ServerPeer:
    """A connection that proved the key."""

    session: Session
    name: bytes


class Peers:
    """Everybody who is connected, by routing id."""

    def __init__(self, key: ClusterKey, limits: Limits, *, macs: bool) -> None:
        self._key, self._limits, self._macs = key, limits, macs
        self._greeted: OrderedDict[bytes, ServerHandshake] = OrderedDict()
        self._proven: OrderedDict[bytes, ServerPeer] = OrderedDict()
        self._clients: OrderedDict[bytes, Client] = OrderedDict()  # by name
        self._answers = ReplyCache(limits)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many are in the middle of a handshake, and how many proved the key."""
        return len(self._greeted), len(self._proven)

    @property
    def kept(self) -> int:
        """Answers that may have to be given again."""
        return len(self._answers)

    def hear(self, who: bytes, frames: Sequence[memoryview]) -> Asked | Again | Say | Refused:
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

    def answer(
        self, name: bytes, number: int, header: bytes, frames: Sequence[memoryview], *, final: bool
    ) -> tuple[bytes, bytes] | None:
        """Where an answer goes, and its first frame; None where the peer is not known any more.

        The ask is open no longer. One that is not `final` may be asked again.
        """
        client = self._clients.get(name)
        if client is None:
            return None
        client.open.discard(number)
        if final and number >= client.below:
            self._answers.keep(name, number, header, frames)
        peer = self._proven.get(client.where)
        if peer is None:
            return None
        return client.where, sealed(peer.session, envelope.ANSWER, number, header, frames)

    def _greet(self, who: bytes, hello: bytes) -> Say:
        handshake = ServerHandshake(self._key, hello, macs=self._macs)
        self._greeted[who] = handshake
        self._greeted.move_to_end(who)
        if len(self._greeted) > self._limits.unproven_peers:
            self._greeted.popitem(last=False)
        return Say(envelope.CHALLENGE + b"".join(handshake.challenge))

    def _admit(self, who: bytes, proof: bytes) -> Say | Refused:
        handshake = self._greeted.pop(who, None)
        accepted = None if handshake is None else handshake.accept(proof)
        if accepted is None:  # an earlier session of this peer, if any, goes on: a false proof must not end it
            return Refused("unproven", envelope.WHO)
        session, name = accepted
        self._proven[who] = ServerPeer(session, name)
        self._clients.setdefault(name, Client(who)).where = who
        for known, key in ((self._proven, who), (self._clients, name)):
            known.move_to_end(key)
            if len(known) > self._limits.peers:
                known.popitem(last=False)
        return Say()

    def _open(self, who: bytes, first: bytes, rest: Sequence[memoryview]) -> Asked | Again | Say | Refused:
        peer = self._proven.get(who)
        client = None if peer is None else self._clients.get(peer.name)
        if peer is None or client is None:
            return Refused("unproven", envelope.WHO)
        told = opened(peer.session, first, rest)
        if told is None:
            return Refused("mac", envelope.WHO)
        self._proven.move_to_end(who)
        self._clients.move_to_end(peer.name)
        probed = first[:1] == envelope.PROBE
        if told.below > client.below:
            client.below = told.below
            self._answers.release(peer.name, told.below)
        if told.number < client.below:
            return Refused("repeated")
        if told.number in client.open:
            return Say(sealed(peer.session, envelope.IN_HAND, told.number)) if probed else Refused("repeated")
        if (answer := self._answers.find(peer.name, told.number)) is not None:
            header, frames = answer
            return Again([sealed(peer.session, envelope.ANSWER, told.number, header, frames), header, *frames])
        if probed:
            return Say(sealed(peer.session, envelope.NOT_HAD, told.number))
        if len(client.open) >= self._limits.open_asks:
            return Refused("busy")
        client.open.add(told.number)
        return Asked(peer.name, told)
