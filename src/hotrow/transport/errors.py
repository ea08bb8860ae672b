"""What can go wrong between two roles."""

from hotrow.errors import HotrowError


class PeerLost(HotrowError):
    """A peer from which nothing was heard for too long, or that was forgotten while it was asked."""

    def __init__(self, name: str, address: str, seconds: float, sentence: str) -> None:
        super().__init__(f"{name} at {address}: {sentence}")
        self.name, self.address, self.seconds, self.sentence = name, address, seconds, sentence

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:  # else it could not leave an actor
        return type(self), (self.name, self.address, self.seconds, self.sentence)


class Busy(HotrowError):
    """There is no room for what somebody asks: its wire asks again, until there is."""


class RemoteFault(HotrowError):
    """A peer refused what it was asked, and says why."""

    def __init__(self, kind: str, sentence: str, peer: str) -> None:
        super().__init__(f"{peer}: {sentence}")
        self.kind, self.sentence, self.peer = kind, sentence, peer

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.kind, self.sentence, self.peer)
