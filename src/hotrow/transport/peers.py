"""All connections on the server's side: sessions and open requests. No socket, no clock.

Memory is bounded against any number of connections: handshakes in progress and sessions are in two lists of fixed
length. A connection that was dropped from one gets UNAUTHENTICATED as its next reply, and starts again.

A connection that breaks is made again with another routing id. The client is recognized by the name in its proof: its
earlier requests are still in progress, and replies go to its new connection.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hotrow.errors import InputError
from hotrow.transport import envelope
from hotrow.transport.envelope import Opened, Outgoing, opened, outgoing, placed_frames, sealed
from hotrow.transport.limits import Limits
from hotrow.transport.reply_cache import ReplyCache
from hotrow.transport.ring_ends import RingServer
from hotrow.transport.ring_memory import NONCE
from hotrow.transport.rings import Rings, StaleRings
from hotrow.transport.security import SIZE, ClusterKey, ServerHandshake, Session

Reason = Literal["unproven", "mac", "decode", "busy", "repeated", "stale"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that is not handled: the reason, and the frame to reply with."""

    reason: Reason
    frame: bytes | None = None


@dataclass(frozen=True, slots=True)
class Respond:
    """A message of the protocol itself, and the frames to reply with."""

    frames: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A request that was answered before: the same reply with a new MAC."""

    frames: list[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request to handle, and the name of its client."""

    name: bytes
    opened: Opened
    fault: str | None = None  # why its frames cannot be read


@dataclass(frozen=True, slots=True)
class OneWay:
    """A message without a reply."""

    opened: Opened


@dataclass(slots=True, eq=False)
class Client:
    """A client, over all its connections."""

    where: bytes  # the routing id of its last connection
    open: set[int] = field(default_factory=set)  # numbers of requests without a reply
    below: int = 0  # lower numbers are complete: a late copy of such a request is not handled


@dataclass(slots=True, eq=False)
class ServerPeer:
    """A connection with a session."""

    session: Session
    name: bytes
    rings: Rings | None = None

    def close_rings(self) -> None:
        if self.rings is not None:
            self.rings.close()
        self.rings = None


Received: TypeAlias = Accepted | CachedReply | OneWay | Respond | Refused


class Peers:
    """All connections, by routing id."""

    def __init__(self, key: ClusterKey, limits: Limits, *, macs: bool, rings: RingServer | None = None) -> None:
        self._key, self._limits, self._macs, self._ring_server = key, limits, macs, rings
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

    def receive(self, who: bytes, frames: Sequence[memoryview]) -> Received:
        """A request to handle, or the reply to send instead."""
        if not frames or len(frames) > self._limits.frames or frames[0].nbytes > envelope.LONGEST:
            return Refused("decode")
        first, rest = bytes(frames[0]), frames[1:]
        match first[:1]:
            case envelope.HELLO if len(first) == 1 + SIZE and not rest:
                return self._greet(who, first[1:])
            case envelope.PROOF if not rest:
                return self._admit(who, first[1:])
            case envelope.REQUEST | envelope.PLACED_REQUEST | envelope.PROBE | envelope.OFFER:
                return self._open(who, first, rest)
            case envelope.ONE_WAY | envelope.PLACED_ONE_WAY:
                return self._open(who, first, rest)
            case _:
                return Refused("decode")

    def answer(
        self, name: bytes, number: int, header: bytes, frames: Sequence[memoryview], *, final: bool
    ) -> tuple[bytes, Outgoing] | None:
        """The routing id and the frames of a reply; None where the client is not known any more.

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
        return client.where, outgoing(peer.session, envelope.ANSWER, number, header, frames, peer.rings)

    def _greet(self, who: bytes, hello: bytes) -> Respond:
        handshake = ServerHandshake(self._key, hello, macs=self._macs)
        self._greeted[who] = handshake
        self._greeted.move_to_end(who)
        if len(self._greeted) > self._limits.unproven_peers:
            self._greeted.popitem(last=False)
        return Respond((envelope.CHALLENGE + b"".join(handshake.challenge),))

    def _admit(self, who: bytes, proof: bytes) -> Respond | Refused:
        handshake = self._greeted.pop(who, None)
        accepted = None if handshake is None else handshake.accept(proof)
        if accepted is None:  # an earlier session of this connection stays: a false proof must not end it
            return Refused("unproven", envelope.UNAUTHENTICATED)
        session, name = accepted
        if (before := self._proven.get(who)) is not None:
            before.close_rings()
        self._proven[who] = ServerPeer(session, name)
        self._clients.setdefault(name, Client(who)).where = who
        self._proven.move_to_end(who)
        self._clients.move_to_end(name)
        if len(self._proven) > self._limits.peers:
            self._proven.popitem(last=False)[1].close_rings()
        if len(self._clients) > self._limits.peers:
            self._clients.popitem(last=False)
        return Respond()

    def _open(self, who: bytes, first: bytes, rest: Sequence[memoryview]) -> Received:
        peer = self._proven.get(who)
        client = None if peer is None else self._clients.get(peer.name)
        if peer is None or client is None:
            return Refused("unproven", envelope.UNAUTHENTICATED)
        message = opened(peer.session, first, rest)
        if message is None:
            return Refused("mac", envelope.UNAUTHENTICATED)
        self._proven.move_to_end(who)
        self._clients.move_to_end(peer.name)
        if first[:1] == envelope.OFFER:
            return self._share(peer, bytes(message.header))
        try:
            accepted = self._accepted(peer, message)
        except StaleRings:
            return Refused("stale")
        if first[:1] in (envelope.ONE_WAY, envelope.PLACED_ONE_WAY):
            return OneWay(accepted.opened) if accepted.fault is None else Refused("decode")
        return self._handled(client, peer, accepted, probed=first[:1] == envelope.PROBE)

    def _share(self, peer: ServerPeer, offer: bytes) -> Respond:
        peer.close_rings()
        opened = "no shared memory under curve" if self._ring_server is None else self._ring_server.accept(offer)
        if isinstance(opened, str):
            header = bytes(NONCE) + opened.encode()
        else:
            peer.rings, header = opened
        return Respond((sealed(peer.session, envelope.SHARED, 0, header), header))

    def _accepted(self, peer: ServerPeer, message: Opened) -> Accepted:
        """With its frames from the ring. A message that is refused below frees its places there."""
        if not message.table:
            return Accepted(peer.name, message)
        try:
            frames = placed_frames(message, peer.rings)
        except InputError as error:
            return Accepted(peer.name, message._replace(frames=[]), str(error))
        return Accepted(peer.name, message._replace(frames=frames))

    def _handled(
        self, client: Client, peer: ServerPeer, accepted: Accepted, *, probed: bool
    ) -> Accepted | CachedReply | Respond | Refused:
        message = accepted.opened
        if message.below > client.below:
            client.below = message.below
            self._answers.release(peer.name, message.below)
        if message.number < client.below:
            return Refused("repeated")
        if message.number in client.open:
            if not probed:
                return Refused("repeated")
            return Respond((sealed(peer.session, envelope.IN_PROGRESS, message.number),))
        if (answer := self._answers.find(peer.name, message.number)) is not None:
            header, frames = answer
            return CachedReply([sealed(peer.session, envelope.ANSWER, message.number, header, frames), header, *frames])
        if probed:
            return Respond((sealed(peer.session, envelope.UNKNOWN, message.number),))
        if len(client.open) >= self._limits.open_requests:
            return Refused("busy")
        client.open.add(message.number)
        return accepted
