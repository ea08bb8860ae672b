"""One connection on the client's side: handshake, MACs, open requests. No socket; the time is an argument.

After each call `outbox` holds what is to be sent. Requests made before the handshake is complete wait for it. A reply
of UNAUTHENTICATED (the server restarted, or dropped the session) starts another handshake, after which all open
requests are sent again.

A new session offers shared memory to the server. Frames go through it from the reply on, until the session or the
memory ends; nothing waits for the reply.
"""

from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import NamedTuple

from hotrow.errors import InputError
from hotrow.transport import envelope
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import Opened, Outgoing, opened, outgoing, sealed
from hotrow.transport.limits import RetryPolicy
from hotrow.transport.pending import NEVER, PendingRequest, PendingRequests
from hotrow.transport.ring_ends import RingClient
from hotrow.transport.ring_memory import NONCE, OfferedMemory
from hotrow.transport.rings import Rings, StaleRings
from hotrow.transport.security import Challenge, ClientHandshake, ClusterKey, Session, new_name

OTHER_KEY = "it does not know this cluster's key"
SILENT = "is it running, and does it have the same key and security?"


class Answered(NamedTuple):
    """A request with its reply; header and frames come from the peer."""

    request: PendingRequest
    header: bytes | memoryview
    frames: list[memoryview]
    fault: str | None = None  # why the frames cannot be read


