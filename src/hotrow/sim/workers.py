"""The workers in virtual time: what they do with a grant, and when they are present.

Where dense parameters are on the servers a batch reads everything at once, computes and pushes. Where the workers hold
them (all-reduce, KStep) it reads its rows at the grant, and computes when the dense step of its token has come and the
collective before it is complete. A collective begins when the last of its gradients is computed, while rows are being
sent.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from hotrow.modes import Mode
from hotrow.modes.base import Apply, Grant, Group, RunFacts
from hotrow.sim.cache_traffic import CacheMessage, CacheTraffic
from hotrow.sim.clock import Clock
from hotrow.sim.config import ClusterConfig
from hotrow.sim.coordinator import SimCoordinator
from hotrow.sim.faults import Crash, Faults
from hotrow.sim.leases import SimLease
from hotrow.sim.meter import SimMeter
from hotrow.sim.pace import Pace
from hotrow.sim.row_reads import RowReads
from hotrow.sim.tasks import Message, SimPush, SimTask, Worker
from hotrow.sim.traffic import Traffic
from hotrow.sim.work import CachingWork, SimWork
from hotrow.switching import Observation

OnBatch = Callable[[Observation], None]


class SimWorkers:
    """All workers of a cluster, present and absent."""

    def __init__(
        self,
        clock: Clock,
        config: ClusterConfig,
        coordinator: SimCoordinator,
        work: SimWork,
        meter: SimMeter,
        seed: int,
        on_batch: OnBatch | None,
    ) -> None:
        self._clock, self._coordinator, self._work, self._meter = clock, coordinator, work, meter
        self._network, self._detect_s, self._on_batch = config.network, config.faults.detect_s, on_batch
        self._traffic = Traffic(clock, config.network, config.faults, seed, self._arrived)
        self._reads = RowReads(clock, self._traffic, work, self._rows_come)
        self._caches: CacheTraffic | None = None
        if isinstance(work, CachingWork):
            self._caches = CacheTraffic(clock, self._traffic, work, meter, config.network.latency_s, self._read)
        self._pace = Pace(config.speeds, seed)
        self._pictured = bool(config.lanes)
        self._current: dict[int, Worker] = {}  # the worker of each number; dead ones stay until they restart
        self._groups: tuple[Group, ...] = ("both",)
        self._in_step = False
        self._collective_s = 0.0  # end of the current all-reduce
        self._computed_s = 0.0  # of the last step
        self._dense_bytes = 0
        self._members = config.workers
        self._limited = False  # workers from `members` on get no batches; at the start all get some

    def expect(self, faults: Faults) -> None:
        """Plan joins and crashes."""
        for loss in faults.shard_crashes:
            self._clock.at(loss.at_s, self._coordinator.lose_shard, loss.shard)
        for join in faults.joins:
            self._clock.at(join.at_s, self.join, join.worker)
        for crash in faults.crashes:
            self._clock.at(crash.at_s, self._crash, crash)

    def change(self, mode: Mode, facts: RunFacts, members: int | None = None) -> None:
        """Work in a mode; with `members`, only workers below this number."""
        if members is not None:
            self._members, self._limited = members, True
        self._in_step = mode.dense != "server"
        self._groups = mode.groups
        self._reads.change(mode, facts.parts, facts.step)

    # Called by the coordinator

    def begin(self, grant: Grant, lease: SimLease) -> SimTask:
        worker, pushes = self._current[grant.worker], len(self._groups)
        task = SimTask(grant, lease, worker, pushes, pushes)
        self._reads.granted(task)
        if not worker.reachable:
            return task
        if self._caches is not None:
            self._caches.request(task)
        elif self._traffic.answers_at_once or (time_s := self._traffic.answered_s(grant.grant)) <= self._clock.now_s:
            self._read(task)
        else:
            self._clock.at(time_s, self._read, task)
        return task

    def applied(self, effect: Apply, tasks: Sequence[SimTask]) -> None:
        if not self._in_step:
            return
        if tasks:
            self._computed_s = max(task.computed_s for task in tasks)
            self._dense_bytes = tasks[0].wire.bytes_up_dense
        if effect.group != "dense":
            self._reads.applied(effect)
        if effect.group == "embedding":
            return
        rounds = 2 if self._coordinator.loop.mode.dense == "local" else 1  # second moments, then parameters
        reduce_s = rounds * self._network.all_reduce_s(len(self._coordinator.loop.present), self._dense_bytes)
        self._collective_s = max(self._clock.now_s, self._computed_s + reduce_s)
        for worker in self._current.values():
            if worker.here:
                self._compute_next(worker)

    def settle(self) -> None:
        """All effects of an event are performed."""
        self._reads.settle()

    def flushed(self) -> bool:
        """Whether no cache has changes. The first call begins a flush; nothing is computed or requested meanwhile."""
        return self._caches is None or self._caches.flushed(self._current.values())

    def resumed(self) -> None:
        """Work goes on after a flush."""
        if self._caches is not None:
            self._caches.resumed()

    def dropped(self, task: SimTask) -> None:
        """A grant was given up."""
        self._reads.dropped(task)

    # A batch, from its grant to its push

    def _read(self, task: SimTask) -> None:
        worker = task.worker
        now_s = self._clock.now_s
        if worker.died_s <= now_s or task.given_up:  # the servers do not answer for a dropped grant
            return
        if self._in_step:
            self._reads.read(task)
            return
        task.rows_step = self._coordinator.loop.step
        wire = task.wire = self._work.pull(task.grant, task.lease)
        here_s = now_s
        if not self._traffic.takes_no_time:
            here_s = self._traffic.down_s(wire.bytes_down + wire.bytes_up_dense)
        if self._caches is not None:  # its only batch, so that nothing happens to its cache before the reply is there
            self._caches.receive(task)
        if self._pictured:
            self._meter.lane(worker.number, now_s, here_s, "pull")
            self._meter.lane(worker.number, worker.free_s, now_s, "wait")
        self._compute(task, here_s)

    def _rows_come(self, task: SimTask, here_s: float) -> None:
        """All rows of a batch were read, and arrive at its worker."""
        now_s = self._clock.now_s
        task.rows_step = self._coordinator.loop.step
        if self._caches is not None:  # replies are received in the order of their requests
            here_s = task.worker.replied_s = max(here_s, task.worker.replied_s)
        if self._pictured:
            self._meter.lane(task.worker.number, now_s, here_s, "pull")
        if here_s > now_s:
            self._clock.at(here_s, self._rows_are_here, task)
        else:
            self._rows_are_here(task)

    def _rows_are_here(self, task: SimTask) -> None:
        if self._caches is not None:
            self._caches.receive(task)
        heappush(task.worker.here, (task.grant.token, task.grant.grant, task))
        self._compute_next(task.worker)

    def _compute_next(self, worker: Worker) -> None:
        """Start the batch with the lowest token, if its dense step has come."""
        now_s = self._clock.now_s
        while worker.here and worker.reachable and worker.here[0][2].given_up:  # ahead of a step without a batch
            heappop(worker.here)
        if worker.computing or not worker.here or worker.died_s <= now_s:
            return
        if worker.here[0][0] > self._coordinator.loop.step:
            return
        if self._collective_s > now_s:
            self._clock.at(self._collective_s, self._compute_next, worker)
            return
        worker.computing = True
        if self._pictured:
            self._meter.lane(worker.number, worker.free_s, now_s, "wait")
        self._compute(heappop(worker.here)[2], now_s)

    def _compute(self, task: SimTask, begun_s: float) -> None:
        """Gradients are of the current parameters; computing them ends later."""
        worker = task.worker
        task.dense_step = self._coordinator.loop.step
        if not task.given_up:  # an unreachable worker continues, and its push has no effect
            self._work.compute(task.grant)
        task.begun_s = begun_s
        task.computed_s = begun_s + worker.machine.seconds(worker.batches, begun_s, task.wire.samples)
        worker.batches += 1
        self._clock.at(task.computed_s, self._computed, task)

    def _computed(self, task: SimTask) -> None:
        worker = task.worker
        if worker.died_s <= self._clock.now_s:
            return
        worker.computing = False
        worker.free_s = task.computed_s
        if self._pictured:
            self._meter.lane(worker.number, task.begun_s, task.computed_s, "compute")
        if self._caches is not None:
            self._caches.push(task)
        for group in self._groups:
            if self._traffic.takes_no_time:
                self._delivered(SimPush(task, group, 0))
            else:
                self._traffic.send(SimPush(task, group, self._size(task, group)))
        if self._in_step:
            self._compute_next(worker)

    def _size(self, task: SimTask, group: Group) -> int:
        rows = 0 if group == "dense" else task.wire.bytes_up_rows
        return rows if self._in_step else rows + task.wire.bytes_up_dense

    def _arrived(self, message: Message) -> None:
        """A copy of a message is at the servers."""
        if isinstance(message, SimPush):
            self._delivered(message)
        elif self._caches is not None and isinstance(message, CacheMessage):
            self._caches.arrived(message)

    def _delivered(self, push: SimPush) -> None:
        task = push.task
        worker = task.worker
        self._work.arrive(task.grant.grant, push.group)
        self._coordinator.pushed(push)
        if push.delivered:
            return
        push.delivered = True
        if task.to_come:
            return
        effort = worker.effort
        effort.samples += task.wire.samples
        effort.batches += 1
        effort.computing_s += task.computed_s - task.begun_s
        self._meter.row_bytes += task.wire.rows
        if self._pictured:
            self._meter.lane(worker.number, task.computed_s, self._clock.now_s, "push")
            worker.free_s = max(worker.free_s, self._clock.now_s)
        if self._on_batch is not None:
            self._on_batch(self._observation(task, worker))
        if worker.reachable:
            self._coordinator.loop.request_batch(worker.number)

    def _observation(self, task: SimTask, worker: Worker) -> Observation:
        """Compute time and rows, which every mode has; without queues and dense traffic."""
        wire = task.wire
        rows_s = self._network.message_s(wire.bytes_down) + self._network.message_s(wire.bytes_up_rows)
        busy_s = task.computed_s - task.begun_s + rows_s
        late = max(0, self._coordinator.loop.step - task.dense_step)
        return Observation(worker.number, self._clock.now_s, busy_s, wire.samples, late)

    # Joins and losses

    def join(self, number: int) -> None:
        """A worker joins, for the first time or again; no effect where a change of mode has started it before."""
        if number not in self._coordinator.loop.present and self._come(number):
            self._coordinator.loop.request_batches(number)

    def join_all(self) -> None:
        """Let all present workers with work join, at the start and after a change; missing members are started.

        All join before the first one requests a batch, or Sync would begin with the first.
        """
        came = [number for number in sorted({*self._current, *range(self._members)}) if self._come(number)]
        for number in came:
            self._coordinator.loop.request_batches(number)

    def _come(self, number: int) -> bool:
        worker, now_s = self._current.get(number), self._clock.now_s
        if worker is None:
            worker = self._current[number] = Worker(number, self._pace.machine(number))
        if not worker.reachable:
            return False
        if self._limited and number >= self._members:
            self._meter.left(number, now_s)
            return False
        worker.free_s = now_s
        worker.effort = self._meter.joined(number, now_s)
        self._coordinator.loop.join(number)
        return True

    def _crash(self, crash: Crash) -> None:
        worker, now_s = self._current[crash.worker], self._clock.now_s
        worker.reachable = False
        if not crash.cut_off:
            worker.died_s = now_s
        self._meter.left(crash.worker, now_s)
        self._clock.at(now_s + self._detect_s, self._notice, worker)
        if crash.restart_after_s is not None:
            self._clock.at(now_s + crash.restart_after_s, self._restart, worker)

    def _notice(self, worker: Worker) -> None:
        """The loss of a worker is detected; its restart may have been detected before."""
        if self._caches is not None:
            lost = self._caches.lose(worker)
            self._coordinator.statistics.add_counts({"cached_rows_lost": lost})
        if self._current[worker.number] is worker and worker.number in self._coordinator.loop.present:
            self._coordinator.lose(worker.number)

    def _restart(self, worker: Worker) -> None:
        """A restart under an old number reveals the loss of the old worker."""
        self._notice(worker)
        if self._pictured:
            self._meter.lane(worker.number, worker.free_s, self._clock.now_s, "down")
        self._current[worker.number] = Worker(worker.number, worker.machine, worker.batches)
        self.join(worker.number)
