"""The dense parameters that one of several shards holds in token modes, and the pushes parked for a step.

Tensors are spread over the shards by size; each shard has the optimizer of its own. Clipping needs the norm over all
tensors, so with it one shard holds them all.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from hotrow.errors import InputError
from hotrow.modes.base import Apply, GradientPart
from hotrow.server.dense import DenseParameters
from hotrow.server.pushes import OVERHEAD, PushBuffer
from hotrow.spec import whole_number
from hotrow.transport import messages


@dataclass(slots=True, eq=False)
class DensePush:
    """The gradients of one batch for one shard."""

    gradients: list[Tensor | None]
    buffers: list[Tensor] | None

    @property
    def nbytes(self) -> int:
        there = [each for each in self.gradients if each is not None] + (self.buffers or [])
        return OVERHEAD + sum(each.numel() * each.element_size() for each in there)


def spread(sizes: Sequence[int], servers: int, *, together: bool = False) -> list[list[int]]:
    """The tensors of each shard: the largest first, each to the shard with the fewest bytes; in the model's order."""
    held: list[list[int]] = [[] for _ in range(servers)]
    loads = [0] * servers
    for place in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        least = 0 if together else min(range(servers), key=lambda each: (loads[each], each))
        held[least].append(place)
        loads[least] += sizes[place]
    return [sorted(each) for each in held]


class DenseShard(DenseParameters):
    """Some tensors of a model. It works on a copy of the model, and leaves the other tensors of the copy alone."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        places: Sequence[int],
        *,
        buffers: bool,
        clip: float | None = None,
        parked_bytes: int = 2**30,
    ) -> None:
        """`parked_bytes` bounds the pushes that wait for their step."""
        self.model, whole = deepcopy((model, optimizer))
        every = [each for each in self.model.parameters() if each.requires_grad]
        mine = [every[place] for place in places]
        self.whole_optimizer = whole
        self._gets_pushes = bool(mine) or buffers  # trainers send none to a shard that holds nothing
        super().__init__(mine, self.model.buffers() if buffers else (), whole if mine else None, clip=clip)
        most = whole_number("parked_bytes", parked_bytes, 1, 2**62)
        self.parked: PushBuffer[DensePush] = PushBuffer(most, lambda push: push.nbytes)

    def apply(self, apply: messages.ApplyOrder) -> list[messages.PartWeights]:
        """Perform a step with the parked pushes of its grants; returns weights that differ from the order's."""
        if not self._gets_pushes:
            return []
        grants = [part.grant for part in apply.parts]
        if missing := [grant for grant in grants if self.parked.find(grant) is None]:
            raise InputError(f"grant={missing[0]}: its dense gradients never arrived")
        pushes = [push for push in map(self.parked.take, grants) if push is not None]
        parts = tuple(
            GradientPart(each.grant, each.token, each.pulled_step, each.samples, each.weight) for each in apply.parts
        )
        effect = Apply("dense", apply.step, parts)
        dense, buffers = [push.gradients for push in pushes], [push.buffers for push in pushes]
        spans = self.dense_step(effect, dense, buffers, apply.samples, apply.lr_scale)
        if spans is None:
            return []
        return [messages.PartWeights(grant, *span) for grant, span in zip(grants, spans, strict=True)]

    def pulled(self) -> list[Tensor]:
        """The current parameters and buffers: copies, since the next step may change them."""
        return [each.detach().clone() for each in (*self.parameters, *self.buffers)]
