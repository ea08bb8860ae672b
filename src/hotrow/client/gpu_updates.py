"""Several pushes to one table in GPU memory as a single update: as `aggregate`, for distinct keys on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.client.aggregate import Average, RowPart, TableGradients, by_version, count_ages, weights_of_ages
from hotrow.client.device_pooling import DevicePooling, KeySums
from hotrow.kernels.scatter import scatter
from hotrow.kernels.unique import UniqueKeys
from hotrow.staleness import Histogram, Staleness
from hotrow.store.hbm import HbmPlan, HbmTier

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GpuUse:
    """Rows of one table that a batch uses: while this is referred to, they stay in GPU memory."""

    plan: HbmPlan
    pooling: DevicePooling

    @property
    def unique(self) -> UniqueKeys:
        """The distinct keys of the batch."""
        assert self.plan.folded is not None
        return self.plan.folded

    def count(self) -> int:
        """Distinct keys. Waits for the device."""
        return int(self.unique.size)


@dataclass(slots=True, eq=False, weakref_slot=True)
class GpuGradients(TableGradients):
    """Of one push and table in GPU memory."""

    use: GpuUse
    sums: KeySums
    versions: Tensor | None = None  # of each distinct key's row when it was pulled, as int32 bits

    def cut(self) -> None:
        """Hold no more than the distinct keys need: the push waits for others. Waits for the device."""
        self.sums = self.sums.cut(self.use.count())


@dataclass(frozen=True, slots=True, eq=False)
class SummedUpdate:
    """The arguments of `HbmTier.apply_sums`."""

    plan: HbmPlan
    sums: Tensor
    only: Tensor | None  # keys with a weight; None: all


def combined(
    tier: HbmTier,
    table: str,
    parts: Sequence[RowPart],
    whole: int,
    step: int,
    average: Average,
    late: Staleness | None,
    staleness: Histogram | None,
) -> SummedUpdate:
    """The parts that have gradients for a table, as one update; `whole` counts the samples of all parts of the step."""
    given = [_given(part, table) for part in parts]
    weights = [_weights(tier, part, each, step, late, staleness) for part, each in zip(parts, given, strict=True)]
    if len(parts) == 1:
        share = parts[0].factor * (1.0 if average == "present" else parts[0].samples / whole)
        sums, only = _weighted(given[0].sums.padded(len(given[0].use.plan.slots)), weights[0], share)
        return SummedUpdate(given[0].use.plan, sums, only)
    counts = [each.use.count() for each in given]
    joint = tier.find(tier.batch(torch.cat([each.use.unique.keys[:n] for each, n in zip(given, counts, strict=True)])))
    divisors = _divisors(joint, parts, counts, float(whole), average)
    pieces, flags = [], []
    for part, each, weight, n, divisor in zip(parts, given, weights, counts, divisors, strict=True):
        sums, only = _weighted(each.sums, weight, part.factor * part.samples, divisor, n)
        pieces.append(sums)
        flags.append(torch.ones(n, dtype=torch.bool, device=tier.device) if only is None else only)
    assert joint.folded is not None
    weighed = torch.zeros(len(joint.slots), dtype=torch.bool, device=tier.device)
    weighed[joint.folded.inverse[torch.cat(flags)].long()] = True
    return SummedUpdate(joint, scatter(joint.folded, torch.cat(pieces)), weighed)


def _given(part: RowPart, table: str) -> GpuGradients:
    given = part.rows[table]
    assert isinstance(given, GpuGradients)
    return given


def _weights(
    tier: HbmTier, part: RowPart, given: GpuGradients, step: int, late: Staleness | None, staleness: Histogram | None
) -> Tensor | None:
    """The weight of each distinct key by its staleness; None: all 1."""
    if part.token >= step and not by_version(late):
        if staleness is not None:
            staleness.add(0, given.use.count())
        return None
    ages = _ages(tier, part.token, given, step, late)
    if staleness is not None:
        count_ages(staleness, ages)
    weights = weights_of_ages(ages, late)
    return None if weights is None else torch.from_numpy(weights).to(tier.device)


def _ages(tier: HbmTier, token: int, given: GpuGradients, step: int, late: Staleness | None) -> I64:
    """The staleness of each distinct key, on the host: policies are computed there."""
    count = given.use.count()
    if by_version(late):
        if given.versions is None:
            raise AssertionError("a policy by version needs versions from the lookup")
        now, then = tier.counters(given.use.plan, "version"), given.versions
        behind: I64 = _numbers(now[:count]) - _numbers(then[:count])
        return np.maximum(0, behind)
    if late is not None and late.literal:
        return np.full(count, step - token)
    return np.maximum(0, _numbers(tier.counters(given.use.plan, "last_update")[:count]) - token)


def _numbers(counters: Tensor) -> I64:
    """Counters with the bits of uint32, on the host."""
    return counters.cpu().numpy().view(np.uint32).astype(np.int64)


def _divisors(
    joint: HbmPlan, parts: Sequence[RowPart], counts: Sequence[int], whole: float, average: Average
) -> Sequence[float | Tensor]:
    """For each part and key, the samples that its gradients are divided by."""
    if average == "batch":
        return [whole] * len(parts)
    assert joint.folded is not None
    mine = torch.split(joint.folded.inverse.long(), list(counts))
    samples = torch.zeros(len(joint.slots), dtype=torch.float64, device=joint.slots.device)
    for part, which in zip(parts, mine, strict=True):
        samples[which] += part.samples  # keys of a part are distinct
    return [samples[which] for which in mine]


def _weighted(
    given: KeySums, weights: Tensor | None, factor: float, divisor: float | Tensor = 1.0, count: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """Sums times weights and factor; and which keys have a weight other than 0 (None: all). 0 times NaN is 0 here."""
    sums, only = given.gradients[:count], given.used
    only = None if only is None else only[:count]
    if weights is not None:
        full = torch.zeros(len(sums), dtype=torch.float64, device=sums.device)
        full[: len(weights)] = weights
        factors: float | Tensor = full * factor / divisor
    else:
        factors = factor / divisor
    if isinstance(factors, float):
        if factors == 1.0:
            return sums, only
        if factors == 0.0:
            return torch.zeros_like(sums), torch.zeros(len(sums), dtype=torch.bool, device=sums.device)
        return sums * factors, only
    scale = factors.to(torch.float32)[:, None]
    weighed = factors != 0
    return torch.where(scale != 0, sums * scale, 0.0), weighed if only is None else only & weighed
