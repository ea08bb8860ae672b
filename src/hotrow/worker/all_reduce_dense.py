"""Dense parameters in Sync and Hybrid: all ranks sum their gradients and apply the mean, each on its own copy."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hotrow.client.base import Handle
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.transport.client import Answer
from hotrow.transport.messages import BatchRequest, CloseStep, Settle
from hotrow.worker.core import Learner
from hotrow.worker.dense_strategy import Learned, LearningRates
from hotrow.worker.reducer import Reducer


class AllReduceDense:
    """A step ends when every rank has computed its share of batches, or when the driver closes it."""

    def __init__(
        self,
        learner: Learner,
        rates: LearningRates | None,
        *,
        share: int,
        local_batch: int,
        step: int,
        trained: int,
        clip: float | None = None,
    ) -> None:
        self.step = step
        self._learner, self._rates, self._clip = learner, rates, clip
        self._share, self._local_batch, self._trained = share, local_batch, trained
        self._reducer = Reducer(learner.parameters)
        self._batches = self._samples = 0  # of this rank in the current step
        self.changing = threading.Lock()  # held while a step changes parameters, not while ranks wait for each other
        self._buffers = running_figures(learner.model)

    @property
    def before_the_step(self) -> Mapping[str, Tensor]:
        """Running buffers, which a forward pass changes."""
        return self._buffers

    def prefetch(self, work: BatchRequest) -> None:
        """No effect: parameters are on this trainer."""

    def give_up(self, work: BatchRequest) -> None:
        """No effect: nothing was started for it."""

    def may_compute(self, token: int) -> bool:
        return token <= self.step

    def learn(self, work: BatchRequest, batch: Batch, handle: Handle) -> Learned:
        if work.token != self.step:
            raise InputError(f"token={work.token}: this rank is at step {self.step}, and steps have an order")
        if self._batches == 0:
            self._reducer.begin()
        if self._batches + 1 == self._share:
            self._reducer.last()
        factor = len(batch) / self._local_batch  # 1 except for a short batch: rows then need no scaling back
        loss, output = self._learner.backward(batch, handle, factor)
        if factor != 1.0:
            for each in handle.outputs:
                if each.rows.grad is not None:
                    each.rows.grad.div_(factor)
        self._batches += 1
        self._samples += len(batch)
        return Learned(loss, output, self.step)

    def sent(self, work: BatchRequest) -> list[Future[Answer]]:
        return []

    def finish(self, work: BatchRequest) -> None:
        if self._batches == self._share:
            self._end_step(work.lr_scale)

    def close_step(self, message: CloseStep) -> None:
        if message.step == self.step - 1:
            return  # this rank had its whole share, and has ended the step
        if message.step != self.step:
            raise InputError(f"step={message.step}: this rank is at step {self.step}")
        if self._batches == 0:
            self._reducer.begin()
        self._end_step(message.lr_scale)

    def settle(self, message: Settle) -> None:
        raise InputError("settle: trainers have no parameters of their own in this mode")

    def forget_step(self) -> None:
        raise InputError("regroup: trainers have no copies of their own in this mode: begin it again")

    def close(self) -> None:
        self._reducer.close()

    def _end_step(self, lr_scale: float) -> None:
        computed = self._batches > 0
        whole, agreed = self._reducer.finish(self._samples, lr_scale, self._local_batch)
        average_buffers(self._learner.model, computed=computed)
        with self.changing:
            self._take_step(whole, agreed)

    def _take_step(self, whole: int, agreed: float) -> None:
        self._buffers = running_figures(self._learner.model)
        self._batches = self._samples = 0
        self._trained += whole
        self.step += 1
        if self._rates is None:
            return
        if self._clip is not None:
            nn.utils.clip_grad_norm_(self._learner.parameters, self._clip)
        self._rates.set(agreed, self._trained)
        self._rates.optimizer.step()


def running_figures(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the buffers that the state of a model holds, by name."""
    kept = model.state_dict()
    return {
        name: buffer.detach().clone() for name, buffer in model.named_buffers(remove_duplicate=False) if name in kept
    }


def average_buffers(model: nn.Module, *, computed: bool) -> None:
    """Average buffers over the ranks that computed; integers as the largest is."""
    buffers = list(model.buffers())
    if not buffers:
        return
    ranks = torch.tensor([float(computed)])
    dist.all_reduce(ranks)
    if not ranks.item():
        return
    for buffer in buffers:
        if buffer.is_floating_point():
            if not computed:
                buffer.zero_()
            dist.all_reduce(buffer)
            buffer.div_(ranks.item())
        else:
            whole = buffer.view(torch.uint8) if buffer.dtype == torch.bool else buffer
            dist.all_reduce(whole, op=dist.ReduceOp.MAX)
