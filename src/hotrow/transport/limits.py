"""How much a peer may send, and when requests are repeated."""

from typing import Annotated

from pydantic import Field, model_validator

from hotrow.spec import Spec

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Limits(Spec):
    """Bounds of one message and of one server. Both ends of a connection should have the same."""

    frame_bytes: int = Field(
        2**28, ge=1024, le=2**40
    )  # of one frame, header or tensor; a longer one ends the connection
    frames: int = Field(4096, ge=2, le=2**20)  # of one message
    peers: int = Field(4096, ge=1, le=2**20)  # with a session; beyond it the longest silent one needs a new handshake
    unproven_peers: int = Field(1024, ge=1, le=2**20)  # in a handshake; beyond it the oldest starts again
    open_requests: int = Field(1024, ge=1, le=2**20)  # of one peer; more are dropped, and sent again by the client
    queued: int = Field(128, ge=1, le=2**20)  # messages per peer and direction queued in a socket
    kept_bytes: int = Field(2**23, ge=1, le=2**40)  # of replies that were sent, for requests that arrive again
    kept_answer_bytes: int = Field(2**16, ge=1, le=2**40)  # of one reply; larger ones are computed again
    ring_bytes: int = Field(
        2**26, ge=0, le=2**36, multiple_of=4096
    )  # of shared memory per connection and direction, 0: none


class RetryPolicy(Spec):
    """When a request without a reply is probed, when its peer is lost, and how soon a busy peer gets it again."""

    first_s: Seconds = 2.0
    most_s: Seconds = 10.0  # pauses double up to this
    give_up_s: Seconds = 60.0  # without a message from the peer
    busy_first_s: Seconds = 0.01
    busy_most_s: Seconds = 1.0  # pauses between attempts at a busy peer double up to this

    @model_validator(mode="after")
    def _rising(self) -> "RetryPolicy":
        if not self.first_s <= self.most_s <= self.give_up_s:
            raise ValueError(
                f"first_s={self.first_s}, most_s={self.most_s}, give_up_s={self.give_up_s}: must not fall in this order"
            )
        if self.busy_first_s > self.busy_most_s:
            raise ValueError(
                f"busy_first_s={self.busy_first_s}, busy_most_s={self.busy_most_s}: must not fall in this order"
            )
        return self

    def pause_s(self, attempt: int, chance: float) -> float:
        """How long to wait after attempt 0, 1, …; `chance` from 0 to 1 spreads peers that began together by ±25 %."""
        return _spread(self.first_s, self.most_s, attempt, chance)

    def busy_s(self, attempt: int, chance: float) -> float:
        """The same after a peer was busy for the first time, the second, …"""
        return _spread(self.busy_first_s, self.busy_most_s, attempt, chance)


def _spread(first_s: float, most_s: float, attempt: int, chance: float) -> float:
    whole = min(most_s, first_s * 2.0 ** min(attempt, 60))
    return whole * (0.75 + 0.5 * chance)
