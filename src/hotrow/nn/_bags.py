"""What a caller hands to an EmbeddingBag, checked and made plain: keys, bounds and weights on the CPU, padding gone.

Nothing here touches a table, so an input that is refused has changed nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.errors import InputError

Mode = Literal["mean", "sum"]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BagRules:
    """How an EmbeddingBag reads its input."""

    mode: Mode
    padding_idx: int | None  # as the signed number with the id's bits
    include_last_offset: bool


@dataclass(frozen=True, slots=True)
class Bags:
    """N ids in B bags; bag i holds the ids from bounds[i] to bounds[i + 1]."""

    keys: I64  # [N]
    bounds: I64 | None  # [B + 1]; None: one id in every bag, which needs no pooling
    weights: Tensor | None  # float32 [N], still tied to the caller's graph
    device: torch.device  # where the ids came from and the output goes

    @property
    def count(self) -> int:
        """B, the number of bags."""
        return len(self.keys) if self.bounds is None else len(self.bounds) - 1

    def all_bounds(self) -> I64:
        """The bounds, spelled out also where every bag has one id."""
        return np.arange(len(self.keys) + 1) if self.bounds is None else self.bounds

    def lengths(self) -> I64:
        """Ids in each bag, [B]."""
        return np.diff(self.all_bounds())


def read_bags(where: str, ids: Tensor, offsets: Tensor | None, weights: Tensor | None, rules: BagRules) -> Bags:
    """Check one feature's input; `where` opens the sentence that refuses it."""
    keys = _keys(where, ids)
    if ids.dim() == 2:
        if offsets is not None:
            raise InputError(f"{where}: offsets given with 2-D ids: every row is a bag already, leave offsets out")
        bounds = np.arange(ids.shape[0] + 1) * ids.shape[1]
    else:
        bounds = _bounds(where, offsets, len(keys), rules)
    if weights is not None:
        weights = _weights(where, weights, ids, rules)
    if rules.padding_idx is not None:
        keys, bounds, weights = _without_padding(keys, bounds, weights, rules.padding_idx)
    single = len(keys) == len(bounds) - 1 and bool((np.diff(bounds) == 1).all())
    return Bags(keys, None if single else bounds, weights, ids.device)


def joined(bags: Sequence[Bags]) -> Bags:
    """Features that share a table, one behind the other, so that they are looked up as one batch."""
    if len(bags) == 1:
        return bags[0]
    keys = np.concatenate([part.keys for part in bags])
    bounds = None
    if any(part.bounds is not None for part in bags):
        bounds = np.concatenate([np.zeros(1, np.int64), *(part.lengths() for part in bags)]).cumsum()
    weights = None
    if any(part.weights is not None for part in bags):
        weights = torch.cat(
            [
                torch.ones(len(p.keys), dtype=torch.float32, device="cpu") if p.weights is None else p.weights
                for p in bags
            ]
        )
    return Bags(keys, bounds, weights, bags[0].device)


def signed(number: int) -> int:
    """An id from 0 to 2**64 - 1 as the int64 with the same bits; negative numbers are such int64 already."""
    return number - 2**64 if number >= 2**63 else number


def _keys(where: str, ids: Tensor) -> I64:
    if not isinstance(ids, Tensor):
        raise InputError(f"{where}: ids is a {type(ids).__name__}: give a torch.Tensor")
    if ids.dtype not in (torch.int64, torch.int32, torch.uint64):
        raise InputError(f"{where}: ids.dtype={ids.dtype}: must be int64, int32 or uint64")
    if ids.dim() not in (1, 2):
        raise InputError(f"{where}: ids.shape={tuple(ids.shape)}: must be 1-D with offsets, or 2-D (bags, ids)")
    bits = ids.view(torch.int64) if ids.dtype == torch.uint64 else ids
    flat: I64 = bits.detach().to("cpu", torch.int64).reshape(-1).contiguous().numpy()
    return flat


def _bounds(where: str, offsets: Tensor | None, count: int, rules: BagRules) -> I64:
    if offsets is None:
        raise InputError(f"{where}: offsets is missing: 1-D ids need the start of every bag; or give 2-D ids")
    if not isinstance(offsets, Tensor) or offsets.dtype not in (torch.int64, torch.int32) or offsets.dim() != 1:
        given = f"{offsets.dtype} {tuple(offsets.shape)}" if isinstance(offsets, Tensor) else type(offsets).__name__
        raise InputError(f"{where}: offsets is {given}: must be a 1-D tensor of int64 or int32")
    starts: I64 = offsets.detach().to("cpu", torch.int64).numpy()
    if rules.include_last_offset and (len(starts) == 0 or starts[-1] != count):
        last = starts[-1] if len(starts) else "missing"
        raise InputError(f"{where}: the last offset is {last}: include_last_offset makes it the number of ids, {count}")
    bounds = starts.copy() if rules.include_last_offset else np.append(starts, count)  # never the caller's memory
    if bounds[0] != 0:
        raise InputError(f"{where}: the first bag starts at {bounds[0]}: offsets must start with 0")
    falls = np.flatnonzero(np.diff(bounds) < 0)
    if len(falls):
        at = int(falls[0])
        raise InputError(f"{where}: offsets[{at}]={bounds[at]} and the bag ends at {bounds[at + 1]}: must not fall")
    return bounds


def _weights(where: str, weights: Tensor, ids: Tensor, rules: BagRules) -> Tensor:
    if rules.mode != "sum":
        raise InputError(f"{where}: per_sample_weights with mode={rules.mode!r}: they need mode='sum'")
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        given = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise InputError(f"{where}: per_sample_weights is {given}: must be a tensor of floats")
    if weights.shape != ids.shape:
        raise InputError(
            f"{where}: per_sample_weights.shape={tuple(weights.shape)}: must be that of the ids, {tuple(ids.shape)}"
        )
    return weights.reshape(-1).to("cpu", torch.float32)


def _without_padding(keys: I64, bounds: I64, weights: Tensor | None, padding: int) -> tuple[I64, I64, Tensor | None]:
    keep = keys != padding
    if keep.all():
        return keys, bounds, weights
    kept_before = np.concatenate([np.zeros(1, np.int64), keep.cumsum()])
    return keys[keep], kept_before[bounds], None if weights is None else weights[torch.from_numpy(keep)]
