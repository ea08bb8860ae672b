"""The dense parameters that one of several shards holds in token modes, and the pushes parked for a step.

Tensors are spread over the shards by size; each shard has the optimizer of its own. Clipping needs the norm over all
tensors, so with it one shard holds them all.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
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

    def apply(self, apply: messages.ApplyOrder, *, restarted: bool = False) -> tuple[list[messages.PartWeights], int]:
        """Perform a step with the parked pushes of its grants; returns weights that differ from the order's.

        With `restarted` pushes may be lost with the process before: returned is their number, too.
        """
        if not self._gets_pushes:
            return [], 0
        grants = [part.grant for part in apply.parts]
        missing = [grant for grant in grants if self.parked.find(grant) is None]
        if missing and not restarted:
            raise InputError(f"grant={missing[0]}: its dense gradients never arrived")
        lost = DensePush([None] * len(self.parameters), None)
        pushes = [self.parked.take(grant) or lost for grant in grants]
        if len(missing) == len(grants):
            return [], len(missing)
        parts = tuple(
            GradientPart(each.grant, each.token, each.pulled_step, each.samples, each.weight) for each in apply.parts
        )
        effect = Apply("dense", apply.step, parts)
        dense, buffers = [push.gradients for push in pushes], [push.buffers for push in pushes]
        spans = self.dense_step(effect, dense, buffers, apply.samples, apply.lr_scale)
        if spans is None:
            return [], len(missing)
        return [messages.PartWeights(grant, *span) for grant, span in zip(grants, spans, strict=True)], len(missing)

    def held(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a process that takes the place of this one needs: tensors by name, and all else as JSON."""
        tensors: dict[str, Tensor] = {f"parameter.{place}": each for place, each in enumerate(self.parameters)}
        tensors |= {f"buffer.{place}": each for place, each in enumerate(self.buffers)}
        plain: dict[str, dict[str, Any]] = {}
        for place, state in enumerate(self._states()):
            for name, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"state.{place}.{name}"] = value
                else:
                    plain.setdefault(str(place), {})[name] = value
        return tensors, {"plain": plain, "changes": self._changes}

    def take_held(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Continue from what a process before has held."""
        with torch.no_grad():
            for kind, own in (("parameter", self.parameters), ("buffer", self.buffers)):
                for place, each in enumerate(own):
                    each.copy_(tensors[f"{kind}.{place}"])
        states: dict[int, dict[str, Any]] = {int(place): dict(plain) for place, plain in facts["plain"].items()}
        for name, value in tensors.items():
            if name.startswith("state."):
                _, number, entry = name.split(".", 2)
                states.setdefault(int(number), {})[entry] = value
        if self.optimizer is not None:
            for place, state in states.items():
                self.optimizer.state[self.parameters[place]] = state
        self._changes = facts["changes"]

    def _states(self) -> list[dict[str, Any]]:
        optimizer = self.optimizer
        return [] if optimizer is None else [optimizer.state.get(each, {}) for each in self.parameters]

    def pulled(self) -> list[Tensor]:
        """The current parameters and buffers: copies, since the next step may change them."""
        return [each.detach().clone() for each in (*self.parameters, *self.buffers)]
