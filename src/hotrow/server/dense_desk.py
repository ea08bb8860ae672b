"""What a shard is asked about the dense parameters it serves in token modes."""

from collections.abc import Sequence

from torch import Tensor

from hotrow.checkpoint import dense as dense_state
from hotrow.errors import InputError
from hotrow.server.dense_piece import DensePiece, DensePush
from hotrow.server.pushes import SeenGrants
from hotrow.staleness import Staleness
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import DenseGiven, DensePulled, GiveDense, Perform, PushDense, TakeDense
from hotrow.transport.tensors import tensor_of


class DenseDesk:
    """A piece of the dense parameters behind messages. Orders come to it in turn, as they come to the rows."""

    def __init__(self, piece: DensePiece) -> None:
        self._piece = piece
        self._step = 0  # dense steps so far
        self._serving = False  # whether the mode at work keeps its dense parameters here
        self._seen = SeenGrants()

    def begin(self, serving: bool, late: Staleness | None) -> None:
        """A mode begins."""
        self._serving, self._piece.late = serving, late

    def perform(self, order: Perform) -> None:
        """The dense side of an order."""
        if not self._serving:
            return
        for apply in order.applies:
            if apply.group != "embedding":
                self._piece.apply(apply)
                self._step = apply.step + 1
        for grant in order.discards:
            self._seen.add(grant)  # its push may still be on the way
            self._piece.discard(grant)

    def pulled(self) -> tuple[DensePulled, list[Buffer]]:
        """Parameters as they are now."""
        tensors = self._piece.pulled()
        return DensePulled(self._step), [each.numpy() for each in tensors]

    def push(self, push: PushDense, frames: Sequence[memoryview]) -> None:
        """Keep gradients until their step; a second copy of them is not taken."""
        if push.grant in self._seen:
            return
        wanted = [each for each, there in zip(self._parameters(push), push.present, strict=True) if there]
        figures = self._piece.buffers if push.buffers else []
        if len(frames) != len(wanted) + len(figures):
            raise InputError(f"{len(frames)} dense tensors came, the header names {len(wanted) + len(figures)}")
        tensors = [tensor_of(frame, like) for frame, like in zip(frames, [*wanted, *figures], strict=True)]
        given = iter(tensors)
        gradients = [next(given) if there else None for there in push.present]
        self._piece.park(push.grant, DensePush(gradients, list(given) if push.buffers else None))
        self._seen.add(push.grant)

    def take(self, message: TakeDense, tensors: bytes) -> None:
        """Go on from a dense state."""
        dense_state.from_bytes(tensors, message.optimizer, self._piece.model, self._piece.whole_optimizer)
        self._step = message.step

    def give(self, message: GiveDense) -> tuple[DenseGiven, list[Buffer]]:
        """The state; of tensors that other servers hold it is an old one."""
        optimizer = self._piece.whole_optimizer if message.optimizer else None
        tensors, settings = dense_state.to_bytes(self._piece.model, optimizer)
        return DenseGiven(self._step, settings), [tensors]

    def _parameters(self, push: PushDense) -> Sequence[Tensor]:
        if len(push.present) != len(self._piece.parameters):
            told = f"{len(push.present)} dense tensors are named, {len(self._piece.parameters)} are served here"
            raise InputError(f"grant={push.grant}: {told}")
        return self._piece.parameters
