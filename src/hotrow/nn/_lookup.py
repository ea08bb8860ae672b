"""One table's part of a forward call: rows looked up once, pooled into the outputs, gradients kept until `step`.

Ids have no gradient, so autograd would never call back. An empty tensor that requires one, the anchor, goes through
`PooledRows` beside them; nothing ever flows into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from hotrow.nn._bags import I64, Bags, Mode
from hotrow.store import Applied, LookupPlan, RamTier, find_or_first, kernels

F32 = NDArray[np.float32]
U32 = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of forward, whose samples count once however many tables and backward passes it has."""

    samples: int
    samples_before: int = 0  # applied by all steps before it


@dataclass(slots=True, eq=False)
class Lookup:
    """The ids of all features that share a table. `stash` takes the gradients; None: no row is made or changed."""

    tier: RamTier
    bags: Bags
    sizes: list[int]  # bags of each feature, in order
    mode: Mode
    threads: int
    call: Call
    stash: "list[Pending] | None"
    batch: LookupPlan = field(init=False)
    rows: F32 | None = field(init=False, default=None)  # of the unique ids, kept for the gradient of the weights

    def outputs(self) -> tuple[Tensor, ...]:
        """[bags, dim] for each feature."""
        pooled = torch.empty(self.bags.count, self.tier.dim, dtype=torch.float32, device="cpu")
        self._fill(pooled.numpy())
        if len(self.sizes) == 1:
            return (pooled,)
        # Through numpy, because autograd forbids writes into one of several views; arrays of numpy only share memory.
        parts = np.split(pooled.numpy(), np.cumsum(self.sizes[:-1]))
        return tuple(torch.from_numpy(part) for part in parts)

    def remember(self, gradient: Tensor, weights: Tensor | None) -> None:
        """Keep the gradient of all outputs, [bags, dim], for `step`."""
        if self.stash is not None:  # copies: the caller may write to the tensors before `step`
            key_weights = None if weights is None else weights.detach().clone().contiguous().numpy()
            self.stash.append(Pending(self, gradient.clone(memory_format=torch.contiguous_format), key_weights))

    def weight_gradient(self, gradient: Tensor) -> Tensor:
        """d loss / d weights, [ids]: each id's row times the gradient of its bag."""
        assert self.rows is not None
        out = torch.empty(len(self.bags.keys), dtype=torch.float32, device="cpu")
        bounds = self.bags.all_bounds()
        grad = gradient.contiguous().numpy()
        kernels.pool_weight_gradient(grad, self.rows, self.batch.inverse, bounds, out.numpy(), self.threads)
        return out

    def _fill(self, out: F32) -> None:
        keys, weights = self.bags.keys, self.bags.weights
        if self.bags.bounds is None and weights is None:  # one id per bag: straight into the output
            self.batch = self._read(keys, out, per="key")
            return
        self.batch = self.tier.batch(keys)
        rows = np.empty((self.batch.unique, self.tier.dim), np.float32)
        self._read(self.batch, rows, per="unique")
        factors = None if weights is None else weights.detach().contiguous().numpy()
        kernels.pool(rows, self.batch.inverse, self.bags.all_bounds(), factors, self.mode, out, self.threads)
        self.rows = None if weights is None else rows

    def _read(self, keys: LookupPlan | I64, out: F32, *, per: Literal["key", "unique"]) -> LookupPlan:
        if self.stash is not None:
            return self.tier.find_or_init(keys, out, per=per, samples=self.call.samples_before)
        return find_or_first(self.tier, keys, out, per=per)


class PooledRows(torch.autograd.Function):
    """Outputs of a lookup, differentiable: backward keeps the gradient for `step` and gives the weights theirs."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, weights: Tensor | None, lookup: Lookup) -> tuple[Tensor, ...]:
        ctx.lookup = lookup
        ctx.save_for_backward(weights)  # so that torch notices a second backward, or weights written over
        return lookup.outputs()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor | None, None]:
        (weights,) = ctx.saved_tensors
        gradient = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
        ctx.lookup.remember(gradient, weights)
        return None, ctx.lookup.weight_gradient(gradient) if ctx.needs_input_grad[1] else None, None


@dataclass(slots=True, eq=False)
class Pending:
    """A gradient that waits for `step`."""

    lookup: Lookup
    gradient: Tensor  # [bags, dim]
    weights: F32 | None  # [ids], as they were in the forward call

    def bag_of_key(self) -> U32 | None:
        """Which row of the gradient each id takes; None: the row with its own number."""
        bags = self.lookup.bags
        return None if bags.bounds is None else np.repeat(np.arange(bags.count, dtype=np.uint32), bags.lengths())

    def key_weights(self) -> F32 | None:
        """What each id's gradient is multiplied by; None: 1."""
        bags = self.lookup.bags
        if self.lookup.mode == "sum" or bags.bounds is None:
            return self.weights
        lengths = bags.lengths()
        return np.repeat(np.float32(1) / np.maximum(lengths, 1).astype(np.float32), lengths)


def run(lookup: Lookup) -> tuple[Tensor, ...]:
    """The outputs of a lookup, connected to the graph where gradients are needed."""
    weights = lookup.bags.weights
    weights_learn = torch.is_grad_enabled() and weights is not None and weights.requires_grad
    if lookup.stash is None and not weights_learn:
        return lookup.outputs()
    anchor = torch.empty(0, dtype=torch.float32, device="cpu", requires_grad=True)
    outputs: tuple[Tensor, ...] = PooledRows.apply(anchor, weights, lookup)  # type: ignore[no-untyped-call]
    return outputs


def apply_stash(tier: RamTier, stash: Sequence[Pending], *, step: int, samples: int) -> Applied:
    """All that waits for one table in a single update: an id in several batches moves once, by the sum."""
    waiting = _once_per_lookup(stash)
    if not waiting:
        return Applied(rows=0, refused=0, absent=0)
    if len(waiting) == 1:
        only = waiting[0]
        keys: LookupPlan | NDArray[np.uint64] = only.lookup.batch  # its slots are still known
        gradients, rows, weights = only.gradient.numpy(), only.bag_of_key(), only.key_weights()
    else:
        keys = np.concatenate([p.lookup.batch.keys[p.lookup.batch.inverse] for p in waiting])
        gradients = torch.cat([p.gradient for p in waiting]).numpy()
        rows, weights = _joined_rows(waiting), _joined_weights(waiting)
    return tier.apply(keys, gradients, step=step, samples=samples, weights=weights, rows=rows)


def _once_per_lookup(stash: Sequence[Pending]) -> list[Pending]:
    """Backward may run twice through one lookup (retain_graph): its gradients add up."""
    sums: dict[Lookup, Pending] = {}
    for new in stash:
        old = sums.get(new.lookup)
        sums[new.lookup] = new if old is None else Pending(new.lookup, old.gradient + new.gradient, new.weights)
    return list(sums.values())


def _joined_rows(waiting: Sequence[Pending]) -> U32:
    parts, start = [], np.uint32(0)
    for pending in waiting:
        rows = pending.bag_of_key()
        parts.append(start + (np.arange(len(pending.gradient), dtype=np.uint32) if rows is None else rows))
        start += np.uint32(len(pending.gradient))
    return np.concatenate(parts)


def _joined_weights(waiting: Sequence[Pending]) -> F32 | None:
    parts = [pending.key_weights() for pending in waiting]
    if all(part is None for part in parts):
        return None
    sizes = [len(pending.lookup.bags.keys) for pending in waiting]
    return np.concatenate(
        [np.ones(size, np.float32) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    )
