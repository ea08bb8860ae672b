"""The training loop: epochs of data in a mode, changes of the mode and of its workers in between.

The backend, this process or a cluster, holds parameters and computes batches. Values are read when a batch is granted.
In Sync that is after the step before is applied, so a step is exactly what one torch model with all rows would do on
the whole global batch.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.errors import InputError
from hotrow.modes import Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime.active_mode import ActiveMode, open_mode
from hotrow.runtime.backend import Backend
from hotrow.runtime.clock import RunClock
from hotrow.runtime.executors import WorkerLoss
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.losses import WorkersLost
from hotrow.runtime.lost_roles import LostRoles
from hotrow.runtime.membership import Membership, ScaleRequest
from hotrow.runtime.observer import ModeObserver
from hotrow.runtime.state import RunState
from hotrow.runtime.training_performer import StepResult
from hotrow.staleness import Statistics
from hotrow.types import RoleId
from hotrow.worker.evaluators import AnyEvaluator

WAKE_S = 0.1  # between two checks whether a worker has joined


class TrainingLoop:
    """A model and its tables, trained by the workers of a backend in a mode."""

    def __init__(
        self,
        backend: Backend,
        state: RunState,
        *,
        mode: Mode | None = None,
        facts: RunFacts | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.backend, self.state = backend, state
        self.facts = RunFacts(workers=1, local_batch=1, global_batch=1) if facts is None else facts
        self.clock = RunClock(clock)
        self.statistics = Statistics()  # over all modes
        self._mode: Mode = Sync() if mode is None else mode
        backend.check_mode(self._mode, self.facts)
        self.observer: ModeObserver | None = None  # of the active mode and of those that follow
        self._active: ActiveMode | None = None
        pool = backend.worker_pool
        self._membership = None if pool is None else Membership(pool, backend.check_mode)
        self._lost_roles = LostRoles(self._membership, state, self.statistics)
        self.replacements = self._lost_roles.replacements
        self._opening = threading.RLock()  # held while a mode opens or closes: its members do not change then
        self._steps: deque[StepResult] = deque()  # of modes that have ended, not yet taken by the caller
        self._evaluating = False
        self._grants = 0  # numbers of grants that were used so far
        self._refused = 0  # rows whose gradient was not finite, not yet in a step result

    @property
    def mode(self) -> Mode:
        """The active mode, or the next one."""
        return self._mode

    @property
    def busy(self) -> bool:
        """Whether a mode is active."""
        return self._active is not None

    @property
    def workers(self) -> list[int]:
        """Workers that have data, as far as is known."""
        if self._active is None:
            return list(range(self.facts.workers))
        leaving = () if self._membership is None else self._membership.leaving
        return [worker for worker in self._active.loop.with_data if worker not in leaving]

    def observe(self, observer: ModeObserver | None) -> None:
        """Report to another observer, or to none."""
        self.observer = observer
        if self._active is not None:
            self._active.performer.observer = observer

    def steps(self, leases: LeaseQueue, step: int) -> Iterator[StepResult]:
        """Train the epoch of the leases. The run's clock is paused while the caller handles a step."""
        self.clock.resume()
        try:
            for stepped in self._epoch(leases, step):
                self.clock.pause()
                yield stepped
                self.clock.resume()
        finally:
            self.clock.pause()

    def _epoch(self, leases: LeaseQueue, step: int) -> Iterator[StepResult]:
        if self._active is not None and self._active.leases is not leases:
            raise InputError("leases of another run while one is under way: end that one first")
        self.take_steps()  # of an epoch that was interrupted
        (self._active or self._open(leases, step)).rejoin()
        yield from self._each_step()
        while (active := self._active) is not None:
            active = self._survive_losses(active)
            if active.loop.draining:
                active.resume()
            if self._membership is not None and self._membership.pending:
                active = self._change_members(active, self._membership)
            if not active.loop.present:
                active = self._await_workers(active)
            self._request_all(active)
            if not self._has_steps and not active.loop.unpushed:
                active.drain()
                yield from self._each_step()
                return
            if not self._has_steps:
                active.finish_next()
            yield from self._each_step()

    def _request_all(self, active: ActiveMode) -> None:
        """Request as many batches as workers may hold. A step is returned first: its caller may want rest."""
        ended, steps = self._steps, active.performer.steps
        for worker in active.loop.free:
            while not ended and not steps and active.request_batch(worker):
                pass

    def _each_step(self) -> Iterator[StepResult]:
        """Steps one by one: the caller of one may call `rest` or `switch`, which applies more of them."""
        while steps := self._steps or self._active_steps:
            yield steps.popleft()

    @property
    def _active_steps(self) -> deque[StepResult]:
        return deque() if self._active is None else self._active.performer.steps

    @property
    def _has_steps(self) -> bool:
        return bool(self._steps or self._active_steps)

    def rest(self) -> None:
        """Finish and apply what is being computed, before a checkpoint or a switch."""
        while (active := self._active) is not None and not active.failed:
            if not active.loop.draining:
                active.drain()
            if not active.loop.unpushed:
                try:
                    active.rest()
                except WorkersLost:  # all of them, with the dense state: that of the last checkpoint is next
                    self._survive_losses(active)
                    continue
                self._note_losses()
                return
            active.finish_next()
            self._survive_losses(active)

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is created or changed. Batches in progress are finished where it must be exact."""
        if self._active is not None and self._active.executor.runs_ahead:
            self.rest()
        return self.backend.predict(batch)

    def evaluate(self, loader: Loader) -> AnyEvaluator | None:
        """Let the workers predict all batches of a loader; None where this process has to. Members stay meanwhile.

        Where all workers are lost it begins again once one was started in place of them.
        """
        if self._active is not None and self._active.executor.runs_ahead:
            self.rest()
        while True:
            try:
                return self._evaluate(loader)
            except WorkersLost:
                self._await_any_worker()

    def _evaluate(self, loader: Loader) -> AnyEvaluator | None:
        with self._opening:
            self._evaluating = True
        try:
            return self.backend.evaluate(loader)
        finally:
            with self._opening:
                self._evaluating = False
                if self._active is None:
                    self._change_members_at_rest()

    def _await_any_worker(self) -> None:
        """No worker is left: wait for one that is being started, in the open mode or at rest."""
        if self._active is not None:
            active = self._survive_losses(self._active)
            if not active.loop.present:
                self._await_workers(active)
            return
        self._note_losses()
        while self._lost_roles.is_waiting:
            self._wait_for_start()
        self._members().check_not_empty()

    def take_steps(self) -> list[StepResult]:
        """Steps that `rest` applied, and that the caller of `steps` did not get."""
        return list(self._each_step())

    def take_refused(self) -> int:
        """Rows whose gradient was not finite, of steps that were taken before this was known."""
        refused, self._refused = self._refused, 0
        return refused

    def take_remarks(self) -> list[str]:
        """What was lost, and what the active mode has to say, since the last call."""
        self._note_losses()
        remarks = self._lost_roles.take_remarks()
        if self._active is not None:
            remarks += self._active.remarks
            self._active.remarks = []
        return remarks

    def check_consistent(self) -> None:
        """InputError where rows and dense parameters are of different steps: a fault or an interrupt cut one off."""
        self.backend.check_consistent()
        active = self._active
        self.state.check_consistent(cut_off=active is not None and active.failed and active.half_applied)

    def half_loaded(self) -> None:
        """Parameters are being replaced by those of a checkpoint: until `loaded` they are of different steps."""
        self.state.half_applied = True

    def loaded(self) -> None:
        """All parameters were replaced by those of a checkpoint."""
        self.state.half_applied, self.state.diverged = False, None

    def switch(self, mode: Mode) -> None:
        """Continue in another mode.

        Parameters, optimizer state, hyper-parameters and the global batch stay as they are.
        """
        self.backend.check_mode(mode, self.facts)
        self.rest()
        self._mode = mode
        if self._active is not None:
            self._reopen(self._active)

    @property
    def members(self) -> tuple[RoleId, ...]:
        """Workers that take part, or will at the next step, without those that leave. Thread-safe."""
        return self._members().staying

    def check_join(self) -> None:
        """Raise where no worker can join now. Changes nothing."""
        self._members().check_join(self._mode, self.facts)

    def check_leave(self, name: RoleId) -> None:
        """Raise where a worker cannot leave now. Changes nothing."""
        self._members().check_leave(name, self._mode, self.facts)

    def scale(self, request: ScaleRequest) -> None:
        """Queue a join or leave. Thread-safe; applied at the next safe point, at once where the workers do nothing."""
        self._members().add(request)
        with self._opening:
            if self._active is None and not self._evaluating:
                self._change_members_at_rest()

    def close(self) -> None:
        """End the active mode. Batches in progress are lost: call `rest` first to keep them."""
        with self._opening:
            active, self._active = self._active, None
            try:
                if active is not None:
                    self._grants = active.loop.grants
                    self._steps += active.performer.steps
                    self._refused += active.performer.take_refused()
                    self.state.half_applied = self.state.half_applied or active.half_applied
                    active.close()
            finally:
                self._change_members_at_rest()

    def _open(self, leases: LeaseQueue, step: int) -> ActiveMode:
        self.check_consistent()
        while True:
            self._note_losses()
            while self._lost_roles.is_waiting:  # the newcomer joins at rest
                self._wait_for_start()
            if self._membership is not None:
                self._membership.check_not_empty()
            try:
                return self._open_on_workers(leases, step)
            except WorkersLost:  # while it began: again, with the others
                continue

    def _open_on_workers(self, leases: LeaseQueue, step: int) -> ActiveMode:
        with self._opening:
            grants = max(self._grants, self.backend.newest_grant())  # segments outlive runs, and hold their grants
            facts = replace(self.facts, step=step, grants=grants)
            active = self._active = open_mode(
                self.backend, self._mode, facts, leases, self.state, self.statistics, self.observer, self.clock
            )
            renumbered = [] if self._membership is None else self._membership.renumber()
        for worker in renumbered:
            self._forget(worker)
        for worker in range(facts.workers):
            active.join(worker)
        active.begin()
        return active

    def _reopen(self, active: ActiveMode) -> ActiveMode:
        """At rest: open the chosen mode with the current workers."""
        self.close()
        return self._open(active.leases, active.step)

    def _members(self) -> Membership:
        if self._membership is None:
            raise InputError("the workers of one process neither join nor leave: train on a cluster")
        return self._membership

    def _change_members(self, active: ActiveMode, members: Membership) -> ActiveMode:
        """Apply joins and leaves. Where all workers close every step together, the mode opens again."""
        self.facts = members.accept(self._mode, self.facts)
        if self._mode.dense != "server":
            if not members.accepted:
                return active
            self.rest()
            return self._reopen(active)
        members.apply_in(active, self._forget)
        return active

    def _survive_losses(self, active: ActiveMode) -> ActiveMode:
        """Deal the batches of lost workers again."""
        losses = active.executor.take_lost_workers()
        if not losses and not active.executor.must_cut:
            return active
        if self._mode.dense != "server":
            return self._cut(active, losses)
        before = self.statistics.dropped.get("lost", 0)
        for loss in losses:
            active.lose(loss.worker)
            if loss.stays:
                active.join(loss.worker)
            else:
                self._forget(loss.worker)
        self._note_losses()
        self._lost_roles.note_dealt_again(self.statistics.dropped.get("lost", 0) - before)
        return active

    def _await_workers(self, active: ActiveMode) -> ActiveMode:
        """Where no worker is left, wait for one that is being started; RoleLost where none is.

        Dense parameters are on servers: without them the last worker would have taken its copy with it.
        """
        members = self._members()
        while not active.loop.present:
            self._note_losses()  # of workers that came and went, too
            starting = self._lost_roles.starts_trainer
            if members.pending:
                active = self._change_members(active, members)
                continue
            if not starting:  # read before the requests: what it has started is among them
                members.check_not_empty()
            self._wait_for_start()
        return active

    def _wait_for_start(self) -> None:
        """A worker is being started. It may need a shard that has ended, which this thread alone starts again."""
        deliver_pending_sigint()
        self.backend.check_alive()
        self._note_losses()
        time.sleep(WAKE_S)

    def _cut(self, active: ActiveMode, losses: Sequence[WorkerLoss]) -> ActiveMode:
        """Workers end every step together: open the mode again with those that are left, from the dense state of one.

        The open step is dealt again, unless it counts already.
        """
        decision, dealt_again = active.cut()
        for loss in losses:
            if not loss.stays:
                self._forget(loss.worker)
        self._note_losses()
        if not self._lost_roles.is_waiting:
            with active.failing():
                self._members().check_not_empty()
        self._lost_roles.note_cut(decision, active.step, dealt_again)
        return self._reopen(active)

    def _note_losses(self) -> None:
        self.facts = self._lost_roles.note(self.facts)

    def _change_members_at_rest(self) -> None:
        if self._membership is not None:
            self.facts = self._membership.accept(self._mode, self.facts)
            self._membership.apply_at_rest()

    def _forget(self, worker: int) -> None:
        if self.observer is not None:
            self.observer.lost(worker)
