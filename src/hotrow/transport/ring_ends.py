"""Rings in the two loops: a client offers shared memory, a server opens it, and both watch that the other is alive."""

import logging
import os
from collections.abc import Callable, Collection

import zmq

from hotrow.errors import InputError
from hotrow.transport.counts import ServerCounts, WireCounts
from hotrow.transport.limits import Limits
from hotrow.transport.ring_memory import OfferedMemory, RingOffer, open_memory
from hotrow.transport.rings import Rings
from hotrow.types import Security

_log = logging.getLogger("hotrow.transport")


class RingWatch:
    """Closes rings whose other end was closed, or whose process died. Belongs to one loop, as its poller does."""

    def __init__(self, poller: zmq.Poller) -> None:
        self._poller = poller
        self._rings: dict[int, Rings] = {}

    def __len__(self) -> int:
        return len(self._rings)

    def add(self, rings: Rings) -> None:
        self._rings[rings.pipe] = rings
        self._poller.register(rings.pipe, zmq.POLLIN)  # nothing is ever written to a pipe: an event is its end
        rings.on_close = self._remove

    def ended(self, ready: Collection[object]) -> list[Rings]:
        """The rings whose pipes have an event. They are closed after the messages that came before it were read; a pipe
        of new rings may have the same number by then."""
        return [self._rings[pipe] for pipe in ready if pipe in self._rings]

    def close(self) -> None:
        for rings in list(self._rings.values()):
            rings.close()

    def _remove(self, rings: Rings) -> None:
        self._poller.unregister(rings.pipe)
        del self._rings[rings.pipe]


class RingClient:
    """Makes the offers of a client. `watch` gets the rings that a server has opened."""

    def __init__(self, limits: Limits, counts: WireCounts, watch: Callable[[Rings], None]) -> None:
        self._ring_bytes, self._counts, self._watch = limits.ring_bytes, counts, watch
        self._possible = limits.ring_bytes > 0 and hasattr(os, "memfd_create")  # only Linux has it

    def offer(self) -> OfferedMemory | None:
        """Memory for one connection; None where there is none. The reason is logged once."""
        if not self._possible:
            return None
        try:
            return OfferedMemory(self._ring_bytes)
        except OSError as error:
            self._possible = False
            _log.warning(
                "no shared memory of 2 x %s bytes (%s): messages to roles of this host use TCP; "
                "raise the limits of memory or of open files (ulimit -v, -f, -n), or lower Limits.ring_bytes",
                f"{self._ring_bytes:,}",
                error.strerror,
            )
            return None

    def accepted(self, offered: OfferedMemory) -> Rings:
        self._counts.rings += 1
        rings = Rings(offered.memory, self._counts, is_client=True)
        self._watch(rings)
        return rings

    def refused(self, offered: OfferedMemory, reason: str) -> None:
        self._counts.rings_refused += 1
        _log.debug("the peer did not open the shared memory: %s", reason)
        offered.close()


class RingServer:
    """Opens what clients offer."""

    def __init__(self, limits: Limits, counts: ServerCounts, watch: Callable[[Rings], None]) -> None:
        self._ring_bytes, self._counts, self._watch = limits.ring_bytes, counts, watch

    def accept(self, offer: bytes) -> tuple[Rings, bytes] | str:
        """The rings and the nonce in their memory, which proves that it is the same; or the reason for none."""
        try:
            memory = open_memory(RingOffer.decode(offer), self._ring_bytes)
        except InputError as error:
            self._counts.rings_refused += 1
            return str(error)
        nonce = memory.nonce
        rings = Rings(memory, self._counts, is_client=False)
        self._watch(rings)
        self._counts.rings += 1
        return rings, nonce


def uses_rings(security: Security) -> bool:
    """Not under `curve`: it promises that everything is encrypted, and shared memory is not."""
    return security != "curve"
