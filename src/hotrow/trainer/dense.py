"""The optimizer of the network's own parameters, from whatever a trainer is given."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

from hotrow.errors import ConfigError

OptimizerMaker = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def dense_optimizer(
    model: nn.Module, given: torch.optim.Optimizer | OptimizerMaker | None
) -> torch.optim.Optimizer | None:
    """Over all parameters that learn, as it is given, made by what is given, or Adam; None: there are none."""
    if isinstance(given, torch.optim.Optimizer):
        return given
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        return None
    made = torch.optim.Adam(parameters, lr=1e-3) if given is None else given(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"optimizer gives a {type(made).__name__}: give a torch.optim optimizer, or what makes one")
    return made
