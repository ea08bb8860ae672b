"""The work of a simulated batch: real gradients, or only sizes.

The cluster decides when parameters are read and when a step is applied. Gradients are computed at the moment of the
read, from the current parameters, and wait under their grant until the virtual time of their push.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from hotrow.modes.base import Apply, Grant, Group
from hotrow.server.core import ApplyResult
from hotrow.sim.caches import CacheSend
from hotrow.sim.leases import SimLease


class BatchBytes(NamedTuple):
    """The bytes that a batch transfers. Dense parameters are as large as their gradients."""

    bytes_down: int  # rows
    bytes_up_dense: int
    bytes_up_rows: int
    samples: int
    bytes_request: int = 0  # of a cache: changes of rows, clocks and keys

    @property
    def rows(self) -> int:
        """Bytes of rows and their gradients, both ways."""
        return self.bytes_down + self.bytes_up_rows + self.bytes_request


class SimWork(Protocol):
    """The computation of a cluster."""

    def pull_early(self, grant: Grant, lease: SimLease, in_hand: Sequence[SimLease]) -> int:
        """Look up the rows of a batch that no batch in hand has, before those are applied; returns their bytes.

        They are discarded where it is called again, or the whole batch is pulled.
        """

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        """Look up the current rows of a batch; with `rest`, those that were not read early. The bytes are of all."""

    def compute(self, grant: Grant) -> None:
        """Compute gradients of a pulled batch from the current dense parameters, and hold them under the grant.

        Called right after `pull`, except in Hybrid, which looks rows up before the dense step.
        """

    def arrive(self, grant: int, group: Group) -> None:
        """A copy of a push is at the servers, the first or another. It counts unless its grant was discarded."""

    def lose_shard(self, shard: int) -> None:
        """The process of a shard ended, and another one has its rows. Pushes that are parked there are lost."""

    def apply(self, effect: Apply, samples: int) -> ApplyResult | None:
        """Perform a step; returns its result, if anything was changed. `samples` counts all up to and including it."""

    def discard(self, grant: int) -> None:
        """Drop a batch, which may not have been pulled."""


@runtime_checkable
class CachingWork(SimWork, Protocol):
    """Computation on workers that cache rows. Messages of caches are sent and taken beside pulls and pushes.

    The order of a batch: `request`, then `take` at the servers, `pull` (which reads the reply), `receive`, `compute`,
    `push`.
    """

    def request(self, grant: Grant, lease: SimLease) -> CacheSend:
        """A worker begins a batch: what its caches request and write back."""

    def take(self, send: CacheSend) -> None:
        """A message is at the servers: its changes are added, unless they were before."""

    def receive(self, grant: int) -> None:
        """The reply is at the worker. Replies are received in the order of their requests."""

    def push(self, grant: int) -> None:
        """A batch is computed: its worker updates cached rows."""

    def flush(self, worker: int) -> CacheSend | None:
        """All changes of a worker that has no batch; None where there are none."""

    def lose_worker(self, worker: int) -> int:
        """A worker is gone; returns the rows whose changes are lost with its caches."""

    def take_counts(self) -> Mapping[str, int]:
        """What caches counted since the last call."""


class CountingWork:
    """Staleness and time only: sizes per batch and per sample, no gradients."""

    def __init__(self, dense_bytes: int = 0, row_bytes_per_sample: int = 0, shared_rows: float = 0.0) -> None:
        """`shared_rows`: the share of a batch's rows that the step before has too, so that they are not read early."""
        self._dense_bytes, self._row_bytes, self._shared_rows = dense_bytes, row_bytes_per_sample, shared_rows
        self._wires: dict[int, BatchBytes] = {}  # by samples

    def pull_early(self, grant: Grant, lease: SimLease, in_hand: Sequence[SimLease]) -> int:
        return round((1.0 - self._shared_rows) * self._row_bytes * lease.samples)

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        samples = lease.samples
        wire = self._wires.get(samples)
        if wire is None:
            rows = self._row_bytes * samples
            wire = self._wires[samples] = BatchBytes(rows, self._dense_bytes, rows, samples)
        return wire

    def compute(self, grant: Grant) -> None:
        """No effect."""

    def arrive(self, grant: int, group: Group) -> None:
        """No effect."""

    def lose_shard(self, shard: int) -> None:
        """No effect."""

    def apply(self, effect: Apply, samples: int) -> None:
        """Nothing changes."""

    def discard(self, grant: int) -> None:
        """No effect."""
