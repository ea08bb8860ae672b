"""k-step Adam (Baidu's hierarchical parameter server, Algorithm 2): workers move alone and are merged now and then.

Every worker has a replica of the model and an instance over it, with its own mean m_i and second moment v_i:

    m_i = beta1 m_i + (1 - beta1) g_i        v_i = beta2 v_i + (1 - beta2) g_i²
    between merges   x_i = x_i - lr m_i / (sqrt(v) + eps)              v: the last merged one, frozen
    at a merge       v = mean of all v_i / (1 - beta2^t), then x = mean of all x_j - lr m_j / (sqrt(v) + eps)

The merge is the step: a gradient moves parameters in one of these ways, never in two. After every backward:

    a step between merges                optimizer.step(local=True)
    a merge in one process               optimizer.accumulate() on each worker, then merge(all of them)
    a merge over a network               optimizer.accumulate() on each worker, then two all-reduces:
                                             optimizer.load_second_moments(mean over workers of second_moments())
                                             optimizer.load_parameters(mean over workers of propose())
    one instance alone, in any mode      optimizer.step()

An instance alone merges with itself at every step, so `step()` is Adam (torch's, while beta1 is 0), and any mode may
hand its state on to k steps and back. A merge takes workers too that have moved by their last gradient already: they
bring their x_j as it is. Before the first merge there is no merged v, and a worker divides by its own. A parameter
without a gradient has the gradient 0.

`literal` is the paper: v starts at eps, is not corrected, and nothing is added to its root. Cold, that makes the first
steps long, so the paper starts from a trained model: with `second_moment` v_i and v start there, and are not corrected.

    KStepAdam(model.parameters(), second_moment=adam_second_moments(adam))     # of a torch.optim.Adam
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from hotrow.errors import ConfigError, InputError


class KStepAdam(torch.optim.Optimizer):
    """One worker of k-step Adam, or an Adam alone. The learning rate is that of `param_groups`, so schedules work.

    Example:
        >>> import torch
        >>> import hotrow as hr
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = hr.KStepAdam([weight], lr=0.1)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> bool((weight < 1).all())
        True
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        beta1: float = 0.0,
        beta2: float = 0.999,
        eps: float = 1e-8,
        *,
        literal: bool = False,
        second_moment: Sequence[Tensor] | None = None,
    ) -> None:
        """`second_moment`: v to start from, one tensor per parameter in their order; None: a cold start."""
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "literal": literal})
        self._owes = False  # a gradient was taken in and has moved nothing yet
        if second_moment is not None:
            self._start_from(list(second_moment))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Parameters with settings of their own."""
        _check_settings({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch, but copied: workers that start from one state must not share its tensors."""
        super().load_state_dict(deepcopy(state_dict))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._owes = False

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None, *, local: bool = False) -> float | None:  # type: ignore[override]
        """Take the gradients in and move. Alone the own second moment divides; `local`: the last merged one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.accumulate()
        if not local:
            self.load_second_moments(self.second_moments())
        self.load_parameters(self.propose())
        return loss

    @torch.no_grad()
    def accumulate(self) -> None:
        """Take the gradients into m and v; a merge has to move the parameters."""
        if self._owes:
            raise InputError(
                "accumulate() again before the parameters moved: merge first, or the last gradient is lost"
            )
        if any(entry[0].grad is not None and entry[0].grad.is_sparse for entry in self._entries()):
            raise InputError("KStepAdam takes no sparse gradients: make the embedding with sparse=False")
        for parameter, group, state in self._entries():
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            state["mean"].mul_(group["beta1"]).add_(gradient, alpha=1 - group["beta1"])
            state["square"].mul_(group["beta2"]).addcmul_(gradient, gradient, value=1 - group["beta2"])
            state["step"] += 1
        self._owes = True

    @torch.no_grad()
    def second_moments(self) -> list[Tensor]:
        """v of this worker for each parameter, corrected: what is averaged first."""
        if any(state["step"] == 0 and not state.get("hot_start") for _, _, state in self._entries()):
            raise InputError("second_moments() of a worker that saw no gradient: load the state of one that did")
        return [_corrected(group, state) for _, group, state in self._entries()]

    @torch.no_grad()
    def load_second_moments(self, mean: Sequence[Tensor]) -> None:
        """Divide by these until the next merge."""
        for (parameter, _, state), merged in self._paired("load_second_moments", mean):
            state["merged"] = merged.to(parameter, copy=True)

    @torch.no_grad()
    def propose(self) -> list[Tensor]:
        """Where this worker would move its parameters: what is averaged second."""
        return [self._moved(*entry) if self._owes else entry[0].clone() for entry in self._entries()]

    @torch.no_grad()
    def load_parameters(self, mean: Sequence[Tensor]) -> None:
        """Stand there."""
        for (parameter, _, _), merged in self._paired("load_parameters", mean):
            parameter.copy_(merged)
        self._owes = False

    @torch.no_grad()
    def _start_from(self, second_moment: Sequence[Tensor]) -> None:
        for (parameter, _, state), given in self._paired("second_moment", second_moment):
            if not (given.isfinite().all() and (given >= 0).all()):
                raise InputError("second_moment holds negative or non-finite numbers: give means of squared gradients")
            state.update(square=given.to(parameter, copy=True), merged=given.to(parameter, copy=True), hot_start=True)

    def _moved(self, parameter: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Tensor:
        merged = state["merged"] if "merged" in state else _corrected(group, state)
        if group["literal"]:  # without gradients v fades from eps to 0 in some 100,000 steps, and 0 / 0 must not be
            divisor = merged.clamp(min=torch.finfo(merged.dtype).tiny).sqrt_()
        else:
            divisor = merged.sqrt().add_(group["eps"])
        return torch.addcdiv(parameter, state["mean"], divisor, value=-float(group["lr"]))

    def _entries(self) -> Iterator[tuple[Tensor, dict[str, Any], dict[str, Any]]]:
        for group in self.param_groups:
            for parameter in group["params"]:
                yield parameter, group, self.state[parameter] or self._first_state(parameter, group)

    def _first_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        start = group["eps"] if group["literal"] else 0.0
        state: dict[str, Any] = self.state[parameter]
        state.update(step=0, mean=torch.zeros_like(parameter), square=torch.full_like(parameter, start))
        if group["literal"]:
            state["merged"] = torch.full_like(parameter, start)
        return state

    def _paired(self, name: str, given: Sequence[Tensor]) -> list[tuple[Any, Tensor]]:
        entries = list(self._entries())
        ours, theirs = [tuple(entry[0].shape) for entry in entries], [tuple(tensor.shape) for tensor in given]
        if ours != theirs:
            raise InputError(f"{name}: shapes {theirs} do not fit parameters {ours}: merge replicas of one model")
        return list(zip(entries, given, strict=True))


def adam_second_moments(adam: torch.optim.Optimizer) -> list[Tensor]:
    """v of a torch.optim.Adam or AdamW for each of its parameters, corrected: a start for `KStepAdam`.

    Example:
        >>> import torch
        >>> from hotrow.optim import adam_second_moments
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> adam = torch.optim.Adam([weight])
        >>> (2 * weight).sum().backward()
        >>> _ = adam.step()
        >>> [round(value, 3) for value in adam_second_moments(adam)[0].tolist()]
        [4.0, 4.0]
    """
    if not isinstance(adam, torch.optim.Adam | torch.optim.AdamW):
        raise InputError(f"optimizer={type(adam).__name__}: take v from a torch.optim.Adam or AdamW")
    moments = []
    for group in adam.param_groups:
        for number, parameter in enumerate(group["params"]):
            state = adam.state.get(parameter)
            if not state:
                raise InputError(f"parameter {number} of the Adam was never updated: it has no second moment, train it")
            moments.append(state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"])))
    return moments


def take_local_steps(
    optimizer: KStepAdam,
    parameters: Sequence[nn.Parameter],
    pushes: Sequence[Sequence[Tensor | None]],
    *,
    clip: float | None,
    merges: bool,
) -> None:
    """Move a worker by the gradients of one batch after the other; where it `merges`, the merge moves by the last."""
    for number, gradients in enumerate(pushes, start=1):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        if merges and number == len(pushes):
            optimizer.accumulate()
        else:
            optimizer.step(local=True)
        optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def merge(optimizers: Sequence[KStepAdam]) -> None:
    """Merge workers of this process; afterwards their parameters and the v they divide by are the same.

    Example:
        >>> import torch
        >>> from hotrow.optim import KStepAdam, merge
        >>> replicas = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
        >>> workers = [KStepAdam([replica], lr=0.1) for replica in replicas]
        >>> for scale, replica in enumerate(replicas, 1):
        ...     (scale * replica).sum().backward()
        >>> for worker in workers:
        ...     worker.accumulate()
        >>> merge(workers)
        >>> bool(replicas[0] == replicas[1])
        True
    """
    if not optimizers:
        raise InputError("merge() of no optimizers: give one per worker")
    if len({group["literal"] for optimizer in optimizers for group in optimizer.param_groups}) > 1:
        raise InputError("merge(): some optimizers are literal and some are not: make them alike")
    moments = _means([optimizer.second_moments() for optimizer in optimizers])
    for optimizer in optimizers:
        optimizer.load_second_moments(moments)
    parameters = _means([optimizer.propose() for optimizer in optimizers])
    for optimizer in optimizers:
        optimizer.load_parameters(parameters)


def _corrected(group: dict[str, Any], state: dict[str, Any]) -> Tensor:
    """v of one worker as if it had not started at 0; the paper does not start there, nor does a given v."""
    square: Tensor = state["square"]
    if group["literal"] or state.get("hot_start"):
        return square.clone()
    corrected: Tensor = square / (1 - group["beta2"] ** state["step"])
    return corrected


def _means(tensors: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    sizes = {tuple(tuple(tensor.shape) for tensor in own) for own in tensors}
    if len(sizes) > 1:
        raise InputError("merge(): parameters of the optimizers differ in number or shape: merge replicas of one model")
    return [torch.stack(same).mean(0) for same in zip(*tensors, strict=True)]


def _check_settings(group: dict[str, Any]) -> None:
    rules = {
        "lr": (0 <= group["lr"] < math.inf, "0 or more"),
        "beta1": (0 <= group["beta1"] < 1, "from 0 to less than 1"),
        "beta2": (0 <= group["beta2"] < 1, "from 0 to less than 1"),
        "eps": (0 < group["eps"] < math.inf, "more than 0 (an element without gradients would be divided by 0)"),
    }
    for name, (holds, rule) in rules.items():
        if not holds:
            raise ConfigError(f"KStepAdam.{name}={group[name]!r}: must be {rule}")