class Connection:
    def __init__(
        self,
        key: ClusterKey,
        *,
        macs: bool,
        retry: RetryPolicy,
        chance: Callable[[], float],
        counts: WireCounts,
        name: bytes | None = None,
        rings: RingClient | None = None,
    ) -> None:
        """`name`: of the connection whose requests this one takes over."""
        self._key, self._macs = key, macs
        self.name = new_name() if name is None else name  # the peer recognizes it over reconnects
        self._retry, self._chance, self._counts = retry, chance, counts
        self._handshake: ClientHandshake | None = None
        self._session: Session | None = None
        self._ring_client = rings
        self._offered: OfferedMemory | None = None
        self._rings: Rings | None = None
        self._greetings = 0  # hellos since anything was received
        self._greet_s = 0.0  # when to send the next hello
        self.requests = PendingRequests(retry, chance)
        self.outbox: list[Outgoing] = []
        self.received_s = float("-inf")
        self.trouble = SILENT  # why the peer may be silent

    def put(self, request: PendingRequest, now: float) -> None:
        """Add a new request, or one of another connection. Numbers of new ones rise."""
        self.requests.add(request)
        if self._session is not None:
            self._send(request, self._session, now)

    def send_one_way(self, header: bytes, frames: Sequence[memoryview]) -> None:
        """Send a one-way message; without a session it is dropped, which is counted."""
        if self._session is None:
            self._counts.one_way_unsent += 1
            return
        self._counts.one_way += 1
        self.outbox.append(outgoing(self._session, envelope.ONE_WAY, 0, header, frames, self._rings))

    def put_off(self, request: PendingRequest, now: float) -> None:
        """Send a request again after a pause: the reply was that the peer is busy."""
        self._counts.busy += 1
        self.requests.put_off(request, now)

    def receive(self, frames: Sequence[memoryview], now: float) -> Answered | None:
        """Handle one message. One that cannot be read is counted and changes nothing."""
        first = bytes(frames[0][: envelope.LONGEST + 1])
        kind = first[:1]
        if kind in envelope.SEALED_TO_CLIENT and self._session is not None:
            return self._open(self._session, kind, first, frames[1:], now)
        match kind:
            case envelope.CHALLENGE:
                self._prove(first[1:], now)
            case envelope.UNAUTHENTICATED:  # several may come of one session, when a server has restarted
                self._session = None  # _greet_s is past, unless a handshake failed a moment ago
            case _:
                self._counts.refused_decode += 1
        return None

    def tick(self, now: float) -> list[PendingRequest]:
        """Send what is due by now; returns the requests whose peer is lost."""
        if self._session is None and now >= self._greet_s:
            self._handshake = ClientHandshake(self._key, macs=self._macs, name=self.name)
            self.outbox.append(Outgoing([envelope.HELLO + self._handshake.hello]))
            self._greet_s = now + self._retry.pause_s(self._greetings, self._chance())
            self._greetings += 1
        due, lost = self.requests.due(now, self.received_s)
        if self._session is not None:
            for request in due:
                self._repeat(request, self._session, now)
        return lost

    @property
    def next_s(self) -> float:
        """When `tick` has to be called next."""
        return min(self.requests.next_s, self._greet_s if self._session is None else NEVER)

    def _prove(self, data: bytes, now: float) -> None:
        challenge = Challenge.parse(data)
        if challenge is None or self._handshake is None or challenge.echo != self._handshake.hello:
            return  # the reply to an earlier hello, or to none
        proven = self._handshake.prove(challenge)
        if proven is None:
            self.trouble = OTHER_KEY
            self._counts.refused_mac += 1
            return
        proof, self._session = proven
        self._handshake, self.trouble = None, SILENT
        self._counts.handshakes += 1
        self.outbox.append(Outgoing([envelope.PROOF + proof]))
        self._offer_rings(self._session)
        for request in self.requests.all():
            self._send(request, self._session, now)

    def _open(
        self, session: Session, kind: bytes, first: bytes, rest: Sequence[memoryview], now: float
    ) -> Answered | None:
        message = opened(session, first, rest)
        if message is None:
            self._counts.refused_mac += 1
            return None
        self.received_s, self._greetings, self._greet_s = now, 0, now
        if kind == envelope.ANSWER or kind == envelope.PLACED_ANSWER:
            return self._answered(message)
        if kind == envelope.SHARED:
            self._share(bytes(message.header))
        elif kind == envelope.UNKNOWN and (request := self.requests.find(message.number)) is not None:
            self._send(request, session, now)
        return None

    def _answered(self, message: Opened) -> Answered | None:
        frames, fault = message.frames, None
        if message.table:
            try:
                frames = envelope.placed_frames(message, self._rings)
            except StaleRings:
                self._counts.stale_rings += 1
                return None
            except InputError as error:
                fault = str(error)
        request = self.requests.take(message.number)
        if request is None:
            self._counts.unexpected += 1  # a second reply, or one that came too late
            return None
        return Answered(request, message.header, frames, fault)

    def close_rings(self) -> None:
        """Give up the shared memory, offered or in use."""
        if self._offered is not None:
            self._offered.close()
        if self._rings is not None:
            self._rings.close()
        self._offered = self._rings = None

    def _offer_rings(self, session: Session) -> None:
        self.close_rings()
        self._offered = None if self._ring_client is None else self._ring_client.offer()
        if self._offered is not None:
            header = self._offered.offer.encode()
            self.outbox.append(Outgoing([sealed(session, envelope.OFFER, 0, header), header]))

    def _share(self, header: bytes) -> None:
        """The server has opened the memory, and proves it by the nonce; or it has not, and says why."""
        offered, self._offered = self._offered, None
        if offered is None or self._ring_client is None:
            self._counts.unexpected += 1
        elif compare_digest(header[:NONCE], offered.memory.nonce):
            offered.withdraw()
            self._rings = self._ring_client.accepted(offered)
        else:
            self._ring_client.refused(offered, header[NONCE:].decode(errors="replace"))

    def _repeat(self, request: PendingRequest, session: Session, now: float) -> None:
        if request.put_off:
            self._send(request, session, now)
            return
        self._counts.probes += 1
        self.outbox.append(Outgoing([sealed(session, envelope.PROBE, request.number)]))
        self.requests.sent(request, now)

    def _send(self, request: PendingRequest, session: Session, now: float) -> None:
        if request.attempts:
            self._counts.resends += 1
        else:
            self._counts.requests += 1
        self.outbox.append(
            outgoing(
                session,
                envelope.REQUEST,
                request.number,
                request.header,
                request.frames,
                self._rings,
                below=self.requests.lowest,
            )
        )
        self.requests.sent(request, now)
