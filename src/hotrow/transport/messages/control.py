"""Queries to any role, joins and leaves, and the replies without content."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from hotrow.transport.messages.header import Header, Name, Number

SENTENCE_MOST = 10_000  # characters of a fault

FaultKind: TypeAlias = Literal["input", "config", "stale", "closing", "busy", "lost", "internal"]


class Query(Header, frozen=True, tag="ask"):
    """Asks a role for figures; `what` names them. Changes nothing."""

    what: Literal["status", "ready", "meeting"]  # "meeting": a free port on its host, for the rendezvous


class QueryReply(Header, frozen=True, tag="told"):
    """Figures by name."""

    role: Name
    figures: dict[str, float]


class JoinRole(Header, frozen=True, tag="join_role"):
    """Adds a role of a kind to a run. The reply names the role."""

    kind: Literal["trainer", "embedding worker"]


class LeaveRole(Header, frozen=True, tag="leave_role"):
    """Removes a role from its run. The reply comes when the role has stopped."""

    name: Name


class ShardAt(Header, frozen=True, tag="shard_at"):
    """A shard was started again: requests without a reply are sent to its address anew."""

    name: Name
    address: Name
    incarnation: Number


class Stop(Header, frozen=True, tag="stop"):
    """Stop after the work in progress."""


class Done(Header, frozen=True, tag="done"):
    """The request was performed."""


class Fault(Header, frozen=True, tag="fault"):
    """A request was refused, with the reason as a sentence. Nothing was changed by it.

    "busy": try again later, as the client does by itself; a push that came with a pull may have been applied.
    "lost": another role that the request needs does not answer.
    """

    kind: FaultKind
    sentence: Annotated[str, Meta(max_length=SENTENCE_MOST)]

    @classmethod
    def of(cls, kind: FaultKind, sentence: str) -> "Fault":
        """A fault with the sentence cut to its largest length."""
        return cls(kind, sentence[:SENTENCE_MOST])
