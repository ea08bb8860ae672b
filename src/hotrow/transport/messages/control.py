"""What every role may be asked, who comes and goes, and the answers that say no more than yes or no."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from hotrow.transport.messages.header import Header, Name

SENTENCE_MOST = 10_000  # letters of a fault

FaultKind: TypeAlias = Literal["input", "config", "stale", "closing", "busy", "internal"]


class Query(Header, frozen=True, tag="ask"):
    """How a role is; `what` names the figures, and nothing is changed by it."""

    what: Literal["status", "ready", "meeting"]  # "meeting": a port on its host, where it listens


class QueryReply(Header, frozen=True, tag="told"):
    """Figures by name."""

    role: Name
    figures: dict[str, float]


class JoinRole(Header, frozen=True, tag="join_role"):
    """One more role of a kind, for the process of a run. It is answered with the role's name."""

    kind: Literal["trainer", "embedding worker"]


class LeaveRole(Header, frozen=True, tag="leave_role"):
    """A role is to leave its run. It is answered when the role has stopped."""

    name: Name


class Stop(Header, frozen=True, tag="stop"):
    """Leave in good order."""


class Done(Header, frozen=True, tag="done"):
    """It is done; there is nothing more to say."""


class Fault(Header, frozen=True, tag="fault"):
    """A request that was refused, with its reason as a sentence. Nothing was changed by it.

    "busy": there is no room now, the wire asks again; a push that came beside a pull may have been taken.
    """

    kind: FaultKind
    sentence: Annotated[str, Meta(max_length=SENTENCE_MOST)]

    @classmethod
    def of(cls, kind: FaultKind, sentence: str) -> "Fault":
        """With as much of the sentence as a fault may have."""
        return cls(kind, sentence[:SENTENCE_MOST])
