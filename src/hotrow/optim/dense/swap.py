"""SWAP (samples weighted according to period) around the dense optimizers of torch.

The second moment v of a parameter is multiplied by `decay` once per `period` samples, before the update that crosses
the border: what was learnt long ago holds new steps back less. The period of an update = samples up to and including
it // period. It is kept with each parameter, as with each row of a table: a parameter without gradients catches up when
it gets one, and one that was never updated starts undecayed. Nothing but v decays.

    optimizer = SwapOptimizer(torch.optim.Adagrad(model.parameters(), lr=0.05), Swap(period=1_000_000, decay=0.9))
    ...
    optimizer.set_samples(samples)  # all samples trained, this batch included
    optimizer.step()
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, optim

from hotrow.errors import ConfigError, InputError
from hotrow.optim.sparse import Swap
from hotrow.spec import whole_number

ACCUMULATORS: dict[type[optim.Optimizer], str] = {  # where torch keeps v
    optim.Adagrad: "sum",
    optim.Adam: "exp_avg_sq",
    optim.AdamW: "exp_avg_sq",
    optim.NAdam: "exp_avg_sq",
    optim.RAdam: "exp_avg_sq",
    optim.RMSprop: "square_avg",
}
REFUSED = {
    "amsgrad": "it divides by the largest v there was, which no decay changes",
    "centered": "it subtracts the squared mean from v, and a decayed v would be less than that",
}
PERIOD = "swap_period"  # in the state of a parameter: the period that its v is decayed to


class SwapOptimizer(optim.Optimizer):
    """Wraps an optimizer of torch and decays its second moments (SWAP).

    Groups, state and settings are those of the wrapped optimizer.

    Example:
        >>> import torch
        >>> import hotrow as hr
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = hr.optim.SwapOptimizer(torch.optim.Adagrad([weight], lr=0.1), hr.Swap(period=1000, decay=0.5))
        >>> optimizer.param_groups[0]["lr"]
        0.1
    """

    def __init__(self, optimizer: optim.Optimizer, swap: Swap) -> None:
        self._accumulator = _accumulator_of(optimizer)
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.optimizer = optimizer
        self.swap = swap
        self._samples: int | None = None
        self._share()

    def set_samples(self, samples: int) -> None:
        """The samples trained up to and including the next update."""
        self._samples = whole_number("samples", samples, 0, 2**62, InputError)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Decay what crosses a border, then update."""
        if self._samples is None:
            raise InputError("step() before set_samples(): SWAP counts periods in trained samples, call that first")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        period = self._samples // self.swap.period
        touched = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter in touched:
            self._decay(self.state.get(parameter, {}), period)
        self.optimizer.step()
        for parameter in touched:
            state = self.state[parameter]
            state[PERIOD] = max(state.get(PERIOD, 0), period)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """State of such an optimizer, or of the plain one inside, whose v then starts undecayed."""
        if any(state and self._accumulator not in state for state in state_dict["state"].values()):
            inside = type(self.optimizer).__name__
            raise InputError(
                f"the state has no {self._accumulator!r}: it is not that of {inside}, use the same optimizer"
            )
        self.optimizer.load_state_dict(state_dict)
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        own = ("optimizer", "swap", "_samples", "_accumulator")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def _decay(self, state: dict[str, Any], period: int) -> None:
        behind = period - state.get(PERIOD, period)
        if behind <= 0:
            return
        moment: Tensor = state[self._accumulator]
        decayed = moment * self.swap.decay**behind
        if self.swap.floor is not None:  # stops the decay, and never raises what is below it already
            decayed = torch.maximum(decayed, moment.clamp(max=self.swap.floor))
        moment.copy_(decayed)

    def _share(self) -> None:
        self.state, self.param_groups = self.optimizer.state, self.optimizer.param_groups


def _accumulator_of(optimizer: optim.Optimizer) -> str:
    inside = type(optimizer).__name__
    found = next((name for kind, name in ACCUMULATORS.items() if isinstance(optimizer, kind)), None)
    if found is None:
        known = ", ".join(kind.__name__ for kind in ACCUMULATORS)
        raise ConfigError(f"optimizer={inside}: it has no second moment that SWAP could decay: take one of {known}")
    for group in optimizer.param_groups:
        for setting, reason in REFUSED.items():
            if group.get(setting):
                raise ConfigError(f"{inside}.{setting}=True: SWAP does not go with it, {reason}: leave it False")
    return found
