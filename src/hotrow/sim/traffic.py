"""Messages between workers and servers in virtual time: queues, pauses, and messages lost, delayed or duplicated."""

from collections.abc import Callable

from hotrow.sim.clock import Clock
from hotrow.sim.faults import Fates, Faults
from hotrow.sim.network import Link, Network
from hotrow.sim.tasks import Message


class Traffic:
    """All messages of a cluster with its servers. `deliver` is called for every copy of a message that arrives."""

    def __init__(
        self, clock: Clock, network: Network, faults: Faults, seed: int, deliver: Callable[[Message], None]
    ) -> None:
        pauses = faults.silent
        self._clock, self._deliver = clock, deliver
        self._down, self._up = Link(network, pauses), Link(network, pauses)
        self._latency_s = network.latency_s
        self._messages = faults.messages
        self._fates = Fates(faults.messages, seed) if faults.messages.at_work else None
        self.answers_at_once = not pauses and self._fates is None
        self.takes_no_time = self.answers_at_once and not self._latency_s and not self._up.takes_time

    def answered_s(self, grant: int) -> float:
        """When the servers read the request of a worker that is granted now."""
        delay_s = self._fates.pull_delay_s(grant) if self._fates else 0.0
        return self._down.open_s(self._clock.now_s + delay_s)

    def down_s(self, size: int) -> float:
        """When bytes that the servers send now reach the worker."""
        return self._down.take(self._clock.now_s, size) + self._latency_s

    def send(self, message: Message) -> None:
        """Send gradients of a worker, or a message of its caches, now."""
        now_s = self._clock.now_s
        if self._fates is None:
            message.copied(1)
            self._enter_at(now_s + self._latency_s, message)
            return
        message.attempts += 1
        delays = self._fates.copies(*message.fate, message.attempts)
        message.copied(len(delays))
        for delay_s in delays:
            self._enter_at(now_s + self._latency_s + delay_s, message)
        if not delays or delays[0] > self._messages.timeout_s:  # not for a queue: the servers answer
            self._clock.at(now_s + self._messages.timeout_s, self._again, message)

    def _again(self, message: Message) -> None:
        """Send a message again without an acknowledgement; not from dead or unreachable workers."""
        if not message.delivered and message.sender.reachable:
            self.send(message)

    def _enter_at(self, time_s: float, message: Message) -> None:
        if time_s > self._clock.now_s:
            self._clock.at(time_s, self._enter, message)
        else:
            self._enter(message)

    def _enter(self, message: Message) -> None:
        """Queue a message at the servers."""
        end_s = self._up.take(self._clock.now_s, message.size)
        if end_s > self._clock.now_s:
            self._clock.at(end_s, self._deliver, message)
        else:
            self._deliver(message)
