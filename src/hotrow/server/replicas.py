"""Dense parameters in KStep: each worker updates its own copy of the model, and merges average the copies.

A step of the discipline ends for all workers at once, so copies are updated and merged between two rounds of computing.
The server's model is that of the last merge; its optimizer holds the state of the first worker, which other modes
continue with.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from hotrow.errors import ConfigError
from hotrow.modes.base import Apply
from hotrow.optim.dense import KStepAdam, merge, take_local_steps
from hotrow.server.core import ApplyResult, ParameterServer
from hotrow.worker.core import Gradients


class Parameters(Protocol):
    """Rows and dense parameters of an active mode, in this process or on shards."""

    @property
    def changes_when_computed(self) -> bool:
        """Whether a batch may change parameters before its `Apply`: where it was computed, or as its rows arrive."""

    def discard(self, grant: int) -> None:
        """Drop a push that will not be applied."""

    def apply(self, effect: Apply, *, samples: int, lr_scale: float = 1.0) -> ApplyResult:
        """Perform a step. `samples` counts all samples up to and including it."""

    def settle(self) -> None:
        """All effects of an event are performed, or a worker is about to compute."""

    def rest(self) -> ApplyResult:
        """Wait until all decisions are performed everywhere, and return the result. No batch is being computed."""


class LocalParameters(Parameters, Protocol):
    """Parameters of this process."""

    def park(self, grant: int, gradients: Gradients, worker: int = 0) -> None:
        """Hold a push of a worker until its `Apply`."""


class ReplicatedParameters:
    """One model and one KStepAdam per worker, all starting from the server's."""

    def __init__(self, server: ParameterServer, workers: int) -> None:
        self._server, self._optimizer = server, k_step_adam(server.optimizer)
        copies = [deepcopy((server.model, self._optimizer)) for _ in range(workers)]  # together: they share parameters
        self.copies = [model for model, _ in copies]
        self._optimizers = [copied for _, copied in copies]
        self._workers: dict[int, int] = {}  # parked grant -> worker
        self._moves: dict[int, list[Gradients]] = {}  # of the last step, by worker
        self._lr_scale = 1.0
        self._apart: set[int] = set()  # workers that were updated since the last merge

    def park(self, grant: int, gradients: Gradients, worker: int = 0) -> None:
        """Hold a push of a worker until its `Apply`."""
        self._workers[grant] = worker
        self._server.park(grant, gradients)

    def discard(self, grant: int) -> None:
        """Drop a push that will not be applied."""
        self._workers.pop(grant, None)
        self._server.discard(grant)

    def apply(self, effect: Apply, *, samples: int, lr_scale: float = 1.0) -> ApplyResult:
        """Update rows at the end of a step, and the copies unless a merge follows; a merge averages the copies."""
        if effect.group == "dense":
            self._move(merges=True)
            self._merge()
            return ApplyResult()
        self.settle()
        changed = self._server.apply(effect, samples=samples, lr_scale=lr_scale)
        for part in effect.parts:
            moved = self._moves.setdefault(self._workers.pop(part.grant), [])
            moved.append(self._server.take_dense(part.grant))
        self._lr_scale = lr_scale
        return changed

    @property
    def changes_when_computed(self) -> bool:
        """Pushes are parked."""
        return False

    def settle(self) -> None:
        """Update every worker's own copy, where no merge came with the last step."""
        self._move(merges=False)

    def rest(self) -> ApplyResult:
        """Perform updates of rows that were left for later."""
        return self._server.rest()

    def _move(self, *, merges: bool) -> None:
        self._apart.update(self._moves)
        for worker, pushes in self._moves.items():
            optimizer = self._optimizers[worker]
            self._set_lr(optimizer, self._lr_scale)
            parameters = [each for each in self.copies[worker].parameters() if each.requires_grad]
            gradients = [push.dense for push in pushes]
            take_local_steps(optimizer, parameters, gradients, clip=self._server.clip, merges=merges)
        self._moves = {}

    def _merge(self) -> None:
        """Average the copies that were updated; a worker without a batch since the last merge takes the average."""
        moved = sorted(self._apart)
        self._apart.clear()
        if not moved:
            return
        first = moved[0]
        merge([self._optimizers[worker] for worker in moved])
        _average_buffers(self.copies, moved)
        state = self._optimizers[first].state_dict()
        for worker, (model, optimizer) in enumerate(zip(self.copies, self._optimizers, strict=True)):
            if worker not in moved:
                _copy(self.copies[first], model)
                optimizer.load_state_dict(state)
        _copy(self.copies[first], self._server.model)
        self._optimizer.load_state_dict(state)

    def _set_lr(self, optimizer: KStepAdam, lr_scale: float) -> None:
        for group, base in zip(optimizer.param_groups, self._server.base_lrs, strict=True):
            group["lr"] = base * lr_scale


def k_step_adam(optimizer: Optimizer | None) -> KStepAdam:
    """The optimizer, if it is a KStepAdam, whose copies can be merged."""
    if isinstance(optimizer, KStepAdam):
        return optimizer
    name = "no optimizer" if optimizer is None else type(optimizer).__name__
    message = f"mode 'k_step' trains dense parameters with hotrow.optim.KStepAdam, not with {name}"
    raise ConfigError(
        f'{message}: set dense.optimizer to "kstepadam", or give Trainer(optimizer=hotrow.KStepAdam, ...)'
    )


def _copy(source: nn.Module, target: nn.Module) -> None:
    target.load_state_dict(source.state_dict())


def _average_buffers(models: Sequence[nn.Module], moved: Sequence[int]) -> None:
    """Average buffers over the workers that were updated; integers as the largest is, as on a cluster."""
    for same in zip(*(model.buffers() for model in models), strict=True):
        floats = same[0].is_floating_point()
        merged = torch.stack([same[worker] for worker in moved]).mean(0) if floats else torch.stack(same).amax(0)
        for buffer in same:
            buffer.copy_(merged)
