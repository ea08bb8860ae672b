"""What an update of rows depends on: the optimizer as plain numbers, the fields of rows, the scalars of the call.

The formulas are those of the store in memory (docs/store.md). Nothing here needs more than torch.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from hotrow.errors import ConfigError, InputError

Kind = Literal["sgd", "adagrad", "rowwise_adagrad", "decayed_adagrad", "adam"]

_LARGEST = 2**32 - 1  # fields of rows are uint32: a step or period beyond stays at the largest


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """One sparse optimizer with its settings; `UpdateRule.of(hr.Adagrad(lr=0.1))` takes them from a spec."""

    kind: Kind
    lr: float
    l2: float = 0.0
    decay: float = 0.0
    clip: float | None = None
    eps: float = 1e-10
    eps_inside: bool = False
    initial: float = 0.0  # first second moment of the Adagrads
    rate: float = 1.0  # decayed Adagrad
    beta1: float = 0.9
    beta2: float = 0.999
    correction: Literal["row", "global"] = "row"  # Adam: t is the row's count of updates, or the step
    swap_period: int = 0  # samples; 0: no SWAP
    swap_decay: float = 1.0
    swap_floor: float = 0.0  # decay stops here; 0: never

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(
                f"optimizer {self.kind}: GPU kernels have {', '.join(get_args(Kind))}: choose one of them"
            )

    @classmethod
    def of(cls, spec: Any) -> "UpdateRule":
        """From a spec of `hotrow.optim.sparse`, or anything with its attributes."""
        settings = ("lr", "l2", "decay", "clip", "eps", "eps_inside", "initial", "rate", "beta1", "beta2", "correction")
        given = {name: getattr(spec, name) for name in settings if hasattr(spec, name)}
        if spec.name == "ftrl":
            return cls(kind=spec.name, lr=spec.lr)  # refused, with the names of the others
        if (swap := getattr(spec, "swap", None)) is not None:
            given |= {"swap_period": swap.period, "swap_decay": swap.decay, "swap_floor": swap.floor or 0.0}
        return cls(kind=spec.name, **given)

    def state_dim(self, dim: int) -> int:
        """Floats of optimizer state beside a value of `dim` floats."""
        return {"sgd": 0, "rowwise_adagrad": 1, "adam": 2 * dim}.get(self.kind, dim)

    @property
    def counts_updates(self) -> bool:
        """Whether a row needs the field `updates`."""
        return self.kind == "adam" and self.correction == "row"

    def period_at(self, samples: int) -> int:
        """The SWAP period of an update, up to and including `samples`."""
        return min(samples // self.swap_period, _LARGEST) if self.swap_period else 0


@dataclass(frozen=True, slots=True)
class RowFields:
    """Counters of rows, int32 [rows] with the bits of uint32; None where a table does not have the field."""

    version: Tensor | None = None  # + 1 with each update; after the largest comes 2
    last_update: Tensor | None = None  # step + 1
    period: Tensor | None = None  # SWAP: the period that the second moment is decayed to
    updates: Tensor | None = None  # Adam: own updates of the row

    def present(self) -> list[tuple[str, Tensor]]:
        """Those that are there, with their names."""
        names = ("version", "last_update", "period", "updates")
        return [(name, field) for name in names if (field := getattr(self, name)) is not None]

    @property
    def stride(self) -> int:
        """Of the counters from row to row."""
        return next((field.stride(0) for _, field in self.present()), 1)

    def check(self, rule: UpdateRule) -> None:
        if rule.swap_period and self.period is None:
            raise InputError("update_rows: fields.period is missing: SWAP decays from the period that a row stands at")
        if rule.counts_updates and self.updates is None:
            raise InputError("update_rows: fields.updates is missing: correction='row' counts the updates of a row")


@dataclass(frozen=True, slots=True)
class StepScalars:
    """Numbers of one update that all its rows share."""

    lr: float
    keep: float  # what weight decay leaves of a value
    step_size: float  # Adam with correction by the step; else lr
    stamp: int  # new last_update, as the bits of an int32
    period: int  # SWAP period, as the bits of an int32

    @classmethod
    def of(cls, rule: UpdateRule, step: int, samples: int, lr_scale: float) -> "StepScalars":
        lr = float(rule.lr * lr_scale)  # of numpy, where a schedule gives that: launches take plain numbers
        correction = adam_correction(rule, step + 1) if rule.kind == "adam" and not rule.counts_updates else 1.0
        return cls(
            lr=lr,
            keep=1 - lr * rule.decay,
            step_size=lr * correction,
            stamp=signed(min(int(step) + 1, _LARGEST)),
            period=signed(rule.period_at(int(samples))),
        )


def adam_correction(rule: UpdateRule, t: int) -> float:
    return math.sqrt(1 - rule.beta2**t) / (1 - rule.beta1**t)


def signed(bits: int) -> int:
    """A uint32 as the int32 of the same bits."""
    return bits - 2**32 if bits >= 2**31 else bits
