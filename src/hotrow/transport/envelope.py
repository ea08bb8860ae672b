"""The first frame of every message, and headers as bytes.

hello    h nonce               challenge  c echo nonce proof     proof    p proof name
    request  q number below mac    reply      a number mac           (header and tensor frames follow both)
    probe    ? number mac          in progress  i number mac         unknown  n number mac
    offer    o 0 mac, header       shared     s 0 mac, header        (shared memory: ring_memory.py)
    request  Q number below mac    reply      A number mac           (header, table, frames that are in no ring)
    one-way  t 0 mac               T 0 mac                           (as a request; it has no number and no reply)
    unauthenticated  w

Messages of the handshake have this one frame only. The number is that of the request, 8 bytes. `below`, 8 bytes: no
request of a lower number is open any more, its reply has arrived or is not awaited.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import torch
from msgspec import MsgspecError, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from hotrow.errors import InputError
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Message
from hotrow.transport.rings import Placement, Rings, StaleRings
from hotrow.transport.security import MAC, SEQUENCE, SIZE, Session

Buffer: TypeAlias = Any  # bytes, a memoryview, a numpy array, a CPU tensor: anything with contiguous memory

HELLO, CHALLENGE, PROOF, UNAUTHENTICATED = b"h", b"c", b"p", b"w"
REQUEST, ANSWER, PROBE, IN_PROGRESS, UNKNOWN = b"q", b"a", b"?", b"i", b"n"
PLACED_REQUEST, PLACED_ANSWER = b"Q", b"A"  # with frames in a ring
ONE_WAY, PLACED_ONE_WAY = b"t", b"T"
OFFER, SHARED = b"o", b"s"
SEALED_TO_CLIENT = frozenset((ANSWER, PLACED_ANSWER, IN_PROGRESS, UNKNOWN, SHARED))

LABEL, REQUEST_LABEL = 9, 17  # kind and number, and of a request `below`
LONGEST = max(1 + 3 * SIZE, REQUEST_LABEL + SEQUENCE + MAC)

_REQUESTS, _PLACED = (REQUEST, PLACED_REQUEST), (PLACED_REQUEST, PLACED_ANSWER, PLACED_ONE_WAY)
Field = TypeVar("Field")
_ENCODER = Encoder()
_DECODER: Decoder[Message] = Decoder(Message)


class Opened(NamedTuple):
    """A message whose MAC matched."""

    number: int
    header: bytes | memoryview
    frames: list[memoryview]
    below: int = 0  # of a request: no lower number is open any more
    table: bytes = b""  # of frames in a ring, which are not among `frames`


class Outgoing(Struct):
    """A message as its frames. `rings` are where some of its tensors were placed."""

    frames: list[bytes | memoryview]
    rings: Rings | None = None
    placement: Placement | None = None

    @property
    def nbytes(self) -> int:
        return sum(memoryview(frame).nbytes for frame in self.frames) + (self.placement.nbytes if self.placement else 0)

    @property
    def is_one_way(self) -> bool:
        return bytes(self.frames[0][:1]) in (ONE_WAY, PLACED_ONE_WAY)

    def unsent(self) -> None:
        """Free its places in the rings: the socket did not take it."""
        if self.rings is not None and self.placement is not None:
            self.rings.free(self.placement)
            self.placement = None


def encode(message: Message) -> bytes:
    return _ENCODER.encode(message)


def preencoded(field: Field) -> Field:
    """A field of several messages, encoded once. Such a message can be sent, and not be read before that."""
    return cast(Field, Raw(_ENCODER.encode(field)))


def decode(header: bytes | memoryview) -> Message:
    """The message; InputError where the bytes are none."""
    try:
        return _DECODER.decode(header)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"a header that is not a message: {error}") from None


def outgoing(
    session: Session,
    kind: bytes,
    number: int,
    header: bytes,
    frames: Sequence[memoryview],
    rings: Rings | None,
    *,
    below: int = 0,
) -> Outgoing:
    """A request, a reply or a one-way message, its large frames in a ring where there is one and it has room."""
    placement = None if rings is None else rings.place(frames)
    if placement is None:
        return Outgoing([sealed(session, kind, number, header, frames, below=below), header, *frames])
    first = sealed(session, kind.upper(), number, header, placement.frames, below=below, table=placement.table)
    return Outgoing([first, header, placement.table, *placement.frames], rings, placement)


def sealed(
    session: Session,
    kind: bytes,
    number: int,
    header: bytes = b"",
    frames: Sequence[memoryview] = (),
    *,
    below: int = 0,
    table: bytes = b"",
) -> bytes:
    """The first frame of a message of a session. `below` is sent with a request, `table` where frames are placed."""
    label = kind + number.to_bytes(8, "little") + (below.to_bytes(8, "little") if kind in _REQUESTS else b"")
    lengths = [frame.nbytes for frame in frames]
    if kind in _PLACED:
        return label + session.seal(label, header + table, [len(header), *lengths])
    return label + session.seal(label, header, lengths)


def opened(session: Session, first: bytes, rest: Sequence[memoryview]) -> Opened | None:
    """A received message, or None where its MAC does not match."""
    kind, table = first[:1], b""
    header: bytes | memoryview = rest[0] if rest else b""
    if kind in _PLACED:
        if len(rest) < 2:
            return None
        table, frames = bytes(rest[1]), list(rest[2:])
        covered: bytes | memoryview = bytes(header) + table
        lengths = [len(header), *[frame.nbytes for frame in frames]]
    else:
        frames, covered = list(rest[1:]), header
        lengths = [frame.nbytes for frame in frames]
    label = REQUEST_LABEL if kind in _REQUESTS else LABEL
    if len(first) < label or not session.open(first[label:], first[:label], covered, lengths):
        return None
    number, below = int.from_bytes(first[1:LABEL], "little"), int.from_bytes(first[LABEL:label], "little")
    return Opened(number, header, frames, below, table)


def placed_frames(message: Opened, rings: Rings | None) -> list[memoryview]:
    """All frames of a message with frames in a ring. StaleRings where these rings are closed, InputError where the
    table is not one."""
    if rings is None:
        raise StaleRings
    return rings.views(message.table, message.frames)


def lent(frames: Iterable[Buffer]) -> tuple[memoryview, ...]:
    """The memory of frames, without a copy."""
    return tuple(map(_view, frames))


def _view(frame: Buffer) -> memoryview:
    try:
        memory: Any = frame.detach().numpy() if isinstance(frame, torch.Tensor) else frame
        view = memoryview(memory)
    except (TypeError, RuntimeError) as error:  # no buffer, or not in the memory of this machine
        raise InputError(
            f"a frame of type {type(frame).__name__}: give bytes, an array or a CPU tensor ({error})"
        ) from None
    if not view.c_contiguous:
        raise InputError("a frame that is not contiguous: call .contiguous() or numpy.ascontiguousarray first")
    return view


def check_sizes(header: bytes, frames: Sequence[memoryview], limits: Limits) -> None:
    """InputError for a message that the receiver would answer by closing the connection."""
    if len(frames) + 2 > limits.frames:
        raise InputError(
            f"a message of {len(frames) + 2:,} frames: at most {limits.frames:,} (Limits.frames); split it"
        )
    longest = len(header)
    for frame in frames:
        if frame.nbytes > longest:
            longest = frame.nbytes
    if longest > limits.frame_bytes:
        raise InputError(f"a frame of {longest:,} bytes: at most {limits.frame_bytes:,} (Limits.frame_bytes); split it")
