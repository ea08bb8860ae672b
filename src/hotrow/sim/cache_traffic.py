"""Messages of caches in virtual time: requests and flushes arrive in the order in which their worker sent them.

A connection keeps this order: a message that is lost, and sent again after a timeout, holds back those behind it. A
worker that cannot be reached sends nothing again, so what it sent behind a lost message never arrives.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from hotrow.sim.caches import CacheSend
from hotrow.sim.clock import Clock
from hotrow.sim.meter import SimMeter
from hotrow.sim.tasks import SimTask, Worker
from hotrow.sim.traffic import Traffic
from hotrow.sim.work import CachingWork

REQUEST, FLUSH = 3, 4  # kinds of messages, beside those of pushes


@dataclass(slots=True, eq=False)
class CacheMessage:
    """A request, or without a task a flush, and its copies."""

    worker: Worker
    send: CacheSend
    task: SimTask | None
    number: int  # of its kind
    place: int  # among all messages of its worker
    size: int
    delivered: bool = False
    attempts: int = 0
    on_the_way: int = 0  # copies

    @property
    def sender(self) -> Worker:
        """The worker."""
        return self.worker

    @property
    def fate(self) -> tuple[int, int]:
        """By grant, or the number of the flush."""
        return self.number, FLUSH if self.task is None else REQUEST

    def copied(self, copies: int) -> None:
        """So many copies more."""
        self.on_the_way += copies

    @property
    def arrives(self) -> bool:
        """Whether it arrived or will, also where its worker sends nothing again."""
        return self.delivered or self.on_the_way > 0


@dataclass(slots=True)
class Channel:
    """The messages of one worker, from a start to its crash."""

    sent: int = 0
    taken: int = 0  # by the servers, in order
    open: dict[int, CacheMessage] = field(default_factory=dict)  # by place: not taken yet
    arrived: set[int] = field(default_factory=set)  # places of open messages

    def doomed(self) -> list[CacheMessage]:
        """Messages that are never taken, if the worker sends nothing again: the first that is lost, and all behind."""
        in_order = [self.open[place] for place in sorted(self.open)]
        first = next((place for place, message in enumerate(in_order) if not message.arrives), len(in_order))
        return in_order[first:]


class CacheTraffic:
    """All messages of caches. `read` is called when the request of a batch is at the servers."""

    def __init__(
        self,
        clock: Clock,
        traffic: Traffic,
        work: CachingWork,
        meter: SimMeter,
        latency_s: float,
        read: Callable[[SimTask], None],
    ) -> None:
        self._clock, self._traffic, self._work, self._meter, self._read = clock, traffic, work, meter, read
        self._latency_s = latency_s
        self._channels: dict[Worker, Channel] = {}
        self._lost: set[Worker] = set()
        self._flushes = count(1)
        self._flushing: set[Worker] | None = None  # of whose flush no answer came; None: none has begun

    def request(self, task: SimTask) -> None:
        """A worker begins a batch."""
        send = self._work.request(task.grant, task.lease)
        self._post(task.worker, send, task, task.grant.grant)

    def receive(self, task: SimTask) -> None:
        """The reply to a request is at its worker."""
        if not task.given_up and task.worker.died_s > self._clock.now_s:
            self._work.receive(task.grant.grant)

    def push(self, task: SimTask) -> None:
        """A batch is computed."""
        if not task.given_up:
            self._work.push(task.grant.grant)

    def flushed(self, workers: Iterable[Worker]) -> bool:
        """Whether all changes are at the servers. The first call begins a flush; nothing is computed or requested.

        A worker that is dead does not answer: the flush waits until its loss is known.
        """
        if self._flushing is None:
            self._flushing = set()
            for worker in workers:
                self._flush(worker, self._flushing)
        return not self._flushing

    def resumed(self) -> None:
        """Work goes on after a flush."""
        self._flushing = None

    def lose(self, worker: Worker) -> int:
        """The loss of a worker is known; returns the rows whose changes never reach the servers."""
        if self._flushing is not None:
            self._flushing.discard(worker)
        channel = self._channels.get(worker)  # it stays: copies of its messages may still arrive
        if channel is None or worker in self._lost:
            return 0
        self._lost.add(worker)
        return self._work.lose_worker(worker.number) + sum(message.send.rows for message in channel.doomed())

    def arrived(self, message: CacheMessage) -> None:
        """A copy of a message is at the servers."""
        channel = self._channels[message.worker]
        message.on_the_way -= 1
        message.delivered = True
        if message.place < channel.taken:
            if message.task is not None:  # the reply to a flush is kept and repeated, and not the flush
                self._work.take(message.send)
            return
        channel.arrived.add(message.place)
        while channel.taken in channel.arrived:
            channel.arrived.discard(channel.taken)
            first = channel.open.pop(channel.taken)
            channel.taken += 1
            self._take(first)

    def _post(self, worker: Worker, send: CacheSend, task: SimTask | None, number: int) -> None:
        channel = self._channels.setdefault(worker, Channel())
        message = CacheMessage(worker, send, task, number, channel.sent, send.size)
        channel.open[channel.sent] = message
        channel.sent += 1
        if self._traffic.takes_no_time:
            message.copied(1)
            self.arrived(message)
        else:
            self._traffic.send(message)

    def _take(self, message: CacheMessage) -> None:
        self._work.take(message.send)
        task = message.task
        if task is None:
            self._clock.at(self._clock.now_s + self._latency_s, self._answered, message.worker)
        elif not task.given_up and task.worker.died_s > self._clock.now_s:
            self._read(task)

    def _flush(self, worker: Worker, flushing: set[Worker]) -> None:
        if worker not in self._channels:  # it has cached nothing
            return
        if not worker.reachable:
            if worker not in self._lost:
                flushing.add(worker)
            return
        send = self._work.flush(worker.number)
        if send is not None:
            flushing.add(worker)
            self._meter.row_bytes += send.size
            self._post(worker, send, None, next(self._flushes))

    def _answered(self, worker: Worker) -> None:
        if self._flushing is not None:
            self._flushing.discard(worker)
