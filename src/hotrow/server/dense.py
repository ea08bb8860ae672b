"""Dense parameters and how a step changes them: values in, values out.

Gradients of a step are combined as sum(weight * samples * gradient) / sum(samples) over all its parts, those of weight
0 included. Where all parts have weight 0 nothing is changed, as with ids. A policy with `movement` weighs every tensor
of a part separately; buffers (running means) of a part count if any of its gradients does.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.modes.base import Apply
from hotrow.staleness import Staleness
from hotrow.staleness.weights import WeightRange


class DenseParameters:
    """Parameters with their optimizer, and buffers."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        buffers: Iterable[Tensor],
        optimizer: Optimizer | None,
        *,
        clip: float | None = None,
    ) -> None:
        self.parameters = [each for each in parameters if each.requires_grad]
        self.buffers = list(buffers)
        self.optimizer = optimizer  # None: the model has no parameters of its own
        self.late: Staleness | None = None  # of the mode
        self.clip = clip
        self.base_lrs = [group["lr"] for group in optimizer.param_groups] if optimizer else []
        self._changes: list[float] | None = None  # of each parameter at the last step, where the policy needs it

    def dense_step(
        self,
        effect: Apply,
        dense: Sequence[list[Tensor | None]],
        buffers: Sequence[list[Tensor] | None],
        samples: int,
        lr_scale: float,
    ) -> list[WeightRange] | None:
        """Perform a step with the gradients of its parts, and what each added to the buffers.

        Returns the weights of each part's gradients where they differ from the weight of the part.
        """
        late = self._late_by_movement
        weights = None if late is None or not self.parameters else self._tensor_weights(effect, late)
        spans = _spans(effect, dense, weights)
        self._take_buffers(effect, buffers, spans)
        if (optimizer := self.optimizer) is not None and any(greatest for _, greatest in spans):
            self._update(optimizer, self._combined(effect, dense, weights), samples, lr_scale)
        return None if weights is None else spans

    def _update(self, optimizer: Optimizer, combined: Sequence[Tensor | None], samples: int, lr_scale: float) -> None:
        for parameter, gradient in zip(self.parameters, combined, strict=True):
            parameter.grad = gradient
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        before = None if self._late_by_movement is None else [each.detach().clone() for each in self.parameters]
        if hasattr(optimizer, "set_samples"):
            optimizer.set_samples(samples)
        for group, base in zip(optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base * lr_scale
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if before is not None:
            self._changes = [
                float((now.detach() - old).norm()) for now, old in zip(self.parameters, before, strict=True)
            ]

    @property
    def _late_by_movement(self) -> Staleness | None:
        """The policy of the mode, where it follows the movement of parameters."""
        return self.late if self.late is not None and self.late.movement is not None else None

    def _combined(
        self, effect: Apply, dense: Sequence[list[Tensor | None]], weights: Sequence[Sequence[float]] | None
    ) -> list[Tensor | None]:
        whole = effect.samples
        if weights is None:
            return _sums(dense, [part.weight * part.samples / whole for part in effect.parts])
        pairs = list(zip(effect.parts, weights, strict=True))
        return [
            _sum([each[place] for each in dense], [own[place] * part.samples / whole for part, own in pairs])
            for place in range(len(self.parameters))
        ]

    def _tensor_weights(self, effect: Apply, late: Staleness) -> list[list[float]]:
        """By part and tensor: the discipline's weight, where a tensor that hardly moved counts as less stale."""
        changes = self._changes if self._changes is not None else [0.0] * len(self.parameters)
        ages = [max(0, effect.step - part.token) for part in effect.parts]
        return [[late.dense_weight(late.moved(age, change)) for change in changes] for age in ages]

    def _take_buffers(self, effect: Apply, added: Sequence[list[Tensor] | None], spans: Sequence[WeightRange]) -> None:
        """Move buffers by the mean of what workers added to theirs; integers as the last worker counted."""
        counted = [each for each, (_, greatest) in zip(added, spans, strict=True) if greatest]
        gathered = [each for each in counted if each is not None]
        if not gathered:
            return
        with torch.no_grad():
            for place, buffer in enumerate(self.buffers):
                theirs = [each[place] for each in gathered]
                if buffer.dtype == torch.bool:
                    buffer.logical_xor_(theirs[-1])
                else:
                    buffer.add_(torch.stack(theirs).mean(0) if buffer.is_floating_point() else theirs[-1])


def _spans(
    effect: Apply, dense: Sequence[list[Tensor | None]], weights: Sequence[Sequence[float]] | None
) -> list[WeightRange]:
    """The weights of each part's gradients. A part without gradients is weighed as if it had all."""
    if weights is None:
        return [(part.weight, part.weight) for part in effect.parts]
    spans = []
    for gradients, of_part in zip(dense, weights, strict=True):
        there = [weight for weight, each in zip(of_part, gradients, strict=True) if each is not None] or of_part
        spans.append((min(there), max(there)))
    return spans


def _sums(given: Sequence[list[Tensor | None]], given_shares: Sequence[float]) -> list[Tensor | None]:
    there = [(each, share) for each, share in zip(given, given_shares, strict=True) if share]  # 0 times NaN is NaN
    dense, shares = [each for each, _ in there], [share for _, share in there]
    if len(dense) == 1 and shares[0] == 1.0:
        return dense[0]
    if all(each is not None for gradients in dense for each in gradients):
        whole: list[list[Tensor]] = [[each for each in gradients if each is not None] for gradients in dense]
        total = [each * shares[0] for each in whole[0]]
        for gradients, share in zip(whole[1:], shares[1:], strict=True):
            for into, each in zip(total, gradients, strict=True):
                into.add_(each, alpha=share)
        return list(total)
    return [_sum([gradients[place] for gradients in dense], shares) for place in range(len(dense[0]))]


def _sum(gradients: Sequence[Tensor | None], shares: Sequence[float]) -> Tensor | None:
    there = [each * share for each, share in zip(gradients, shares, strict=True) if each is not None and share]
    return torch.stack(there).sum(0) if there else None
