"""Dense parameters in token modes: pulled from the shards for each batch, and gradients pushed back."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import torch
from torch import Tensor

from hotrow.client.base import Handle
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.messages import BatchRequest, CloseStep, DensePulled, PullDense, PushDense, Settle
from hotrow.transport.tensors import cut, tensors_of
from hotrow.types import RoleId
from hotrow.worker.core import Learner, buffer_changes
from hotrow.worker.dense_strategy import Learned


class ServerDense:
    """The trainer's copy is only used to compute."""

    def __init__(
        self,
        learner: Learner,
        wire: RpcClient,
        places: Mapping[RoleId, Sequence[int]],
        buffers_at: RoleId,
        *,
        step: int,
    ) -> None:
        """`places`: by shard, which of the model's parameters it holds."""
        self.step = step
        self._learner, self._wire, self._places, self._buffers_at = learner, wire, places, buffers_at
        self._asked: dict[int, dict[RoleId, Future[Answer]]] = {}  # by grant
        self._gradients: dict[int, tuple[list[Tensor | None], list[Tensor], int, int]] = {}

    @property
    def before_the_step(self) -> Mapping[str, Tensor]:
        """Empty: the servers hold the state."""
        return {}

    def prefetch(self, work: BatchRequest) -> None:
        pull = PullDense(work.after)
        self._asked[work.grant] = {name: self._wire.request(name, pull) for name in self._places}

    def give_up(self, work: BatchRequest) -> None:
        self._asked.pop(work.grant, None)

    def may_compute(self, token: int) -> bool:
        return True

    def learn(self, work: BatchRequest, batch: Batch, handle: Handle) -> Learned:
        pulled = min((self._load(name, each.result()) for name, each in self._asked.pop(work.grant).items()), default=0)
        before = [buffer.clone() for buffer in self._learner.model.buffers()]
        for parameter in self._learner.parameters:
            parameter.grad = None
        loss, output = self._learner.backward(batch, handle)
        changes = buffer_changes(self._learner.model, before)
        self._gradients[work.grant] = (self._learner.take_gradients(), changes, pulled, len(batch))
        return Learned(loss, output, pulled)

    def sent(self, work: BatchRequest) -> list[Future[Answer]]:
        gradients, changes, pulled, samples = self._gradients.pop(work.grant)
        sent = []
        for name, places in self._places.items():
            mine = [gradients[place] for place in places]
            there = [each.contiguous().cpu().numpy() for each in mine if each is not None]
            figures = [each.contiguous().cpu().numpy() for each in changes] if name == self._buffers_at else []
            push = PushDense(
                work.grant,
                work.worker,
                work.token,
                pulled,
                samples,
                tuple(each is not None for each in mine),
                bool(figures),
            )
            sent.append(self._wire.request(name, push, cut([*there, *figures], self._wire.limits.frame_bytes)))
        return sent

    def finish(self, work: BatchRequest) -> None:
        """No effect: steps do not wait for other trainers."""

    def close_step(self, message: CloseStep) -> None:
        raise InputError("close_step: the dense servers close the steps of this mode")

    def settle(self, message: Settle) -> None:
        raise InputError("settle: trainers have no parameters of their own in this mode")

    def forget_step(self) -> None:
        raise InputError("regroup: trainers have no copies of their own in this mode: begin it again")

    def close(self) -> None:
        """No effect."""

    def _load(self, name: RoleId, answer: Answer) -> int:
        """Load parameters, then buffers where the shard holds them."""
        reply = answer.of(DensePulled, name)
        targets = [self._learner.parameters[place].data for place in self._places[name]]
        if name == self._buffers_at:
            targets += list(self._learner.model.buffers())
        with torch.no_grad():
            for target, tensor in zip(targets, tensors_of(answer.frames, targets), strict=True):
                target.copy_(tensor)
        return reply.step
