"""The cluster's key, the handshake by which client and server prove it to each other, and the MACs of messages.

The handshake, all of it HMAC-SHA256 under the cluster's key:
    client   Hello(nonce)                   32 random bytes
    server   Challenge(echo, nonce, proof)  its own 32, and proof of the key for these two nonces
    client   Proof(proof, name)             the same for the other side, and the client's name over reconnects
Both then derive the session's key. It is new for each connection, so a recording of one is useless on another.

The MAC is a keyed blake2b of 16 bytes over direction, sequence number, label, header and the lengths of the frames that
follow. Numbers only rise: a message that was replayed, reordered or altered is refused. The content of tensor frames is
not covered; `curve` encrypts everything.

No socket, no clock; the only source of randomness is `os.urandom`.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from hmac import compare_digest
from hmac import new as new_hmac
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from hotrow.errors import ConfigError
from hotrow.types import Security

KEY_FILE = "HOTROW_KEY_FILE"  # the environment's name for the path of the key
SIZE = 32  # bytes of keys, nonces and proofs
SEQUENCE, MAC = 8, 16  # bytes of sequence number and MAC
NAME = 16  # bytes of a client's name
_PURPOSE = b"hotrow wire 2: "  # another version of the handshake has other proofs


def _counts(frames: int) -> Struct:
    """The size of what follows, the length of the header, those of the frames."""
    return Struct(f"<{2 + frames}Q")


_COUNTS = tuple(_counts(frames) for frames in range(16))  # made once: most messages have few frames


@dataclass(frozen=True, slots=True, repr=False)  # the secret must not appear in a log
class ClusterKey:
    """The secret that all roles of a cluster share."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) != SIZE:
            raise ConfigError(f"a cluster key has {SIZE} bytes, not {len(self.secret)}: make one with `hotrow keygen`")

    @classmethod
    def generate(cls) -> "ClusterKey":
        return cls(os.urandom(SIZE))

    @classmethod
    def read(cls, path: Path | str) -> "ClusterKey":
        """The key in a file that only its owner may read."""
        try:
            with open(path, "rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                text = file.read(2 * SIZE + 2)
        except OSError as error:
            remedy = "make one with `hotrow keygen`"
            raise ConfigError(f"key file {path}: cannot be read ({error.strerror}): {remedy}") from None
        if mode & 0o077:
            raise ConfigError(f"key file {path}: others may read or change it (mode {mode:o}): chmod 600 {path}")
        try:
            return cls(bytes.fromhex(text.decode("ascii").strip()))
        except ValueError:  # no hexadecimal digits, or not as many
            message = f"must hold {2 * SIZE} hexadecimal digits: make one with `hotrow keygen`"
            raise ConfigError(f"key file {path}: {message}") from None

    @classmethod
    def of_env(cls) -> "ClusterKey":
        """The key in the file that HOTROW_KEY_FILE names."""
        path = os.environ.get(KEY_FILE)
        if not path:
            raise ConfigError(f"{KEY_FILE} is not set: give it the path of a file made by `hotrow keygen`")
        return cls.read(path)

    def write(self, path: Path | str) -> None:
        """A new file that only its owner may read."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            raise ConfigError(f"key file {path}: is there already, and a key is never written over") from None
        except OSError as error:
            raise ConfigError(f"key file {path}: cannot be written ({error.strerror})") from None
        with os.fdopen(handle, "w", encoding="ascii") as file:
            os.fchmod(handle, 0o600)  # regardless of umask and access lists
            file.write(self.secret.hex() + "\n")

    def derive(self, purpose: bytes, *parts: bytes) -> bytes:
        """32 bytes for one purpose. All parts have fixed lengths, so no two lists of them read the same."""
        return new_hmac(self.secret, _PURPOSE + purpose + b"\0" + b"".join(parts), sha256).digest()


NO_KEY = ClusterKey(bytes(SIZE))  # for `off`: public, proves only that both have the same protocol version


class Challenge(NamedTuple):
    """The server's reply to a hello."""

    echo: bytes  # of the hello it answers
    nonce: bytes
    proof: bytes

    @classmethod
    def parse(cls, data: bytes) -> "Challenge | None":
        if len(data) != 3 * SIZE:
            return None
        return cls(data[:SIZE], data[SIZE : 2 * SIZE], data[2 * SIZE :])


class Session:
    """Adds MACs to sent messages and checks those of received ones. `is_client`: the side of the connection."""

    def __init__(self, key: bytes, *, is_client: bool, macs: bool) -> None:
        self._keyed = blake2b(digest_size=MAC, key=key) if macs else None  # copies of it begin every MAC
        self._out, self._in = (b">", b"<") if is_client else (b"<", b">")
        self._sent = self._seen = 0

    def seal(self, label: bytes, header: bytes = b"", lengths: Sequence[int] = ()) -> bytes:
        """Sequence number and MAC of the next message. `label` has a fixed length."""
        self._sent += 1
        number = self._sent.to_bytes(SEQUENCE, "little")
        return number + self._mac(self._out, number, label, header, lengths)

    def open(self, seal: bytes, label: bytes, header: bytes | memoryview = b"", lengths: Sequence[int] = ()) -> bool:
        """Whether the other side sent exactly this, later than all that was opened before."""
        number = seal[:SEQUENCE]
        if not compare_digest(seal[SEQUENCE:], self._mac(self._in, number, label, header, lengths)):
            return False
        sequence = int.from_bytes(number, "little")
        if len(number) != SEQUENCE or sequence <= self._seen:
            return False
        self._seen = sequence
        return True

    def _mac(
        self, way: bytes, number: bytes, label: bytes, header: bytes | memoryview, lengths: Sequence[int]
    ) -> bytes:
        if self._keyed is None:
            return b""
        frames = len(lengths)
        counts = _COUNTS[frames] if frames < len(_COUNTS) else _counts(frames)
        mac = self._keyed.copy()
        mac.update(way + number + label + counts.pack(8 + 8 * frames, len(header), *lengths))
        mac.update(header)
        return mac.digest()


class ClientHandshake:
    """The client's side. One per hello; `name` is the same for all hellos of a client."""

    def __init__(self, key: ClusterKey, *, macs: bool, name: bytes | None = None) -> None:
        self._key, self._macs = key, macs
        self._name = new_name() if name is None else name
        self.hello = os.urandom(SIZE)

    def prove(self, challenge: Challenge) -> tuple[bytes, Session] | None:
        """The proof to send and the session, or None where the server does not know the key."""
        nonces = self.hello, challenge.nonce
        if not compare_digest(challenge.proof, self._key.derive(b"asked", *nonces)):
            return None
        session = Session(self._key.derive(b"session", *nonces), is_client=True, macs=self._macs)
        return self._key.derive(b"asks", *nonces, self._name) + self._name, session


class ServerHandshake:
    """The server's side. One per hello; its nonce is used once."""

    def __init__(self, key: ClusterKey, hello: bytes, *, macs: bool) -> None:
        self._key, self._macs = key, macs
        self._nonces = hello, os.urandom(SIZE)
        self.challenge = Challenge(hello, self._nonces[1], key.derive(b"asked", *self._nonces))

    def accept(self, answer: bytes) -> tuple[Session, bytes] | None:
        """The session and the client's name, or None where the client does not know the key."""
        proof, name = answer[:SIZE], answer[SIZE:]
        if len(name) != NAME or not compare_digest(proof, self._key.derive(b"asks", *self._nonces, name)):
            return None
        return Session(self._key.derive(b"session", *self._nonces), is_client=False, macs=self._macs), name


def new_name() -> bytes:
    """A random name for a client."""
    return os.urandom(NAME)


def checked_key(security: Security, key: ClusterKey | None) -> ClusterKey:
    """The key to prove under a setting of security."""
    if security not in ("off", "key", "curve"):
        raise ConfigError(f"security={security!r}: must be 'off', 'key' or 'curve'")
    if security == "off":
        return NO_KEY
    if key is None:
        raise ConfigError(f"security={security!r} needs a key: make one with `hotrow keygen`, or use 'off' on loopback")
    return key
