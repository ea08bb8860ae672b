"""Frames through shared memory: two rings of one connection, one for each direction.

The sender copies a frame into a slot of its own ring and sends the place in the message. The receiver reads the frame
where it is; when the last view of it is gone, a flag in the shared memory tells the sender, which frees the slot before
it places the next frame. A frame that finds no room goes through the socket, and nothing ever waits for room.

Flags are single bytes with one writer at a time: the receiver sets one, the sender clears it when it frees the slot.
The place reaches the receiver by a system call, after the bytes; a copy past the caches ends with a fence. The flag is
set after the last read of the bytes: x86 keeps that order by itself, and between the two lies the end of a Python
object, longer than any processor reorders.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from hotrow.errors import InputError
from hotrow.store.copies import copy_bytes
from hotrow.transport.counts import ServerCounts, WireCounts
from hotrow.transport.ring_memory import FLAGS, PAGE, SLOTS, TOKEN, RingMemory
from hotrow.transport.slots import Slot, SlotAllocator

PLACED_LEAST = 1 << 16  # bytes of a frame; smaller ones are copied into the message by pyzmq, which is as fast
UNLOCKED_LEAST = 1 << 20  # bytes of a copy without the GIL; to get it back may take longer than a small copy

_ENTRY = Struct("<IIQQ")  # position in the message, slot, offset, bytes


class StaleRings(Exception):
    """A message that was placed in rings which this end has closed. Its request is sent again."""


class Placement(NamedTuple):
    """Some frames of a message are in the ring: the table says which and where; the others follow the message."""

    table: bytes
    frames: list[memoryview]
    slots: tuple[int, ...]
    nbytes: int  # in the ring


class _SlotView(np.ndarray[Any, Any]):
    """The bytes of a slot. Views of it keep it alive; its end frees the slot."""

    mapped: mmap.mmap
    flag: int
    pid: int

    def __del__(self) -> None:
        if self.pid == os.getpid():  # the copy of it in a forked process frees nothing
            self.mapped[self.flag] = 1


class Rings:
    """Both rings, at one end. All calls are made in the thread of the loop; views may end in any."""

    def __init__(self, memory: RingMemory, counts: ServerCounts | WireCounts, *, is_client: bool) -> None:
        self._counts, self._token, self._ring_bytes, self.pipe = counts, memory.token, memory.ring_bytes, memory.pipe
        self._out, self._in = (PAGE, PAGE + memory.ring_bytes) if is_client else (PAGE + memory.ring_bytes, PAGE)
        self._out_flags, self._in_flags = FLAGS[is_client], FLAGS[not is_client]
        self._allocator = SlotAllocator(memory.ring_bytes, SLOTS)
        self._memory: RingMemory | None = memory
        self.on_close: Callable[[Rings], None] = lambda rings: None

    def place(self, frames: Sequence[memoryview]) -> Placement | None:
        """Copy large frames into the ring; None where none is large, or none has room."""
        if self._memory is None or not any(frame.nbytes >= PLACED_LEAST for frame in frames):
            return None
        mapped = self._memory.mapped
        self._collect(mapped)
        entries, left, slots = [], [], []
        for position, frame in enumerate(frames):
            slot = self._allocator.take(frame.nbytes) if frame.nbytes >= PLACED_LEAST else None
            if slot is None:
                self._counts.ring_full += frame.nbytes >= PLACED_LEAST
                left.append(frame)
                continue
            _copy(frame, mapped, self._out + slot.offset)
            slots.append(slot)
            entries.append(_ENTRY.pack(position, *slot))
        if not slots:
            return None
        nbytes = sum(slot.nbytes for slot in slots)
        self._counts.ring_frames_out += len(slots)
        self._counts.ring_bytes_out += nbytes
        return Placement(self._token + b"".join(entries), left, tuple(slot.number for slot in slots), nbytes)

    def free(self, placement: Placement) -> None:
        """Take back frames whose message was not sent."""
        if self._memory is not None:
            for number in placement.slots:
                self._allocator.free(number)

    def views(self, table: bytes, rest: Sequence[memoryview]) -> list[memoryview]:
        """All frames of a message; InputError where the table is not one, StaleRings where it is of other rings."""
        if self._memory is None or table[:TOKEN] != self._token:
            raise StaleRings
        entries = self._entries(table[TOKEN:])
        frames: list[memoryview] = []
        left = list(reversed(rest))
        for position, slot in entries:
            if not len(frames) <= position <= len(frames) + len(left):
                raise InputError(f"a frame in shared memory at position {position} of the message")
            while len(frames) < position:
                frames.append(left.pop())
            frames.append(self._view(self._memory.mapped, slot))
        nbytes = sum(slot.nbytes for _, slot in entries)
        self._counts.bytes_in += nbytes
        self._counts.ring_bytes_in += nbytes
        return frames + left[::-1]

    def close(self) -> None:
        """Give the memory up. Views that are left keep it until they end."""
        if self._memory is not None:
            self.on_close(self)
            self._memory.close()
            self._memory = None

    def _entries(self, table: bytes) -> list[tuple[int, Slot]]:
        if len(table) % _ENTRY.size or len(table) > SLOTS * _ENTRY.size:
            raise InputError(f"a table of {len(table)} bytes for frames in shared memory")
        entries = [(position, Slot(*slot)) for position, *slot in _ENTRY.iter_unpack(table)]
        for _, slot in entries:
            if slot.number >= SLOTS or slot.offset + slot.nbytes > self._ring_bytes:
                raise InputError(f"a frame outside of the shared memory of {self._ring_bytes:,} bytes: {slot}")
        return entries

    def _view(self, mapped: mmap.mmap, slot: Slot) -> memoryview:
        view = np.ndarray.__new__(_SlotView, (slot.nbytes,), np.uint8, buffer=mapped, offset=self._in + slot.offset)
        view.mapped, view.flag, view.pid = mapped, self._in_flags + slot.number, os.getpid()
        return memoryview(view)  # type: ignore[arg-type]  # its stub has no buffer in Python 3.11

    def _collect(self, mapped: mmap.mmap) -> None:
        """Free the slots that the receiver has released."""
        begin, end = self._out_flags, self._out_flags + SLOTS
        while len(self._allocator) and (flag := mapped.find(b"\x01", begin, end)) >= 0:
            mapped[flag] = 0
            if (number := flag - self._out_flags) in self._allocator:
                self._allocator.free(number)
            begin = flag + 1


def _copy(frame: memoryview, mapped: mmap.mmap, offset: int) -> None:
    if frame.nbytes < UNLOCKED_LEAST:
        mapped[offset : offset + frame.nbytes] = frame
    else:
        copy_bytes(np.frombuffer(frame, np.uint8), np.frombuffer(mapped, np.uint8, frame.nbytes, offset))
