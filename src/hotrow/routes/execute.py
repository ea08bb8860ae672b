"""Performs a plan by copies that the caller gives. The copies themselves know nothing of routes."""

from collections.abc import Callable
from typing import Protocol

from hotrow.routes.plan import Block, RoutePlan


class PeerCopy(Protocol):
    """Copies bytes of a block from one GPU to another; it may return before they have arrived.

    On `src` the block is among the bytes to send where `src` is the block's source, else in its forward buffer. On
    `dst` it goes to the received bytes where `dst` is the block's target, else to its forward buffer.
    """

    def __call__(self, src: int, dst: int, block: Block, size: int, /) -> None: ...


def execute(plan: RoutePlan, copy: PeerCopy, wait: Callable[[], None] | None = None) -> None:
    """Start all copies of a phase, then `wait` for all of them: phase 2 reads what phase 1 has written."""
    for phase in plan.phases:
        for each in phase.copies:
            copy(each.src, each.dst, each.block, each.size)
        if wait is not None and phase.copies:
            wait()
