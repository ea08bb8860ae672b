"""The trainers of a cluster as a `WorkerPool`: those that join, leave and are lost."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from msgspec.structs import replace

from hotrow.errors import HotrowError
from hotrow.runtime.cluster.caches import ClusterCaches
from hotrow.runtime.cluster.dense_transfer import DenseTransfer
from hotrow.runtime.cluster.open_mode import OpenMode, send_begin
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.score_collection import ScoreCollection
from hotrow.runtime.losses import RoleLoss, WorkersLost
from hotrow.runtime.state import RunState
from hotrow.types import RoleId


class TrainerPool:
    """Trainers by name. `opened` is the mode that runs."""

    def __init__(
        self,
        roles: Roles,
        state: RunState,
        reading: ReadingRoles,
        dense: DenseTransfer,
        caches: ClusterCaches,
        scores: ScoreCollection,
        opened: Callable[[], OpenMode | None],
    ) -> None:
        self._roles, self._state, self._reading = roles, state, reading
        self._dense, self._caches, self._scores, self._opened = dense, caches, scores, opened

    @property
    def names(self) -> Sequence[RoleId]:
        """All trainers of the run."""
        return self._roles.trainers

    def is_lost(self, name: RoleId) -> bool:
        """Whether a trainer ended that was started."""
        return name in self._roles.lost

    def admit(self, name: RoleId) -> None:
        """Admit a trainer that was started and waits."""
        if name in self._roles.lost:
            raise WorkersLost(f"{name} is gone: {self._roles.lost[name]}")
        self._roles.trainers.append(name)
        if self._roles.shard_restarts is not None:
            self._roles.shard_restarts.tell_all_to(self._roles.rpc, name)
        self._reading.add_trainer(name)

    def start_worker(self, name: RoleId, worker: int, step: int) -> None:
        """Begin the open mode on one more trainer. It reads dense parameters from the shards for every batch."""
        if (opened := self._opened()) is None:
            raise AssertionError(f"{name}: no mode is open")
        frames, settings = self._dense.packed()
        begun = replace(
            opened.begun,
            order=opened.parameters.number,
            step=step,
            trained=self._state.samples,
            optimizer=settings,
        )
        with opened.parameters.failing():
            try:
                self._roles.answer(send_begin(self._roles, begun, worker, name, frames))
            except HotrowError as error:
                if not self._roles.caused_by_loss([name], error):
                    raise
                lost = WorkersLost(f"{name} is gone: {error}")
            else:
                opened.executor.trainers[worker] = name
                return
        raise lost

    def stop_worker(self, name: RoleId) -> Future[None]:
        """Stop a trainer that holds no batch, once no batch that it has read is needed."""
        if (opened := self._opened()) is not None:  # at rest no cache has changes
            self._caches.flush(opened.parameters.count, [name])
        self._scores.collect_from(name)
        return self._reading.stop_trainer(name)

    def take_losses(self) -> list[RoleLoss]:
        """Roles that were lost since the last call. Loaders that were started in place of lost ones begin to read."""
        self._reading.admit_loaders()
        losses = [self._roles.losses.popleft() for _ in range(len(self._roles.losses))]
        return [self._completed(each, self._caches.changed_rows.pop(each.name, 0)) for each in losses]

    def check_workers(self) -> None:
        """RoleLost where no trainer is left."""
        self._roles.check_trainers()

    def _completed(self, loss: RoleLoss, changed_rows: int) -> RoleLoss:
        """A loss with all that was lost."""
        scores, restored = self._scores.take_lost(loss.name), self._dense.take_restored(loss.name)
        return dataclasses.replace(loss, scores=scores, dense_restored=restored, changed_rows=changed_rows)
