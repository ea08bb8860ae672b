"""Errors as replies, and the sentence for a reply of an unexpected kind."""

from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.transport.errors import Busy, PeerLost, RanksLost, RemoteFault
from hotrow.transport.messages import Fault, Message


def fault_of(error: HotrowError) -> Fault:
    """The reply to a request that raised an expected error."""
    match error:
        case Busy():
            return Fault.of("busy", str(error))
        case PeerLost() | RanksLost() | RemoteFault(kind="lost"):
            return Fault.of("lost", str(error))
        case InputError():
            return Fault.of("input", str(error))
        case ConfigError():
            return Fault.of("config", str(error))
    return Fault.of("internal", str(error))


def unexpected_reply(message: Message) -> str:
    """The sentence for a reply of an unexpected kind."""
    return f"replied with {type(message).__name__}: is it of another version?"
