"""Counters of clients and servers: each refused or lost message is counted."""

from dataclasses import dataclass


@dataclass(slots=True)
class ServerCounts:
    """Of a server. Bytes are those of requests and replies, headers and frames, also of frames in shared memory."""

    requests: int = 0
    one_way: int = 0  # messages without a reply
    refused_one_way: int = 0  # of these, those that the role did not take
    faults: int = 0  # replies that were a refusal
    busy: int = 0  # replies "busy"; the client sends the request again
    refused_connections: int = 0  # connections refused before their first message
    refused_unproven: int = 0  # messages without a handshake
    refused_mac: int = 0  # MACs that did not match
    refused_decode: int = 0  # messages that could not be decoded
    refused_busy: int = 0  # requests beyond Limits.open_requests; the client sends them again
    repeated: int = 0  # requests that were in progress already
    again: int = 0  # requests that got their earlier reply again
    replies_lost: int = 0  # for peers that disconnected or do not read
    bytes_in: int = 0
    bytes_out: int = 0
    rings: int = 0  # shared memories that are or were in use
    rings_refused: int = 0  # offers of shared memory that could not be opened here
    ring_frames_out: int = 0  # frames that went through shared memory
    ring_bytes_out: int = 0
    ring_bytes_in: int = 0
    ring_full: int = 0  # large frames that went through the socket, because the ring had no room
    stale_rings: int = 0  # messages whose shared memory was closed before they arrived; they are sent again


@dataclass(slots=True)
class WireCounts:
    """Of a client."""

    requests: int = 0
    one_way: int = 0  # messages without a reply that were sent
    one_way_unsent: int = 0  # and that were dropped: no connection, or the socket did not take them
    answers: int = 0
    probes: int = 0
    resends: int = 0
    busy: int = 0  # replies "busy"; the request is sent again
    handshakes: int = 0
    unexpected: int = 0  # second replies, and those that came too late
    unsent: int = 0  # messages that the socket did not take; they are sent again as lost ones are
    refused_mac: int = 0
    refused_decode: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rings: int = 0  # shared memories that are or were in use
    rings_refused: int = 0  # offers of shared memory that the peer could not open: it is on another host
    ring_frames_out: int = 0  # frames that went through shared memory
    ring_bytes_out: int = 0
    ring_bytes_in: int = 0
    ring_full: int = 0  # large frames that went through the socket, because the ring had no room
    stale_rings: int = 0  # messages whose shared memory was closed before they arrived; they are sent again
