"""As `pooling`, on a GPU: from rows there to the vectors of a batch, and from the gradients of these to distinct ids.

Every kind of part is bags of positions: one id each, the ids of a bag, or the places of a padded sequence, which hold
one id or none. So one kernel pools all of them, and its backward sums all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.client.base import FeatureVectors
from hotrow.client.device_arrays import PackedArrays
from hotrow.data.batch import FeatureBlock
from hotrow.kernels.pool import Mode, pool
from hotrow.kernels.scatter import scatter
from hotrow.kernels.unique import UniqueKeys

I64 = NDArray[np.int64]
RowPooling = Callable[[slice, Tensor | None, Mode], Tensor]  # of some positions of a table, by bags: `HbmTier.pool`


def on_device(arrays: Sequence[I64], device: torch.device) -> list[Tensor]:
    """Arrays of the host on a device, in one copy. To a GPU it goes from pinned memory, and nothing waits for it."""
    return joined_on_device([[array] for array in arrays], device)


def joined_on_device(groups: Sequence[Sequence[I64]], device: torch.device) -> list[Tensor]:
    """The same, with the arrays of each group one after the other."""
    whole = [[np.asarray(array, np.int64) for array in group] for group in groups]  # a batch may be the user's own
    packed = PackedArrays.of(whole, pinned=device.type == "cuda")
    return packed.views(packed.block.to(device, non_blocking=True))


def pooled_rows(rows: Tensor, inverse: Tensor) -> RowPooling:
    """The rows of distinct ids [distinct, dim], as a source of vectors; position p has row inverse[p] (int32)."""
    slots = torch.arange(len(rows), device=rows.device)
    return lambda positions, offsets, mode: pool(rows, slots, inverse[positions], offsets, mode)


@dataclass(frozen=True, slots=True, eq=False)
class KeySums:
    """Gradients of distinct keys, in the order of `UniqueKeys.keys`; those beyond their number mean nothing."""

    gradients: Tensor  # float32 [positions, dim], or of the distinct keys alone
    used: Tensor | None  # bool of as many: keys that the model used; None: all

    def cut(self, count: int) -> "KeySums":
        """A copy for the distinct keys alone: the memory of the others is free."""
        return KeySums(self.gradients[:count].clone(), None if self.used is None else self.used[:count].clone())

    def padded(self, positions: int) -> "KeySums":
        """With a row for each position again."""
        if len(self.gradients) == positions:
            return self
        longer = (0, positions - len(self.gradients))
        gradients = torch.nn.functional.pad(self.gradients, (0, 0, *longer))
        return KeySums(gradients, None if self.used is None else torch.nn.functional.pad(self.used, longer))


@dataclass(frozen=True, slots=True, eq=False)
class _Bags:
    """The ids of one part as bags."""

    part: FeatureBlock
    positions: slice  # of the table's ids
    offsets: Tensor | None  # of bags, from 0; None: each id is one
    mode: Mode
    width: int  # bags of a sample
    mask: Tensor | None


class DevicePooling:
    """The parts of one table of a batch, whose ids follow one another in the order of the parts."""

    def __init__(
        self, parts: Sequence[FeatureBlock], samples: int, bounds: Sequence[Tensor | None], device: torch.device
    ) -> None:
        """`bounds`: those of each part on the device, as `on_device` brings them there; None where it has none."""
        self.samples, self._device = samples, device
        ends = accumulate((len(part.keys) for part in parts), initial=0)
        self._bags = [
            _bags(part, slice(*span), there, samples)
            for part, span, there in zip(parts, pairwise(ends), bounds, strict=True)
        ]

    def tensors(self) -> list[Tensor]:
        """All that it holds on the device."""
        return [each for bags in self._bags for each in (bags.offsets, bags.mask) if each is not None]

    def vectors(self, rows: RowPooling, *, learn: bool) -> list[FeatureVectors]:
        """The vectors of each part. With `learn` they are leaves, in which backward leaves its gradients."""
        made = []
        for bags in self._bags:
            pooled = rows(bags.positions, bags.offsets, bags.mode)
            vectors = pooled.view(self.samples, bags.width, pooled.shape[1])
            made.append(FeatureVectors(bags.part, vectors.requires_grad_(learn), bags.mask))
        return made

    def sums(self, unique: UniqueKeys, outputs: Sequence[FeatureVectors]) -> KeySums | None:
        """The gradient of each distinct key of all positions, from the outputs; None: the model used none of them."""
        given = [output.rows.grad is not None for output in outputs]
        if not any(given):
            return None
        if len(outputs) == 1:
            (bags,), (output,) = self._bags, outputs
            return KeySums(scatter(unique, _gradient(output), bags.offsets, bags.mode), None)
        gradients = [_scaled(bags, output) for bags, output in zip(self._bags, outputs, strict=True)]
        offsets, first = [], 0
        for bags, there in zip(self._bags, given, strict=True):
            offsets.append(_starts(bags, self._device) if there else torch.full((1,), first, device=self._device))
            first = bags.positions.stop
        offsets.append(torch.full((1,), first, device=self._device))
        sums = scatter(unique, torch.cat(gradients), torch.cat(offsets), "sum")
        return KeySums(sums, None if all(given) else self._used(unique, given))

    def _used(self, unique: UniqueKeys, given: Sequence[bool]) -> Tensor:
        used = torch.zeros(len(unique.inverse), dtype=torch.bool, device=self._device)
        for bags, there in zip(self._bags, given, strict=True):
            if there:
                used[unique.inverse[bags.positions].long()] = True
        return used


def _bags(part: FeatureBlock, positions: slice, bounds: Tensor | None, samples: int) -> _Bags:
    if part.bounds is None or bounds is None:
        return _Bags(part, positions, None, "sum", len(part.features), None)
    if part.kind == "bags":
        return _Bags(part, positions, bounds, part.pooling, len(part.features), None)
    longest = int(np.diff(part.bounds).max(initial=0))
    place, lengths = torch.arange(longest, device=bounds.device), bounds.diff()[:, None]
    starts = bounds[:-1, None] + torch.minimum(place, lengths)  # places behind the last id hold nothing
    offsets = torch.cat([starts.view(-1), bounds[-1:]])
    return _Bags(part, positions, offsets, "sum", longest, place < lengths)


def _starts(bags: _Bags, device: torch.device) -> Tensor:
    """Where each bag begins, among all ids of the table."""
    if bags.offsets is None:
        return torch.arange(bags.positions.start, bags.positions.stop, device=device)
    starts: Tensor = bags.offsets[:-1] + bags.positions.start
    return starts


def _gradient(output: FeatureVectors) -> Tensor:
    """[bags, dim]. All ids of a part that the model did not use are in one bag, whose gradient is 0."""
    gradient, dim = output.rows.grad, output.rows.shape[-1]
    if gradient is None:
        return torch.zeros(1, dim, device=output.rows.device)
    return gradient.contiguous().view(-1, dim)


def _scaled(bags: _Bags, output: FeatureVectors) -> Tensor:
    """The gradient of each id of a bag."""
    gradient = _gradient(output)
    if bags.mode == "sum" or bags.offsets is None or output.rows.grad is None:
        return gradient
    return gradient.div(bags.offsets.diff().clamp(min=1).float()[:, None])
