"""A trainer's exchanges in flight: lookups of batches that arrived, gradients of batches that are computed."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hotrow.client.pooled import InFlightExchange, InFlightPush, RemoteTables
from hotrow.data.batch import Batch
from hotrow.transport.messages import BatchRequest
from hotrow.transport.server import Request

AHEAD = 2  # lookups in flight; a further one may wait for a push, and goes in the same request


@dataclass(order=True, slots=True)
class PendingBatch:
    """A granted batch, from its arrival to its gradients. The one with the lowest token is next."""

    token: int
    number: int
    work: BatchRequest = field(compare=False)
    request: Request = field(compare=False)
    batch: Batch = field(compare=False)
    lookup: Any = field(compare=False)  # in the form of the client
    busy_s: float = field(compare=False)
    looked_step: int = field(compare=False)


class ExchangeQueue:
    """Lookups and pushes in flight. A lookup that is not urgent waits for a push."""

    def __init__(self, client: RemoteTables) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._waiting: deque[PendingBatch] = deque()
        self._sent: dict[int, InFlightExchange] = {}  # by grant, of batches that are not computed yet

    def look_up(self, task: PendingBatch, *, may_wait: bool) -> None:
        with self._lock:
            if may_wait and len(self._sent) >= AHEAD:
                self._waiting.append(task)
            else:
                self._send(None, task)

    def push(self, push: Any) -> InFlightPush:
        """Send gradients, and with them the lookup that has waited longest."""
        with self._lock:
            if not self._waiting:
                return self._client.push(push)
            sent = self._send(push, self._waiting[0])
            self._waiting.popleft()  # only now: one that could not be sent is still found by `needed`
            return sent

    def needed(self, task: PendingBatch) -> InFlightExchange:
        """The exchange of a lookup; sends it if it still waits for a push."""
        with self._lock:
            if task.number not in self._sent:
                self._send(None, task)
                self._waiting.remove(task)
            return self._sent.pop(task.number)

    def _send(self, push: Any, task: PendingBatch) -> InFlightExchange:
        sent = self._sent[task.number] = self._client.exchange(push, task.lookup)
        return sent
