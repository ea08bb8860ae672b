"""The shared memory of two rings: made by a client, opened by the server of the same host.

It is a memfd, which has no name in any file system: the kernel frees it when the last process that has it ends, so
SIGKILL at any moment leaves nothing, and the size of /dev/shm does not matter. The server opens it as a file descriptor
of the client, /proc/<pid>/fd/<number>, which only processes of the same user may. Seals keep it from being shortened:
an access beyond the end of a file would end the process that makes it.

A pipe goes with it, and nothing is ever written to it. Each end notices in its poll that the other one was closed, by a
call or because the process died.

Layout: one page with a nonce and the flags of both rings, then the client's ring, then the server's.
"""

import fcntl
import mmap
import os
import re
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from hotrow.errors import InputError

PAGE = 4096
NONCE = 32
SLOTS = 1024  # of a ring at a time: a byte in the first page for each
FLAGS = {True: SLOTS, False: 2 * SLOTS}  # where those of the client's ring begin, and of the server's
TOKEN = 16

_OFFER = Struct(f"<QIIQ{TOKEN}s")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if sys.platform == "linux" else 0


class RingOffer(NamedTuple):
    """Where a server finds the memory of a client. The nonce is in the memory only."""

    pid: int
    memory: int  # file descriptors of the client
    pipe: int
    ring_bytes: int
    token: bytes  # random, in the name of the memory: no other process has one of this name

    def encode(self) -> bytes:
        return _OFFER.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "RingOffer":
        try:
            return cls(*_OFFER.unpack(data))
        except StructError:
            raise InputError(f"an offer of shared memory has {_OFFER.size} bytes, not {len(data)}") from None


@dataclass(slots=True)
class RingMemory:
    """One end of the memory. `pipe` tells when the other end is gone; what is mapped lives as long as its views."""

    mapped: mmap.mmap
    pipe: int
    ring_bytes: int
    token: bytes

    @property
    def nonce(self) -> bytes:
        return self.mapped[:NONCE]

    def close(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
        self.pipe = -1


class OfferedMemory:
    """The client's end while the server has not replied. The memory has 2 * `ring_bytes`; pages that are never
    written take none."""

    def __init__(self, ring_bytes: int) -> None:
        """OSError where the system does not give it."""
        token = os.urandom(TOKEN)
        self._memory = os.memfd_create(_name(token), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.fchmod(self._memory, 0o600)
            os.ftruncate(self._memory, _size(ring_bytes))
            fcntl.fcntl(self._memory, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
            mapped = mmap.mmap(self._memory, _size(ring_bytes))
            self._pipe, other = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            os.close(self._memory)
            raise
        mapped[:NONCE] = os.urandom(NONCE)
        self.memory = RingMemory(mapped, other, ring_bytes, token)
        self.offer = RingOffer(os.getpid(), self._memory, self._pipe, ring_bytes, token)

    def withdraw(self) -> None:
        """Close what only the server needed; it has opened its own by now, or never will."""
        if self._memory >= 0:
            os.close(self._memory)
            os.close(self._pipe)
        self._memory = -1

    def close(self) -> None:
        self.withdraw()
        self.memory.close()


def open_memory(offer: RingOffer, most: int) -> RingMemory:
    """The server's end. InputError with the reason where it cannot be had: another host, container or user."""
    if not 0 < offer.ring_bytes <= most or offer.ring_bytes % PAGE:
        raise InputError(f"ring_bytes={offer.ring_bytes:,}: this end allows a multiple of {PAGE:,} up to {most:,}")
    name = re.escape(f"/memfd:{_name(offer.token)} (deleted)")
    try:
        memory = _open_descriptor(offer.pid, offer.memory, name, os.O_RDWR)
        try:
            _check(memory, _size(offer.ring_bytes))
            pipe = _open_descriptor(offer.pid, offer.pipe, r"pipe:\[\d+\]", os.O_RDONLY)
            try:
                mapped = mmap.mmap(memory, _size(offer.ring_bytes))
            except OSError:
                os.close(pipe)
                raise
        finally:
            os.close(memory)
    except OSError as error:
        raise InputError(f"process {offer.pid} has no memory that can be opened here: {error.strerror}") from None
    return RingMemory(mapped, pipe, offer.ring_bytes, offer.token)


def _open_descriptor(pid: int, number: int, target: str, flags: int) -> int:
    """Open a file descriptor of another process. It has another target where that process is not the one meant: pids
    of another host or container."""
    path = f"/proc/{pid}/fd/{number}"
    if not re.fullmatch(target, found := os.readlink(path)):
        raise InputError(f"process {pid} is another one here: its file {number} is {found}")
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _check(memory: int, nbytes: int) -> None:
    found = os.fstat(memory)
    if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes:
        raise InputError(f"the shared memory has {found.st_size:,} bytes, its offer says {nbytes:,}")
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o600:
        raise InputError(f"the shared memory is of user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}")
    seals = 0
    with suppress(OSError):  # it has none: not a memfd
        seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    if seals & _SEALS != _SEALS:
        raise InputError("the shared memory is not sealed: its owner could shorten it")


def _name(token: bytes) -> str:
    return f"hotrow-ring-{token.hex()}"


def _size(ring_bytes: int) -> int:
    return PAGE + 2 * ring_bytes
