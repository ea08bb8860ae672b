"""Errors between two roles."""

from hotrow.errors import HotrowError


class PeerLost(HotrowError):
    """Nothing was received from a peer for too long, or its connection was closed with a request open."""

    def __init__(self, name: str, address: str, seconds: float, sentence: str) -> None:
        super().__init__(f"{name} at {address}: {sentence}")
        self.name, self.address, self.seconds, self.sentence = name, address, seconds, sentence

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:  # it has to be pickled to leave an actor
        return type(self), (self.name, self.address, self.seconds, self.sentence)


class RanksLost(HotrowError):
    """A collective failed, or was cut: other ranks are lost, or have left the group."""


class Busy(HotrowError):
    """A role cannot take a request now: the client sends it again until it can."""


class RemoteFault(HotrowError):
    """A peer refused a request; the message is its reason."""

    def __init__(self, kind: str, sentence: str, peer: str) -> None:
        super().__init__(f"{peer}: {sentence}")
        self.kind, self.sentence, self.peer = kind, sentence, peer

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.kind, self.sentence, self.peer)
