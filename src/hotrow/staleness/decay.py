"""Curves from staleness to a weight between 0 and 1, and the policy of a mode: which gradients they weigh.

A weight multiplies the gradient and not the learning rate, so it also enters the accumulators of the optimizer.
Staleness counts from 0 (no other worker was faster); Zhang et al. and the SWAP paper count from 1.
"""

import math
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from hotrow.errors import InputError
from hotrow.sizes import Whole
from hotrow.spec import Spec


class Cutoff(Spec):
    """Weight 1 up to the tolerance, 0 beyond (GBA).

    Example:
        >>> import hotrow as hr
        >>> [hr.Cutoff(tolerance=4).weight(tau) for tau in (4, 5)]
        [1.0, 0.0]
    """

    name: Literal["cutoff"] = "cutoff"
    tolerance: Whole = Field(default=4, ge=0)

    def weight(self, tau: float) -> float:
        """Of a gradient that is `tau` late."""
        return 1.0 if _late(tau) <= self.tolerance else 0.0


class Inverse(Spec):
    """Weight 1 / tau (Zhang et al. 2016). With thousands of workers it stops the training.

    Example:
        >>> import hotrow as hr
        >>> [hr.Inverse().weight(tau) for tau in (0, 4)]
        [1.0, 0.25]
    """

    name: Literal["inverse"] = "inverse"

    def weight(self, tau: float) -> float:
        """Of a gradient that is `tau` late."""
        return 1.0 / max(1.0, _late(tau))


class Linear(Spec):
    """Weight 1 / tau', where tau' is the staleness scaled to the reference cluster.

    Example:
        >>> import hotrow as hr
        >>> hr.Linear(reference=10, present=40).weight(80)
        0.05
    """

    name: Literal["linear"] = "linear"
    reference: float = Field(gt=0)  # mean staleness of the cluster the learning rate was tuned for, or its workers
    present: float = Field(gt=0)  # the same of this cluster

    def weight(self, tau: float) -> float:
        """Of a gradient that is `tau` late."""
        return 1.0 / max(1.0, _late(tau) * (self.reference / self.present))


class Power(Spec):
    """Weight 1 up to the mean staleness of the reference cluster, then (reference / tau)^exponent.

    The SWAP paper prints 1 / tau^2 beyond the reference, a fall from 1 to a millionth at a reference of 1,000: that is
    `literal`.

    Example:
        >>> import hotrow as hr
        >>> [hr.Power(reference=10).weight(tau) for tau in (10, 20)]
        [1.0, 0.25]
    """

    name: Literal["power"] = "power"
    reference: float = Field(gt=0)  # mean staleness of the cluster the learning rate was tuned for, or its workers
    exponent: float = Field(default=2.0, gt=0)
    literal: bool = False

    def weight(self, tau: float) -> float:
        """Of a gradient that is `tau` late."""
        if _late(tau) <= self.reference:
            return 1.0
        if self.literal:
            return float(max(1.0, tau) ** -self.exponent)  # a reference below 1 must not make weights above 1
        return float((self.reference / tau) ** self.exponent)


AnyDecay = Annotated[Cutoff | Inverse | Linear | Power, Field(discriminator="name")]


class Staleness(Spec):
    """Weighs late gradients in a mode.

    Example:
        >>> import hotrow as hr
        >>> policy = hr.Staleness(decay=hr.Cutoff(tolerance=4), groups="embedding")
        >>> policy.dense_weight(10)
        1.0
    """

    decay: AnyDecay
    groups: Literal["both", "dense", "embedding"] = "both"  # whose gradients are weighed
    by: Literal["step", "version"] = "step"  # how late an id is: in global steps, or in changes of its row
    movement: float | None = Field(default=None, gt=0)  # lambda: a dense tensor that moves little minds staleness less
    literal: bool = False  # an id is tagged before its staleness is taken (GBA's Algorithm 2 to the letter)

    def dense_weight(self, tau: float) -> float:
        """Of a dense gradient that is `tau` late."""
        return 1.0 if self.groups == "embedding" else self.decay.weight(tau)

    def row_weight(self, tau: float) -> float:
        """Of an id's gradient that is `tau` late."""
        return 1.0 if self.groups == "dense" else self.decay.weight(tau)

    def moved(self, tau: float, change: float) -> float:
        """The staleness of a dense tensor whose last step changed it by `change`: from tau / 2 at rest up to tau."""
        if self.movement is None:
            return tau
        if not change >= 0:
            raise InputError(f"change={change!r}: must be 0 or more; a tensor that is not finite has no last change")
        return tau / (1.0 + math.exp(-self.movement * change))

    # Combinations that are refused. Each check is at the later of its fields, so that the earlier one is known.

    @field_validator("movement")
    @classmethod
    def _movement_is_of_dense_tensors(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("groups") == "embedding":
            raise ValueError("scales the staleness of dense tensors, and groups='embedding' weighs none: leave it out")
        return value

    @field_validator("literal")
    @classmethod
    def _literal_is_of_tagged_ids(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("by") == "version":
            raise ValueError("is about tags of steps, and by='version' has none: leave one of them out")
        if value and info.data.get("groups") == "dense":
            raise ValueError("is about ids, and groups='dense' weighs none: leave one of them out")
        return value


def _late(tau: float) -> float:
    if not tau >= 0:  # NaN too
        raise InputError(f"tau={tau!r}: must be 0 or more; a gradient is never older than its parameters are new")
    return tau
