"""What a table is: dimension, optimizer, first values, and which fields its rows carry."""

from typing import Annotated, Literal

from pydantic import Field

from hotrow.optim.sparse import Adagrad, AnyOptimizer
from hotrow.spec import Spec


class Uniform(Spec):
    """First values uniform in [-bound, bound)."""

    name: Literal["uniform"] = "uniform"
    bound: float = Field(default=0.01, ge=0, le=1e30)
    scaled: bool = False  # times 1 / sqrt(dim)


class Normal(Spec):
    """First values normal with mean 0."""

    name: Literal["normal"] = "normal"
    std: float = Field(default=0.01, ge=0, le=1e30)
    scaled: bool = False  # times 1 / sqrt(dim)


class Constant(Spec):
    """The same first value everywhere."""

    name: Literal["constant"] = "constant"
    value: float = Field(default=0.0, ge=-1e30, le=1e30)
    scaled: bool = False  # times 1 / sqrt(dim)


AnyInit = Annotated[Uniform | Normal | Constant, Field(discriminator="name")]


class Table(Spec):
    """One embedding table. A row's first value depends only on (seed, name, key)."""

    name: str = "default"
    dim: int = Field(gt=0, le=65_536)
    optimizer: AnyOptimizer = Adagrad()
    init: AnyInit = Uniform()
    seed: int = Field(default=0, ge=0, lt=2**64)
    clock: bool = False  # rows carry HET's clock
    last_seen: bool = False  # rows carry the step at which they were last touched
