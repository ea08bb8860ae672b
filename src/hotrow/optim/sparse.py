"""Specs of the optimizers whose state is in the rows. The arithmetic is native; docs/store.md has the formulas.

Every spec is frozen and takes keywords only. Common to all: `l2` enters the gradient, `decay` shrinks the value before
the update and beside it (as torch's AdamW), `clip` bounds the norm of a row's gradient.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from hotrow.spec import Spec

# Rows are float32: what is far outside its range would become 0 or infinity there.
Positive = Annotated[float, Field(ge=1e-30, le=1e30)]
NotNegative = Annotated[float, Field(ge=0, le=1e30)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Swap(Spec):
    """Multiplies the second moment by `decay` once per `period` samples, when the row is next updated (SWAP).

    `floor` stops the decay and never raises a value that is already below it.

    Example:
        >>> import hotrow as hr
        >>> hr.Adagrad(lr=0.05, swap=hr.Swap(period=10_000_000, decay=0.5)).swap.decay
        0.5
    """

    period: int = Field(gt=0, lt=2**63)
    decay: float = Field(gt=0, le=1)
    floor: NotNegative | None = None


class SparseOptimizer(Spec):
    """What all sparse optimizers share."""

    lr: Positive = 0.05
    l2: NotNegative = 0.0
    decay: NotNegative = 0.0
    clip: Positive | None = None

    def state_dim(self, dim: int) -> int:
        """Floats of optimizer state beside a value of `dim` floats."""
        return 0


class SGD(SparseOptimizer):
    """Plain gradient descent: value -= lr * g.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=16, optimizer=hr.SGD(lr=0.1)).optimizer.state_dim(16)
        0
    """

    name: Literal["sgd"] = "sgd"


class _Adagrad(SparseOptimizer):
    eps: NotNegative = 1e-10
    initial: NotNegative = 0.0
    eps_inside: bool = False

    def state_dim(self, dim: int) -> int:
        return dim


class Adagrad(_Adagrad):
    """Adagrad: v += g²; value -= lr * g / (sqrt(v) + eps), as torch.

    `eps_inside` divides by sqrt(v + eps) instead.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=16, optimizer=hr.Adagrad(lr=0.1)).optimizer.state_dim(16)
        16
    """

    name: Literal["adagrad"] = "adagrad"
    swap: Swap | None = None


class RowwiseAdagrad(_Adagrad):
    """Adagrad with a single v per row, to which mean(g²) is added.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=16, optimizer=hr.RowwiseAdagrad(lr=0.1)).optimizer.state_dim(16)
        1
    """

    name: Literal["rowwise_adagrad"] = "rowwise_adagrad"
    swap: Swap | None = None

    def state_dim(self, dim: int) -> int:
        return 1


class DecayedAdagrad(_Adagrad):
    """Adagrad with v = rate * v + (1 - rate) * g² at each update of the row: the baseline of the SWAP paper.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=16, optimizer=hr.DecayedAdagrad(lr=0.1)).optimizer.state_dim(16)
        16
    """

    name: Literal["decayed_adagrad"] = "decayed_adagrad"
    rate: float = Field(default=0.999999, gt=0, lt=1)


class Adam(SparseOptimizer):
    """Adam on the rows of a batch.

    `correction` takes the bias from the row's own updates, or from the step (as SparseAdam).

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=16, optimizer=hr.Adam(lr=0.1)).optimizer.state_dim(16)
        32
    """

    name: Literal["adam"] = "adam"
    lr: Positive = 0.001
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    eps: NotNegative = 1e-8
    correction: Literal["row", "global"] = "row"
    swap: Swap | None = None

    def state_dim(self, dim: int) -> int:
        return 2 * dim


class FTRL(SparseOptimizer):
    """FTRL-proximal (McMahan 2013): lr is its alpha; l1 and l2 are its own penalties, so l2 is not in the gradient.

    `initial` is the first n, its sum of squared gradients; 0 is the paper's.

    Example:
        >>> import hotrow as hr
        >>> hr.Table(dim=16, optimizer=hr.FTRL(lr=0.1)).optimizer.state_dim(16)
        32
    """

    name: Literal["ftrl"] = "ftrl"
    beta: Positive = 1.0
    l1: NotNegative = 0.0
    initial: NotNegative = 0.0

    def state_dim(self, dim: int) -> int:
        return 2 * dim


def shaping_settings(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Of an optimizer's settings, dumped, those that rows were shaped by. The others may differ from run to run."""
    free = {"lr", "l2", "decay", "clip"}
    if optimizer["name"] == "ftrl":  # the value follows from its z only together with lr and l2
        free -= {"lr", "l2"}
        if not optimizer.get("initial"):  # rows that were saved before FTRL had it started with 0
            free = free | {"initial"}
    return {name: value for name, value in optimizer.items() if name not in free}


AnyOptimizer = Annotated[
    SGD | Adagrad | RowwiseAdagrad | DecayedAdagrad | Adam | FTRL,
    Field(discriminator="name"),
]
