"""The messages of a shard about the dense parameters that it holds in token modes."""

from collections.abc import Sequence

from torch import Tensor

from hotrow.checkpoint import dense as dense_state
from hotrow.errors import InputError
from hotrow.server.dense_memory import DenseMemory
from hotrow.server.dense_shard import DensePush, DenseShard
from hotrow.server.pushes import SeenGrants
from hotrow.staleness import Staleness
from hotrow.transport.limits import Limits
from hotrow.transport.messages import (
    DenseGiven,
    DensePulled,
    GiveDense,
    PartWeights,
    Perform,
    PushDense,
    ResumeShard,
    TakeDense,
)
from hotrow.transport.tensors import cut, tensors_of

FRAME_BYTES = Limits().frame_bytes


class DenseService:
    """A part of the dense parameters behind messages. Orders are performed in sequence, as for the rows."""

    def __init__(self, piece: DenseShard, memory: DenseMemory | None = None) -> None:
        """`memory` outlives this process: what an earlier one left there is taken over."""
        self._piece, self._memory = piece, memory
        self._step = 0  # dense steps so far
        self._serving = False  # whether the active mode has its dense parameters here
        self._seen = SeenGrants()
        self._order = 0  # the last order that changed the parameters, and those in the memory
        self._restarted = False  # and no mode has begun since
        self.found = memory is not None and memory.attached
        if memory is not None and memory.attached:
            tensors, facts = memory.read()
            piece.take_held(tensors, facts)
            self._step, self._order = facts["step"], facts["order"]

    def resume(self, message: ResumeShard, late: Staleness | None) -> None:
        """Go on in place of a process that ended."""
        self.begin(message.dense, late, message.pushes)
        self._restarted = True
        if not self.found:
            self._step = message.step
        for grant in message.discards:
            self._seen.add(grant)

    def begin(self, serving: bool, late: Staleness | None, pushes: int = 1) -> None:
        """A mode begins whose steps have this number of pushes."""
        self._serving, self._piece.late, self._restarted = serving, late, False
        self._piece.parked.needed = max(1, pushes)

    def perform(self, order: Perform) -> tuple[list[PartWeights], int]:
        """The dense part of an order; returns weights of parts that differ from those in the order.

        And the number of parts whose gradients are lost with a process before. Steps that it performed are skipped;
        discards are not: a push may have been sent to this process again.
        """
        weights, lost = [], 0
        performs = self._serving and not (self._restarted and order.order <= self._order)
        steps = [apply for apply in order.applies if performs and apply.group != "embedding"]
        for apply in steps:
            changed, missing = self._piece.apply(apply, restarted=self._restarted)
            weights += changed
            lost += missing
            self._step = apply.step + 1
        if steps:
            self._order = order.order
            self._keep()
        for grant in order.discards:
            self._seen.add(grant)  # its push may still arrive
            self._piece.parked.take(grant)
        return weights, lost

    def close(self, *, leave: bool = False) -> None:
        """Remove the shared memory, unless it is left to the next process."""
        if self._memory is not None:
            self._memory.close(leave=leave)

    def _keep(self) -> None:
        if self._memory is not None:
            tensors, facts = self._piece.held()
            self._memory.write(tensors, {**facts, "step": self._step, "order": self._order})

    def pulled(self, frame_bytes: int = FRAME_BYTES) -> tuple[DensePulled, list[memoryview]]:
        """The current parameters, in frames of at most `frame_bytes`."""
        return DensePulled(self._step), cut(self._piece.pulled(), frame_bytes)

    def push(self, push: PushDense, frames: Sequence[memoryview]) -> None:
        """Park gradients until their step; a second copy of them is not taken."""
        if push.grant in self._seen:
            return
        wanted = [each for each, there in zip(self._parameters(push), push.present, strict=True) if there]
        figures = self._piece.buffers if push.buffers else []
        given = iter(tensors_of(frames, [*wanted, *figures]))
        gradients = [next(given) if there else None for there in push.present]
        self._piece.parked.park(push.grant, DensePush(gradients, list(given) if push.buffers else None))
        self._seen.add(push.grant)

    def take(self, message: TakeDense, tensors: bytes) -> None:
        """Continue from a dense state."""
        dense_state.from_bytes(tensors, message.optimizer, self._piece.model, self._piece.whole_optimizer)
        self._step = message.step
        self._keep()

    def give(self, message: GiveDense, frame_bytes: int = FRAME_BYTES) -> tuple[DenseGiven, list[memoryview]]:
        """The state, in frames of at most `frame_bytes`; tensors of other shards are out of date in it."""
        optimizer = self._piece.whole_optimizer if message.optimizer else None
        tensors, settings = dense_state.to_bytes(self._piece.model, optimizer)
        return DenseGiven(self._step, settings), cut([tensors], frame_bytes)

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        parked = self._piece.parked
        now = {"dense_parked": len(parked), "dense_parked_bytes": parked.nbytes, "dense_parked_above": parked.above}
        return {name: float(value) for name, value in now.items()}

    def _parameters(self, push: PushDense) -> Sequence[Tensor]:
        if len(push.present) != len(self._piece.parameters):
            message = f"{len(push.present)} dense tensors are named, {len(self._piece.parameters)} are held here"
            raise InputError(f"grant={push.grant}: {message}")
        return self._piece.parameters
