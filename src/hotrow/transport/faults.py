"""What peers are told of errors, and what is said of their answers."""

from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.transport.errors import Busy
from hotrow.transport.messages import Fault, Message


def fault_of(error: HotrowError) -> Fault:
    """What a peer is told of an error that was to be expected."""
    match error:
        case Busy():
            return Fault.of("busy", str(error))
        case InputError():
            return Fault.of("input", str(error))
        case ConfigError():
            return Fault.of("config", str(error))
    return Fault.of("internal", str(error))


def strange(message: Message) -> str:
    """What is said of an answer that nobody expected."""
    return f"answered {type(message).__name__}: is it of another version?"
