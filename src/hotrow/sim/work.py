"""What is computed while virtual time passes: real gradients, or nothing but sizes.

The cluster says when parameters are read and when a step is applied. Gradients are computed at the moment of the read,
from parameters as they stand, and wait under their grant until virtual time brings their push.
"""

from typing import NamedTuple, Protocol

from hotrow.modes.base import Apply, Grant
from hotrow.server.core import ApplyResult
from hotrow.sim.leases import SimLease


class BatchBytes(NamedTuple):
    """What a batch sends, in bytes. Dense parameters come down as large as their gradients go up."""

    bytes_down: int  # rows
    bytes_up_dense: int
    bytes_up_rows: int
    samples: int


class SimWork(Protocol):
    """The computing side of a cluster."""

    def pull(self, grant: Grant, lease: SimLease) -> BatchBytes:
        """Look up the rows of a batch, as they stand."""

    def compute(self, grant: Grant) -> None:
        """Gradients of a batch that was pulled, from dense parameters as they stand; kept under the grant.

        Comes right after `pull`, but for Hybrid, which looks rows up ahead of the dense step.
        """

    def apply(self, effect: Apply, samples: int) -> ApplyResult | None:
        """Perform a step; what it did, where anything was changed. `samples` counts all up to and including it."""

    def discard(self, grant: int) -> None:
        """Forget a batch: it was dropped. It may not even have been pulled."""


class CountingWork:
    """Staleness and time only: sizes per batch and per sample, no gradients."""

    def __init__(self, dense_bytes: int = 0, row_bytes_per_sample: int = 0) -> None:
        self._dense_bytes, self._row_bytes = dense_bytes, row_bytes_per_sample
        self._wires: dict[int, BatchBytes] = {}  # by samples

    def pull(self, grant: Grant, lease: SimLease) -> BatchBytes:
        samples = lease.samples
        wire = self._wires.get(samples)
        if wire is None:
            rows = self._row_bytes * samples
            wire = self._wires[samples] = BatchBytes(rows, self._dense_bytes, rows, samples)
        return wire

    def compute(self, grant: Grant) -> None:
        """Nothing is computed."""

    def apply(self, effect: Apply, samples: int) -> None:
        """Nothing changes."""

    def discard(self, grant: int) -> None:
        """Nothing is kept."""
