"""The first frame of every message, and headers as bytes.

hello    h nonce               challenge  c echo nonce proof     proof    p proof name
    request  q number below mac    reply      a number mac           (header and tensor frames follow both)
    probe    ? number mac          in progress  i number mac         unknown  n number mac
    unauthenticated  w

Messages of the handshake have this one frame only. The number is that of the request, 8 bytes. `below`, 8 bytes: no
request of a lower number is open any more, its reply has arrived or is not awaited.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import torch
from msgspec import MsgspecError, Raw
from msgspec.msgpack import Decoder, Encoder

from hotrow.errors import InputError
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Message
from hotrow.transport.security import MAC, SEQUENCE, SIZE, Session

Buffer: TypeAlias = Any  # bytes, a memoryview, a numpy array, a CPU tensor: anything with contiguous memory

HELLO, CHALLENGE, PROOF, UNAUTHENTICATED = b"h", b"c", b"p", b"w"
REQUEST, ANSWER, PROBE, IN_PROGRESS, UNKNOWN = b"q", b"a", b"?", b"i", b"n"

LABEL, REQUEST_LABEL = 9, 17  # kind and number, and of a request `below`
LONGEST = max(1 + 3 * SIZE, REQUEST_LABEL + SEQUENCE + MAC)

Field = TypeVar("Field")
_ENCODER = Encoder()
_DECODER: Decoder[Message] = Decoder(Message)


class Opened(NamedTuple):
    """A message whose MAC matched."""

    number: int
    header: bytes | memoryview
    frames: list[memoryview]
    below: int = 0  # of a request: no lower number is open any more


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


def sealed(
    session: Session,
    kind: bytes,
    number: int,
    header: bytes = b"",
    frames: Sequence[memoryview] = (),
    *,
    below: int = 0,
) -> bytes:
    """The first frame of a message of a session. `below` is sent with a request."""
    label = kind + number.to_bytes(8, "little") + (below.to_bytes(8, "little") if kind == REQUEST else b"")
    return label + session.seal(label, header, [frame.nbytes for frame in frames])


def opened(session: Session, first: bytes, rest: Sequence[memoryview]) -> Opened | None:
    """A received message, or None where its MAC does not match."""
    header: bytes | memoryview = rest[0] if rest else b""
    lengths = [frame.nbytes for frame in rest[1:]]
    label = REQUEST_LABEL if first[:1] == REQUEST else LABEL
    if len(first) < label or not session.open(first[label:], first[:label], header, lengths):
        return None
    number, below = int.from_bytes(first[1:LABEL], "little"), int.from_bytes(first[LABEL:label], "little")
    return Opened(number, header, list(rest[1:]), below)


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
        longest = max(longest, frame.nbytes)
    if longest > limits.frame_bytes:
        raise InputError(f"a frame of {longest:,} bytes: at most {limits.frame_bytes:,} (Limits.frame_bytes); split it")
