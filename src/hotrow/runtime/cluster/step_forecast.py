"""What is known of a step before it is applied: its batches, and the samples trained before it.

With look-ahead a step is granted while the one before is open. Steps are granted as a whole, so the samples up to it,
and with them its learning rate, are known then.
"""

from collections.abc import Callable

from hotrow.modes.base import Grant, Group
from hotrow.transport.messages import ApplyOrder, OrderPart


class StepForecast:
    """The granted batches of steps that are not applied."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._granted: dict[int, dict[int, int]] = {}  # by step: grant -> samples

    def grant(self, grant: Grant, samples: int) -> None:
        """A batch was granted."""
        self._granted.setdefault(grant.token, {})[grant.grant] = samples

    def applied(self, step: int) -> None:
        """All steps before this one are applied."""
        self._granted = {token: granted for token, granted in self._granted.items() if token >= step}

    @property
    def is_open(self) -> bool:
        """Whether a batch was granted whose step is not applied."""
        return bool(self._granted)

    def samples_before(self, step: int, trained: int) -> int:
        """Samples up to a step, of which `trained` are applied."""
        return trained + sum(sum(granted.values()) for token, granted in self._granted.items() if token < step)

    def order(self, step: int, trained: int, lr_scale: Callable[[int], float]) -> ApplyOrder:
        """A step whose batches are all granted, as it will be ordered."""
        granted = self._granted[step]
        before = self.samples_before(step, trained)
        parts = tuple(OrderPart(grant, step, step, samples, 1.0) for grant, samples in sorted(granted.items()))
        return ApplyOrder(self._group, step, before + sum(granted.values()), lr_scale(before), parts)
