"""Several pushes to one table as a single update: weights and divisors.

The sum over parts of weight * samples * gradient is divided by the samples of all parts ("batch": exactly one large
batch), or by those of the parts that contain the id ("present": the GBA paper). Weights are per id: an id that no other
worker changed since it was pulled is not stale, whatever the number of steps since. An id whose parts all have weight 0
is left unchanged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hotrow.client.buffers import BufferPool
from hotrow.staleness import Histogram, Staleness
from hotrow.store import LookupPlan as Plan
from hotrow.store import RamTier

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]
Average = Literal["batch", "present"]


class TableGradients:
    """Of one push and table, as its client keeps them until the push is applied."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class RowGradients(TableGradients):
    """Of one push and table: key i takes row `rows[i]` of the gradients (row i without it) times `weights[i]`."""

    keys: I64
    plan: Plan  # of these keys
    gradients: F32
    rows: U32 | None = None
    weights: F32 | None = None
    versions: U32 | None = None  # of each key's row when it was pulled

    def without(self, gone: NDArray[np.bool_], tier: RamTier) -> "RowGradients":
        """The same for a table without some of the keys."""
        left = np.flatnonzero(~gone)
        keys = self.keys[left]
        plan = tier.batch(keys.view(np.uint64))
        rows = (left if self.rows is None else self.rows[left]).astype(np.uint32)
        weights = None if self.weights is None else self.weights[left]
        return RowGradients(
            keys, plan, self.gradients, rows, weights, None if self.versions is None else self.versions[left]
        )

    @property
    def nbytes(self) -> int:
        """The size on the wire: a key and a gradient for each distinct id."""
        return int(self.plan.unique * (8 + 4 * self.gradients.shape[1]))


@dataclass(frozen=True, slots=True, eq=False)
class RowPart:
    """One push in an aggregate."""

    rows: Mapping[str, TableGradients]  # by table
    samples: int
    token: int
    factor: float = 1.0

    def row_gradients(self, table: str) -> RowGradients:
        """Of a table whose rows are in memory."""
        given = self.rows[table]
        assert isinstance(given, RowGradients)
        return given


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The arguments of `RamTier.apply`."""

    keys: I64 | Plan
    gradients: F32
    rows: U32 | None
    weights: F32 | None


def aggregated(
    tier: RamTier,
    table: str,
    parts: Sequence[RowPart],
    whole: int,
    step: int,
    average: Average,
    late: Staleness | None,
    staleness: Histogram | None = None,
    plan: Plan | None = None,
    buffers: BufferPool | None = None,
) -> Update:
    """The parts that have gradients for a table, as one update; `whole` counts the samples of all parts of the step.

    `plan`: of the keys of these parts, one after the other, where it is made already. `buffers` are used again when
    the update is performed and gone.
    """
    buffers = buffers or BufferPool()
    there = [part for part in parts if table in part.rows]
    given = [part.row_gradients(table) for part in there]
    weights = [_row_weights(tier, part, each, step, late, staleness) for part, each in zip(there, given, strict=True)]
    if len(there) == 1:
        share = there[0].factor * (1.0 if average == "present" else there[0].samples / whole)
        only = given[0]
        return Update(only.plan, only.gradients, only.rows, _scaled(only, weights[0], share))
    if plan is None:
        plan = tier.batch(buffers.join([each.keys for each in given]))
    divisors: Sequence[float | F64] = [float(whole)] * len(there)
    if average == "present":
        divisors = _present(plan, there, given)
    scaled = [
        _times(_scaled(each, weight, 1.0), part.factor * part.samples / divisor, len(each.keys))
        for part, each, weight, divisor in zip(there, given, weights, divisors, strict=True)
    ]
    rows = _joined_rows(given)
    return Update(plan, buffers.join([each.gradients for each in given]), rows, buffers.join(scaled))


def _row_weights(
    tier: RamTier, part: RowPart, given: RowGradients, step: int, late: Staleness | None, staleness: Histogram | None
) -> F64 | None:
    """The weight of each key by its staleness; None: all 1.

    Where the token is the step itself, nothing can be stale.
    """
    if part.token >= step and not by_version(late):
        if staleness is not None:
            staleness.add(0, given.plan.unique)
        return None
    ages = _ages(tier, part.token, given, step, late)
    if staleness is not None:
        of_ids = np.empty(given.plan.unique, np.int64)
        of_ids[given.plan.inverse] = ages
        count_ages(staleness, of_ids)
    return weights_of_ages(ages, late)


def by_version(late: Staleness | None) -> bool:
    """Whether a policy counts the changes of a row since it was pulled."""
    return late is not None and late.by == "version"


def count_ages(staleness: Histogram, ages: I64) -> None:
    """Add the staleness of distinct ids."""
    for age, count in zip(*np.unique(ages, return_counts=True), strict=True):
        staleness.add(int(age), int(count))


def weights_of_ages(ages: I64, late: Staleness | None) -> F64 | None:
    """What a policy makes of the staleness of each id; None: all 1."""
    if late is None or late.groups == "dense":
        return None
    distinct, which = np.unique(ages, return_inverse=True)
    curve = np.array([late.row_weight(int(age)) for age in distinct])
    return None if (curve == 1).all() else curve[which]


def _ages(tier: RamTier, token: int, given: RowGradients, step: int, late: Staleness | None) -> I64:
    if by_version(late):
        if given.versions is None:
            raise AssertionError("a policy by version needs versions from the lookup")
        behind: I64 = tier.versions(given.plan).astype(np.int64) - given.versions
        return np.maximum(0, behind)
    if late is not None and late.literal:
        return np.full(len(given.keys), step - token)
    return np.maximum(0, tier.last_updates(given.plan).astype(np.int64) - token)


def _present(plan: Plan, parts: Sequence[RowPart], given: Sequence[RowGradients]) -> list[F64]:
    """For each part and key, the samples of all parts that contain the key."""
    bounds = np.cumsum([0, *(len(each.keys) for each in given)])
    inverse = plan.inverse
    mine = [inverse[start:stop] for start, stop in pairwise(bounds)]
    samples = np.zeros(plan.unique)
    for part, which in zip(parts, mine, strict=True):
        samples[np.unique(which)] += part.samples
    return [samples[which] for which in mine]


def _joined_rows(given: Sequence[RowGradients]) -> U32 | None:
    if all(each.rows is None for each in given):
        return None
    starts = np.cumsum([0, *(len(each.gradients) for each in given[:-1])])
    rows = [np.arange(len(each.keys)) if each.rows is None else each.rows for each in given]
    return np.concatenate([row + start for row, start in zip(rows, starts, strict=True)]).astype(np.uint32)


def _scaled(given: RowGradients, weights: F64 | None, factor: float) -> F32 | None:
    """The weights of a push times those of staleness times a factor; None: all 1."""
    if weights is None and factor == 1.0:
        return given.weights
    scale = factor if weights is None else weights * factor
    return _times(given.weights, scale, len(given.keys))


def _times(weights: F32 | None, factor: float | F64, keys: int) -> F32:
    scale = np.broadcast_to(np.asarray(factor, np.float64), keys)
    return np.ascontiguousarray(scale if weights is None else weights * scale, dtype=np.float32)
