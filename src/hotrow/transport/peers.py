"""All connections on the server's side: sessions and open requests. No socket, no clock.

Memory is bounded against any number of connections: handshakes in progress and sessions are in two lists of fixed
length. A connection that was dropped from one gets UNAUTHENTICATED as its next reply, and starts again.

A connection that breaks is made again with another routing id. The client is recognized by the name in its proof: its
earlier requests are still in progress, and replies go to its new connection.
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
    """A message that is not handled: the reason, and the frame to reply with."""

    reason: Reason
    frame: bytes | None = None


@dataclass(frozen=True, slots=True)
class Respond:
    """A message of the protocol itself, and the frame to reply with."""

    frame: bytes | None = None


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A request that was answered before: the same reply with a new MAC."""

    frames: list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request to handle, and the name of its client."""

    name: bytes
    opened: Opened


@dataclass(slots=True, eq=False)
class Client:
    """A client, over all its connections."""

    where: bytes  # the routing id of its last connection
    open: set[int] = field(default_factory=set)  # numbers of requests without a reply
    below: int = 0  # lower numbers are complete: a late copy of such a request is not handled


@dataclass(frozen=True, slots=True)
class ServerPeer:
    """A connection with a session."""

    session: Session
    name: bytes


class Peers:
    """All connections, by routing id."""

    def __init__(self, key: ClusterKey, limits: Limits, *, macs: bool) -> None:
        self._key, self._limits, self._macs = key, limits, macs
        self._greeted: OrderedDict[bytes, ServerHandshake] = OrderedDict()
        self._proven: OrderedDict[bytes, ServerPeer] = OrderedDict()
        self._clients: OrderedDict[bytes, Client] = OrderedDict()  # by name
        self._answers = ReplyCache(limits)

    @property
    def sizes(self) -> tuple[int, int]:
        """Handshakes in progress, and sessions."""
        return len(self._greeted), len(self._proven)

    @property
    def kept(self) -> int:
        """Replies that are kept for repeated requests."""
        return len(self._answers)

    def receive(self, who: bytes, frames: Sequence[memoryview]) -> Accepted | CachedReply | Respond | Refused:
        """A request to handle, or the reply to send instead."""
        if not frames or len(frames) > self._limits.frames or frames[0].nbytes > envelope.LONGEST:
            return Refused("decode")
        first, rest = bytes(frames[0]), frames[1:]
        match first[:1]:
            case envelope.HELLO if len(first) == 1 + SIZE and not rest:
                return self._greet(who, first[1:])
            case envelope.PROOF if not rest:
                return self._admit(who, first[1:])
            case envelope.REQUEST | envelope.PROBE:
                return self._open(who, first, rest)
            case _:
                return Refused("decode")

    def answer(
        self, name: bytes, number: int, header: bytes, frames: Sequence[memoryview], *, final: bool
    ) -> tuple[bytes, bytes] | None:
        """The routing id and the first frame of a reply; None where the client is not known any more.

        The request is complete then. One whose reply is not `final` may be sent again.
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

    def _greet(self, who: bytes, hello: bytes) -> Respond:
        handshake = ServerHandshake(self._key, hello, macs=self._macs)
        self._greeted[who] = handshake
        self._greeted.move_to_end(who)
        if len(self._greeted) > self._limits.unproven_peers:
            self._greeted.popitem(last=False)
        return Respond(envelope.CHALLENGE + b"".join(handshake.challenge))

    def _admit(self, who: bytes, proof: bytes) -> Respond | Refused:
        handshake = self._greeted.pop(who, None)
        accepted = None if handshake is None else handshake.accept(proof)
        if accepted is None:  # an earlier session of this connection stays: a false proof must not end it
            return Refused("unproven", envelope.UNAUTHENTICATED)
        session, name = accepted
        self._proven[who] = ServerPeer(session, name)
        self._clients.setdefault(name, Client(who)).where = who
        for known, key in ((self._proven, who), (self._clients, name)):
            known.move_to_end(key)
            if len(known) > self._limits.peers:
                known.popitem(last=False)
        return Respond()

    def _open(self, who: bytes, first: bytes, rest: Sequence[memoryview]) -> Accepted | CachedReply | Respond | Refused:
        peer = self._proven.get(who)
        client = None if peer is None else self._clients.get(peer.name)
        if peer is None or client is None:
            return Refused("unproven", envelope.UNAUTHENTICATED)
        message = opened(peer.session, first, rest)
        if message is None:
            return Refused("mac", envelope.UNAUTHENTICATED)
        self._proven.move_to_end(who)
        self._clients.move_to_end(peer.name)
        probed = first[:1] == envelope.PROBE
        if message.below > client.below:
            client.below = message.below
            self._answers.release(peer.name, message.below)
        if message.number < client.below:
            return Refused("repeated")
        if message.number in client.open:
            return (
                Respond(sealed(peer.session, envelope.IN_PROGRESS, message.number)) if probed else Refused("repeated")
            )
        if (answer := self._answers.find(peer.name, message.number)) is not None:
            header, frames = answer
            return CachedReply([sealed(peer.session, envelope.ANSWER, message.number, header, frames), header, *frames])
        if probed:
            return Respond(sealed(peer.session, envelope.UNKNOWN, message.number))
        if len(client.open) >= self._limits.open_requests:
            return Refused("busy")
        client.open.add(message.number)
        return Accepted(peer.name, message)
