"""Dense parameters in KStep: a trainer updates its own copy, and merges average the copies."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import torch
import torch.distributed as dist
from torch import Tensor

from hotrow.client.base import Handle
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.optim.dense import KStepAdam, take_local_steps
from hotrow.transport.client import Answer
from hotrow.transport.messages import BatchRequest, CloseStep, Settle
from hotrow.worker.all_reduce_dense import average_buffers, running_figures
from hotrow.worker.core import Learner
from hotrow.worker.dense_strategy import Learned, LearningRates


class LocalDense:
    """Gradients wait for the driver's `Settle`, which updates this trainer's own parameters or merges all."""

    def __init__(
        self, learner: Learner, optimizer: KStepAdam, base_lrs: Sequence[float], *, step: int, clip: float | None = None
    ) -> None:
        self.step = step
        self._learner, self._optimizer, self._clip = learner, optimizer, clip
        self._rates = LearningRates(optimizer, base_lrs)
        self._held: list[list[Tensor | None]] = []
        self._moved = False  # since the last merge
        self._merged: dict[str, Tensor] = running_figures(learner.model)  # and parameters, once they have moved

    @property
    def before_the_step(self) -> Mapping[str, Tensor]:
        """As the last merge left it."""
        return self._merged

    def prefetch(self, work: BatchRequest) -> None:
        """No effect: parameters are on this trainer."""

    def give_up(self, work: BatchRequest) -> None:
        """No effect: nothing was started for it."""

    def may_compute(self, token: int) -> bool:
        return token <= self.step

    def learn(self, work: BatchRequest, batch: Batch, handle: Handle) -> Learned:
        for parameter in self._learner.parameters:
            parameter.grad = None
        loss, output = self._learner.backward(batch, handle)
        self._held.append(self._learner.take_gradients())
        return Learned(loss, output, self.step)

    def sent(self, work: BatchRequest) -> list[Future[Answer]]:
        return []

    def finish(self, work: BatchRequest) -> None:
        """No effect: a merge waits for `Settle`."""

    def close_step(self, message: CloseStep) -> None:
        raise InputError("close_step: k_step does not sum gradients over a step")

    def settle(self, message: Settle) -> None:
        held, self._held = self._held, []
        if held and not self._moved and not message.merge:
            state = self._learner.model.state_dict()
            self._merged = {name: each.clone() for name, each in state.items()} | self._merged
        self._moved = self._moved or bool(held)
        self._rates.set(message.lr_scale, message.trained)
        take_local_steps(self._optimizer, self._learner.parameters, held, clip=self._clip, merges=message.merge)
        if message.merge:
            self._merge()
            self._moved = False  # now: a merge that fails is repeated by the ranks that are left
            self._merged = running_figures(self._learner.model)
        self.step = message.step + 1

    def forget_step(self) -> None:
        self._held = []

    def close(self) -> None:
        """No effect: a mode ends with a merge."""

    def _merge(self) -> None:
        """Average the ranks that were updated; one without a batch since the last merge takes the average."""
        moved = self._moved
        ranks = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(ranks, torch.tensor([float(moved)]))
        movers = [rank for rank, each in enumerate(ranks) if each.item()]
        if not movers:
            return
        parameters = list(self._learner.parameters)
        moments = self._optimizer.second_moments() if moved else [torch.zeros_like(each) for each in parameters]
        self._optimizer.load_second_moments(_mean(moments, len(movers)))
        proposed = self._optimizer.propose() if moved else [torch.zeros_like(each) for each in parameters]
        self._optimizer.load_parameters(_mean(proposed, len(movers)))
        average_buffers(self._learner.model, computed=moved)
        if len(movers) < len(ranks):
            self._follow(movers[0], moved)

    def _follow(self, first: int, moved: bool) -> None:
        """Broadcast the means and moments of the first updated rank to those that were not updated."""
        for parameter in self._learner.parameters:
            state = self._optimizer.state[parameter]
            steps = torch.tensor([float(state["step"])])
            for value, name in ((state["mean"], "mean"), (state["square"], "square"), (steps, "step")):
                tensor = value.clone()
                dist.broadcast(tensor, first)
                if not moved:
                    state[name] = int(tensor.item()) if name == "step" else tensor


def _mean(tensors: Sequence[Tensor], movers: int) -> list[Tensor]:
    """Over ranks; those that were not updated add zeros."""
    flat = torch.cat([each.reshape(-1) for each in tensors])
    dist.all_reduce(flat)
    flat.div_(movers)
    pieces = torch.split(flat, [each.numel() for each in tensors])
    return [piece.view_as(each) for piece, each in zip(pieces, tensors, strict=True)]
