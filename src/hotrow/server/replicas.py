"""Dense parameters in KStep: each worker moves its own copy of the model, and merges make them one again.

What a discipline calls a step closes for all workers at once, so copies move and merge between two rounds of computing.
The server's model is that of the last merge; its optimizer holds the state of the first worker, which any other mode
goes on with.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy

from torch import nn

from hotrow.errors import ConfigError
from hotrow.optim.dense import KStepAdam, merge
from hotrow.server.core import ParameterServer
from hotrow.worker.core import Gradients


class Replicas:
    """One model and one KStepAdam per worker, all starting from the server's."""

    def __init__(self, server: ParameterServer, workers: int) -> None:
        optimizer = server.optimizer
        if not isinstance(optimizer, KStepAdam):
            name = "no optimizer" if optimizer is None else type(optimizer).__name__
            raise ConfigError(f"mode 'k_step' trains dense parameters with hotrow.optim.KStepAdam, not with {name}")
        self._server = server
        self.models = [deepcopy(server.model) for _ in range(workers)]
        self._optimizers = [self._optimizer_of(model, optimizer) for model in self.models]

    def close(self, moved: Mapping[int, Sequence[Gradients]], *, merges: bool, lr_scale: float) -> None:
        """The end of a step: by worker, the gradients of its batches. Copies move by themselves, or all are merged."""
        for worker, pushes in moved.items():
            optimizer = self._optimizers[worker]
            self._set_lr(optimizer, lr_scale)
            for number, push in enumerate(pushes, start=1):
                parameters = [each for each in self.models[worker].parameters() if each.requires_grad]
                for parameter, gradient in zip(parameters, push.dense, strict=True):
                    parameter.grad = gradient
                if merges and number == len(pushes):
                    optimizer.accumulate()
                else:
                    optimizer.step(local=True)
                optimizer.zero_grad(set_to_none=True)
        if merges:
            self._merge()

    def _merge(self) -> None:
        merge([optimizer for optimizer in self._optimizers if _has_stepped(optimizer)])
        seen = next(place for place, optimizer in enumerate(self._optimizers) if _has_stepped(optimizer))
        state = self._optimizers[seen].state_dict()
        for place, (model, optimizer) in enumerate(zip(self.models, self._optimizers, strict=True)):
            if not _has_stepped(optimizer):  # it had no batch yet: it starts from the others
                _copy(self.models[seen], model)
                optimizer.load_state_dict(state)
            elif place != seen:
                _copy_buffers(self.models[seen], model)
        _copy(self.models[seen], self._server.model)
        assert self._server.optimizer is not None
        self._server.optimizer.load_state_dict(state)

    def _optimizer_of(self, model: nn.Module, like: KStepAdam) -> KStepAdam:
        made = KStepAdam([each for each in model.parameters() if each.requires_grad])
        made.load_state_dict(like.state_dict())
        return made

    def _set_lr(self, optimizer: KStepAdam, lr_scale: float) -> None:
        for group, base in zip(optimizer.param_groups, self._server.base_lrs, strict=True):
            group["lr"] = base * lr_scale


def _has_stepped(optimizer: KStepAdam) -> bool:
    return any(state["step"] for state in optimizer.state.values())


def _copy(source: nn.Module, target: nn.Module) -> None:
    target.load_state_dict(source.state_dict())


def _copy_buffers(source: nn.Module, target: nn.Module) -> None:
    for theirs, ours in zip(source.buffers(), target.buffers(), strict=True):
        ours.copy_(theirs)
