"""Training in this process: a discipline at work on one server, by threads or by the calling thread alone.

Values are read when a batch is granted. In Sync that is after the step before is applied, so a step is exactly what one
torch model with all rows would do on the whole global batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from hotrow.client import LocalClient
from hotrow.client.aggregate import Average
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.engines.coordinator import Account, Coordinator, Performed, Stepped
from hotrow.engines.crew import Alone, Crew, Finished, Threads
from hotrow.engines.pool import Pool
from hotrow.engines.unbroken import breath, unbroken
from hotrow.modes import Mode, Sync
from hotrow.modes.base import Drain, Ended, Event, Joined, Ready, Resume, RunFacts
from hotrow.server.core import ParameterServer
from hotrow.server.replicas import k_step_adam
from hotrow.staleness import Statistics
from hotrow.worker.core import Learner, Loss


class Watcher(Protocol):
    """Somebody who judges the mode while it works."""

    def finished(self, batch: Finished, late: int) -> None:
        """Gradients are there, `late` steps after their parameters were pulled."""

    def stepped(self) -> None:
        """A dense step was applied."""


class LocalEngine:
    """A model, its tables and the dense optimizer, trained by `workers` in a mode."""

    def __init__(
        self,
        model: nn.Module,
        client: LocalClient,
        optimizer: torch.optim.Optimizer | None,
        account: Account,
        *,
        mode: Mode | None = None,
        facts: RunFacts | None = None,
        loss: Loss | None = None,
        clip: float | None = None,
        autocast: bool = False,
        average: Average = "batch",
    ) -> None:
        self.server = ParameterServer(model, client, optimizer, average=average, clip=clip)
        self.facts = RunFacts(workers=1, local_batch=1, global_batch=1) if facts is None else facts
        self.before: Callable[[Batch], None] | None = None  # called with every batch that is about to be trained
        self.watcher: Watcher | None = None
        self._learner = Learner(model, loss=loss, autocast=autocast)
        self._loss, self._autocast, self._account = loss, autocast, account
        self._mode: Mode = Sync() if mode is None else mode
        self._demand_fit(self._mode)
        self._coordinator: Coordinator | None = None
        self._crew: Crew | None = None
        self._pool: Pool | None = None
        self._done: Callable[[Lease], None] = _nothing
        self._free: dict[int, int] = {}  # batches that each worker could still begin
        self._asking: list[int] = []  # workers with a reserved lease that wait for a grant
        self._ended: set[int] = set()  # workers that found no more data
        self._resting = self._failed = False
        self._granted = 0  # numbers of grants that were used so far
        self._early: list[Stepped] = []  # applied while somebody waited for rest
        self.statistics = Statistics(ids=self.server.id_staleness)  # over all modes

    @property
    def mode(self) -> Mode:
        """The one at work."""
        return self._mode

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The dense one; None where the model has no parameters."""
        return self.server.optimizer

    def steps(self, pool: Pool, step: int, done: Callable[[Lease], None]) -> Iterator[Stepped]:
        """Train the pool's epoch; `done` is told of every lease whose gradients were applied, or came too late."""
        self._pool, self._done = pool, done
        self._early = []  # of an epoch that was broken off
        if self._coordinator is None:
            yield from self._start(step)
        ended, self._ended = self._ended, set()
        for worker in sorted(ended):
            yield from self._take(Joined(worker))
        while True:
            if self._resting:
                yield from self._take(Resume())
            for worker in self._free:
                yield from self._ask(worker)
            if self._early:
                yield from self.take_early()
                continue  # whoever got a step may have asked for rest, or for another mode
            if not self._outstanding:
                break
            yield from self._next()
        yield from self._take(Drain())
        self._resting = True

    def rest(self) -> None:
        """Let everything that is being computed end, and apply it: a checkpoint or a switch comes."""
        if self._coordinator is None or self._failed:
            return
        if not self._resting:
            self._early += self._take(Drain())
            self._resting = True
        while self._outstanding:
            self._early += self._next()

    def take_early(self) -> list[Stepped]:
        """Steps that were applied on the way to rest, and that nobody was told of."""
        early, self._early = self._early, []
        return early

    @property
    def busy(self) -> bool:
        """Whether an epoch is under way."""
        return self._coordinator is not None

    def switch(self, mode: Mode) -> None:
        """Go on in another mode.

        Parameters, optimizer state, hyper-parameters and the global batch stay as they are.
        """
        self._demand_fit(mode)
        self.rest()
        self._mode = mode
        if self._coordinator is None:
            return
        assert self._pool is not None
        step = self._coordinator.discipline.step
        self.close()
        self._pool.release()  # workers ask anew, for as many batches as this mode lets them begin
        self._early += self._start(step)

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
        return self._learner.predict(batch, self.server.client.lookup(batch, learn=False))

    def close(self) -> None:
        """End the workers. What they compute is lost: `rest` first to keep it."""
        if self._crew is not None:
            self._crew.close()
        if self._coordinator is not None:
            self._granted = self._coordinator.granted
            self._coordinator.close()
        self._coordinator = self._crew = None
        self._asking = []
        self._resting = self._failed = False

    def _demand_fit(self, mode: Mode) -> None:
        mode.check(self.facts)
        if mode.dense == "local":
            k_step_adam(self.server.optimizer)

    @property
    def _outstanding(self) -> int:
        return 0 if self._coordinator is None else self._coordinator.outstanding

    def _start(self, step: int) -> list[Stepped]:
        facts = replace(self.facts, step=step, grants=self._granted)
        self._coordinator = Coordinator(
            self._mode, facts, self.server, self._account, lambda lease: self._done(lease), self.statistics
        )
        replicas = self._coordinator.replicas
        if facts.workers == 1 and replicas is None:
            self._crew = Alone(self.server, self._learner, self._mode, step)
        else:
            models = None if replicas is None else replicas.models
            self._crew = Threads(
                self.server, facts.workers, self._mode, step, loss=self._loss, autocast=self._autocast, replicas=models
            )
        self._free = dict.fromkeys(range(facts.workers), self._mode.most_in_flight)
        self._ended = set()
        return [stepped for worker in self._free for stepped in self._take(Joined(worker))]

    def _next(self) -> list[Stepped]:
        """Wait for gradients and see what they come to."""
        assert self._crew is not None
        assert self._coordinator is not None
        with unbroken():  # as one: gradients that are there must not be lost to an interrupt that was held back
            finished = self._finished(self._crew)
            with self._whole():
                if self.watcher is not None:
                    self.watcher.finished(finished, self._coordinator.discipline.step - finished.pulled_step)
                with self._crew.lock:
                    self._free[finished.grant.worker] += 1
                    performed = self._coordinator.pushed(finished)
                    self._crew.stepped(self._coordinator.discipline.step)
                self._send(performed)
        breath()
        return performed.steps

    def _ask(self, worker: int) -> Iterator[Stepped]:
        """For as many batches as the worker may begin, while there are data."""
        assert self._pool is not None
        while self._free[worker] and worker not in self._ended and not self._resting:
            if self._pool.reserve():
                self._free[worker] -= 1
                self._asking.append(worker)
                yield from self._take(Ready(worker))
            elif worker in self._asking:  # it has data to wait with
                return
            else:
                self._ended.add(worker)
                yield from self._take(Ended(worker))

    def _take(self, event: Event) -> list[Stepped]:
        assert self._coordinator is not None
        assert self._crew is not None
        with self._whole():
            with self._crew.lock:
                if isinstance(event, Resume):
                    self._resting = False
                performed = self._coordinator.on(event)
                self._crew.stepped(self._coordinator.discipline.step)
            self._send(performed)
        return performed.steps

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """An event with all that comes of it. After a fault gradients may never come: nobody waits for rest then."""
        with unbroken():
            try:
                yield
            except BaseException:
                self._failed = True
                raise

    def _finished(self, crew: Crew) -> Finished:
        try:
            return crew.finished()
        except KeyboardInterrupt:  # what was being computed is computed all the same, or again
            raise
        except BaseException:  # whatever a worker threw: its gradients will never come
            self._failed = True
            raise

    def _send(self, performed: Performed) -> None:
        """Data to those who were granted a batch; the watcher hears of steps first."""
        assert self._coordinator is not None
        assert self._crew is not None
        assert self._pool is not None
        if self.watcher is not None and performed.steps:
            self.watcher.stepped()
        for grant in performed.grants:
            self._asking.remove(grant.worker)
            lease, batch = self._pool.attach()
            if self.before is not None:
                self.before(batch)
            self._coordinator.attach(grant, lease, batch)
            self._crew.start(grant, batch)


def _nothing(lease: Lease) -> None:
    """Nobody asks."""
