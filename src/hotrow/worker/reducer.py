"""Sums the gradients of all ranks bucket by bucket while backward runs, as DDP does, for uneven steps.

DDP needs one backward on every rank and step, and divides by the ranks. Here a rank may have several batches in a step
or none, and the sum is divided by the samples of all: the step is that of one large batch. A parameter that no rank
used has no gradient, as in one process, so optimizers leave it alone. One number of the first rank is broadcast with
the sum, since ranks with different learning rates would diverge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hotrow.transport.errors import RanksLost

BUCKET_BYTES = 4 << 20  # enough to fill a message, small enough to begin early


@dataclass(slots=True, eq=False)
class _Bucket:
    flat: Tensor
    places: list[int]  # of its parameters
    views: list[Tensor]
    missing: int = 0  # parameters whose gradient is not complete


class Reducer:
    """The gradients of one model on one rank; all ranks construct it with the same parameters in the same order.

    A step: `begin`, then backward of loss * samples / unit for each batch, the last one after `last`, then `finish`. A
    rank without a batch calls `begin` and `finish`.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        group: dist.ProcessGroup | None = None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._parameters = list(parameters)
        self._group = group
        self._buckets = _buckets(self._parameters, bucket_bytes)
        self._bucket_of = {place: number for number, each in enumerate(self._buckets) for place in each.places}
        self._used = torch.zeros(len(self._parameters), dtype=torch.int64)
        self._sent: list[dist.Work] = []  # of the first buckets, in flight
        self._last = False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(partial(self._complete, place))  # type: ignore[no-untyped-call]
            for place, parameter in enumerate(self._parameters)
        ]

    def begin(self) -> None:
        """Start a step: gradients are summed from zero, in the buckets themselves."""
        self._used.zero_()
        self._sent, self._last = [], False
        for bucket in self._buckets:
            bucket.flat.zero_()
            bucket.missing = len(bucket.places)
            for place, view in zip(bucket.places, bucket.views, strict=True):
                self._parameters[place].grad = view

    def last(self) -> None:
        """The next backward is this rank's last in the step: complete buckets are sent at once."""
        self._last = True

    def finish(self, samples: int, broadcast: float = 1.0, unit: int = 1) -> tuple[int, float]:
        """Wait for the sum over all ranks and divide it by all samples; returns these, and `broadcast` of the first
        rank.
        """
        while len(self._sent) < len(self._buckets):
            self._send()
        own = broadcast if dist.get_rank(self._group) == 0 else 0.0
        facts = torch.cat([self._used.double(), torch.tensor([samples, own], dtype=torch.float64)])
        dist.all_reduce(facts, group=self._group)
        *used, whole, agreed = facts.tolist()
        for bucket, work in zip(self._buckets, self._sent, strict=True):
            work.wait()
            bucket.flat.mul_(unit / max(whole, 1))
        for parameter, users in zip(self._parameters, used, strict=True):
            if not users:
                parameter.grad = None
        return int(whole), agreed

    def close(self) -> None:
        """Remove the hooks from the parameters, and drop what is in flight: it holds the group."""
        for hook in self._hooks:
            hook.remove()
        self._sent = []
        for parameter in self._parameters:
            parameter.grad = None

    def _complete(self, place: int, _: Tensor) -> None:
        """A parameter's gradient of one backward is complete."""
        self._used[place] = 1
        if not self._last:
            return
        self._buckets[self._bucket_of[place]].missing -= 1
        while len(self._sent) < len(self._buckets) and self._buckets[len(self._sent)].missing == 0:
            self._send()  # in the same order on every rank

    def _send(self) -> None:
        bucket = self._buckets[len(self._sent)]
        try:
            self._sent.append(dist.all_reduce(bucket.flat, group=self._group, async_op=True))
        except RuntimeError as error:  # told apart from an error of the model, whose backward runs
            raise RanksLost(f"the ranks cannot be reached: {error}") from error


def _buckets(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> list[_Bucket]:
    """From the last parameter to the first, as backward completes them; one type and device in each."""
    places: list[list[int]] = []
    room = 0
    for place in range(len(parameters) - 1, -1, -1):
        parameter = parameters[place]
        size = parameter.numel() * parameter.element_size()
        before = parameters[places[-1][-1]] if places else None
        alike = before is not None and (before.dtype, before.device) == (parameter.dtype, parameter.device)
        if not alike or size > room:
            places.append([])
            room = bucket_bytes
        places[-1].append(place)
        room -= size
    return [_bucket(parameters, each) for each in places]


def _bucket(parameters: Sequence[nn.Parameter], places: list[int]) -> _Bucket:
    first = parameters[places[0]]
    flat = torch.zeros(sum(parameters[place].numel() for place in places), dtype=first.dtype, device=first.device)
    pieces = torch.split(flat, [parameters[place].numel() for place in places])
    views = [piece.view_as(parameters[place]) for piece, place in zip(pieces, places, strict=True)]
    return _Bucket(flat, places, views)
