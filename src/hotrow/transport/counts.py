"""What the two loops count, so that nothing is refused or lost in silence."""

from dataclasses import dataclass


@dataclass(slots=True)
class ServerCounts:
    """Of the side that is asked. Bytes are those of asks and answers, headers and frames."""

    requests: int = 0
    faults: int = 0  # answers that were a refusal
    busy: int = 0  # answers that there is no room now; their sender asks again
    refused_door: int = 0  # newcomers turned away before their first message
    refused_unproven: int = 0  # messages of peers that did not prove the key
    refused_mac: int = 0  # seals that did not hold
    refused_decode: int = 0  # what is no message
    refused_busy: int = 0  # asks beyond Limits.open_asks; their sender asks again
    repeated: int = 0  # asks that were in hand already
    again: int = 0  # asks that were answered already, and got the same answer
    replies_lost: int = 0  # for peers that are gone or do not read
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class WireCounts:
    """Of the side that asks."""

    asks: int = 0
    answers: int = 0
    probes: int = 0
    resends: int = 0
    busy: int = 0  # answers that there is no room now; what was asked is sent again
    handshakes: int = 0
    unasked: int = 0  # second answers, and those that came too late
    unsent: int = 0  # messages for which the socket had no room; they are looked after as lost ones are
    refused_mac: int = 0
    refused_decode: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
