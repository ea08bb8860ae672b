"""Data normalisation (asynchronous SGD with thousands of workers): a dense layer's output divided by its batch mean.

    y = alpha * x / mean(x) - beta        mean over the local batch, alpha and beta learned, one of each per unit

It keeps the inputs of an activation alike while workers with different data move the layers below. It goes between a
dense layer and its activation:

    nn.Sequential(nn.Linear(40, 64), DataNorm(64), nn.ReLU(), nn.Linear(64, 1))
    MLP(40, (64,), 1, data_norm=True)     # the same, from hotrow.models.layers; models take the setting too
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from hotrow.errors import InputError
from hotrow.spec import Spec, whole_number


class DataNormSettings(Spec):
    """Settings of a `DataNorm` in a model's config.

    Example:
        >>> from hotrow.nn import DataNormSettings
        >>> DataNormSettings(momentum=0.05).bound
        1e-05
    """

    momentum: float = Field(default=0.1, gt=0, le=1)
    bound: float = Field(default=1e-5, gt=0)  # the least |mean| that is divided by
    least: float = Field(default=0.0, ge=0, le=1)  # the same as a share of the mean of |x|; 0: only `bound` guards


class DataNorm(nn.Module):
    """y = alpha * x / mean(x) - beta for x [samples, units]; in eval mode the mean is that of past batches.

    A mean below `bound` is put there, on its own side of 0 (0 itself on the positive one), and no gradient goes through
    it. `guarded` counts such means of units in training. With `least` the bound is also that share of
    the mean of |x|: a guard that follows the size of x, as x / mean(x) does not depend on it, and that leaves the
    formula wherever a mean is small beside its x.

    The running means are plain ones of all batches at first, and move by `momentum` once 1 / momentum of them are in. A
    batch of one sample is its own mean, so it is normalised as in eval mode.

    Example:
        >>> import torch
        >>> from hotrow.nn import DataNorm
        >>> DataNorm(2)(torch.tensor([[1.0, 2.0], [3.0, 2.0]])).tolist()
        [[-0.5, 0.0], [0.5, 0.0]]
    """

    running_mean: Tensor
    running_size: Tensor
    batches: Tensor
    guarded: Tensor

    def __init__(self, units: int, *, momentum: float = 0.1, bound: float = 1e-5, least: float = 0.0) -> None:
        super().__init__()
        self.units = whole_number("units", units, 1, 2**31)
        settings = DataNormSettings(momentum=momentum, bound=bound, least=least)
        self.momentum, self.bound, self.least = settings.momentum, settings.bound, settings.least
        self.alpha = nn.Parameter(torch.ones(self.units))
        self.beta = nn.Parameter(torch.ones(self.units))
        self.register_buffer("running_mean", torch.ones(self.units))
        self.register_buffer("running_size", torch.ones(self.units))  # the mean of |x|
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("guarded", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2 or x.shape[1] != self.units:
            raise InputError(f"x is {tuple(x.shape)}: must be [samples, {self.units}]")
        if not self.training or len(x) < 2:
            divisor, _ = self._guarded(self.running_mean, self.running_size)
        else:
            mean, size = x.mean(0, dtype=self.alpha.dtype), x.detach().abs().mean(0, dtype=self.alpha.dtype)
            divisor, near = self._guarded(mean, size)
            self._take(mean.detach(), size, near)
        return x * (self.alpha / divisor) - self.beta

    def extra_repr(self) -> str:
        return f"{self.units}, momentum={self.momentum}, bound={self.bound}, least={self.least}"

    def _guarded(self, mean: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """The mean, kept away from 0, and where it had to be."""
        bound = (self.least * size).clamp(min=self.bound)
        near = mean.abs() < bound
        return torch.where(near, torch.where(mean < 0, -bound, bound), mean), near

    @torch.no_grad()
    def _take(self, mean: Tensor, size: Tensor, near: Tensor) -> None:
        self.batches += 1
        share = (1 / self.batches.to(mean.dtype)).clamp(min=self.momentum)
        self.running_mean += share * (mean - self.running_mean)
        self.running_size += share * (size - self.running_size)
        self.guarded += near.sum()
