"""The dense state on its way between the driver, where it is at rest, and the trainers or shards that use it.

When a mode begins it is sent to the trainers, or to the shards that hold it; when the mode rests or ends it is fetched
from the first trainer, or from the shards.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch.optim import Optimizer

from hotrow.checkpoint import dense as dense_state
from hotrow.checkpoint.dense_loading import load_dense
from hotrow.errors import InputError
from hotrow.runtime.cluster.open_mode import OpenMode
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.losses import WorkersLost, is_gone
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import DenseGiven, GiveDense, TakeDense
from hotrow.transport.tensors import cut, joined
from hotrow.types import RoleId
from hotrow.worker.spec import TrainingSpec

PackedDense: TypeAlias = tuple[list[memoryview], str | None]


class DenseTransfer:
    """Sends and fetches the dense state of the driver's model. `places`: by shard, the parameters it holds."""

    def __init__(self, spec: TrainingSpec, roles: Roles, places: Mapping[RoleId, Sequence[int]]) -> None:
        self._model, self._optimizer = spec.model, spec.optimizer
        self._roles, self._places = roles, places
        self._fetched = (-1, False)  # the order after which the state was fetched, and whether all of it
        self._restored: set[RoleId] = set()  # shards that got parameters of the last rest, not yet reported

    def packed(self, *, optimizer: bool = True) -> PackedDense:
        """The tensors of this process in frames, and the settings of the optimizer."""
        tensors, settings = dense_state.to_bytes(self._model, self._own(optimizer))
        return cut([tensors], self._roles.rpc.limits.frame_bytes), settings

    def send_to_shards(self, step: int, packed: PackedDense) -> None:
        """Send the state of a step to all shards that hold parameters."""
        frames, settings = packed
        for asked in self._roles.request_all(list(self._places), TakeDense(step, settings), frames):
            self._roles.answer(asked)

    def restore_shard(self, name: RoleId, step: int) -> None:
        """Send the state of the last rest, no later one is left, to a shard that has lost its parameters."""
        if name in self._places:
            frames, settings = self.packed()
            self._roles.answer(self._roles.rpc.request(name, TakeDense(step, settings), frames))
            self._restored.add(name)

    def take_restored(self, name: RoleId) -> bool:
        """Whether a shard got the state of the last rest since the last call."""
        found = name in self._restored
        self._restored.discard(name)
        return found

    def is_here(self, order: int) -> bool:
        """Whether this process has the whole state after an order."""
        return self._fetched == (order, True)

    def fetch(self, opened: OpenMode, *, optimizer: bool) -> None:
        """Fetch the state after the last order; at rest no update of it is in flight."""
        number = opened.parameters.number
        if self._fetched[0] == number and (self._fetched[1] or not optimizer):
            return
        own = self._own(optimizer)
        if opened.mode.dense == "server":
            pieces = []
            for name, places in self._places.items():
                given, reply = self._given(name, GiveDense(optimizer))
                pieces.append((places, given, reply.optimizer))
            dense_state.from_pieces(pieces, self._model, own)
        else:
            cut = opened.executor.cut_step
            if cut is not None and cut.restored is not None:
                load_dense(cut.restored.where, self._model, own)
            elif cut is None or cut.sources:  # else this process has it
                given, reply = self.given_by_trainer(opened, optimizer=optimizer)
                dense_state.from_bytes(given, reply.optimizer, self._model, own)
        self._fetched = (number, optimizer)

    def given_by_trainer(self, opened: OpenMode, *, optimizer: bool) -> tuple[bytes, DenseGiven]:
        """From the first trainer, or the next one where it is lost: all have the same, except after a cut.

        WorkersLost where none is left that has it.
        """
        executor = opened.executor
        cut = executor.cut_step
        names, step = (self._roles.trainers, executor.step) if cut is None else (cut.sources, 0)
        for name in list(names):
            try:
                return self._given(name, GiveDense(optimizer, step))
            except (PeerLost, InputError):
                if not self._roles.caused_by_loss([name]):
                    raise
        if cut is not None and cut.behind:  # all that had ended the step were lost since
            executor.cut_step = dataclasses.replace(cut, sources=cut.behind, behind=())
            opened.parameters.count({"dense_steps_lost": 1})
            return self.given_by_trainer(opened, optimizer=optimizer)
        gone = next(name for name in (*reversed(names), *reversed(self._roles.lost)) if name in self._roles.lost)
        error = is_gone(gone, self._roles.lost[gone])
        raise WorkersLost(str(error)) if cut is None else error

    def _given(self, name: RoleId, request: GiveDense) -> tuple[bytes, DenseGiven]:
        answer = self._roles.answer(self._roles.rpc.request(name, request))
        return joined(answer.frames), answer.of(DenseGiven, name)

    def _own(self, optimizer: bool) -> Optimizer | None:
        return self._optimizer if optimizer else None
