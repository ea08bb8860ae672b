"""The backend of a cluster: modes open and close on its trainers and shards, and between them the run is at rest.

At rest the rows are on the shards and the dense state is in the driver.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotrow.checkpoint.local_cut import ExportedRows
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.saving import TablesCut
from hotrow.client.row_hints import RowHints, hinted_tables
from hotrow.client.sharded import ShardedTables
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader, RemoteReading, RowReading
from hotrow.errors import InputError
from hotrow.metrics.sketch import ScoreSketch
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.cluster.caches import ClusterCaches
from hotrow.runtime.cluster.dense_transfer import DenseTransfer
from hotrow.runtime.cluster.evaluation import ClusterEvaluation
from hotrow.runtime.cluster.executor import RemoteExecutor, shares_of
from hotrow.runtime.cluster.mode_checks import check_cluster_mode
from hotrow.runtime.cluster.open_mode import OpenMode, begin_on_all
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.cluster.remote_cut import remote_cut
from hotrow.runtime.cluster.remote_load import RemoteRowLoader
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.score_collection import ScoreCollection
from hotrow.runtime.cluster.shard_restarts import RestartedShard
from hotrow.runtime.cluster.trainer_pool import TrainerPool
from hotrow.runtime.look_ahead import LookAheadChoice, LookAheadChoices, expiry_fault
from hotrow.runtime.losses import RoleLost, WorkersLost
from hotrow.runtime.state import RunState
from hotrow.transport.messages import Begin, BeginEvaluation, ResumeShard, TrackChanges
from hotrow.types import RoleId
from hotrow.worker.evaluators import AnyEvaluator
from hotrow.worker.spec import TrainingSpec

_log = logging.getLogger("hotrow.runtime")


class ClusterBackend:
    """The backend whose workers are the trainers of a cluster."""

    def __init__(
        self,
        spec: TrainingSpec,
        tables: ShardedTables,
        roles: Roles,
        state: RunState,
        *,
        places: Mapping[RoleId, Sequence[int]],
    ) -> None:
        """`places`: by shard, the parameters it holds."""
        self.tables = tables
        self._spec, self._roles, self._state = spec, roles, state
        self._learner = spec.learner()
        self._hints: RowHints | None = None  # of batches that this process reads
        if hinted_tables(tables.specs):
            self._hints = RowHints(tables.specs, roles.rpc, roles.shards, threads=tables.threads)
        self._reading = ReadingRoles(roles, loads_ahead=self._hints is not None)
        self._dense = DenseTransfer(spec, roles, places)
        self._caches = ClusterCaches(roles, tables.specs)
        self._scores = ScoreCollection(roles)
        self.worker_pool = TrainerPool(
            roles, state, self._reading, self._dense, self._caches, self._scores, lambda: self._open
        )
        self._choices = LookAheadChoices()
        self._open: OpenMode | None = None
        self._parameters: RemoteParameters | None = None  # of the open mode, also while it opens
        self._order = 0  # number of the last order
        self._failed = False
        self._undone: Mapping[str, int] = {}  # counted when the last mode had ended
        self._evaluations = 0
        if roles.shard_restarts is not None:
            roles.shard_restarts.user, roles.shard_restarts.step = self, lambda: state.step

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense optimizer; None where the model has no parameters."""
        return self._spec.optimizer

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a cluster does not support a mode."""
        check_cluster_mode(mode, facts, self.tables.specs, self.optimizer)

    def look_ahead_choice(self, mode: Mode, facts: RunFacts) -> LookAheadChoice | None:
        """The measurement that decides on the look-ahead of a mode; None: there is nothing to decide.

        KStep is not measured: with look-ahead a prediction between two steps is a rest, which merges the copies.
        """
        auto = getattr(mode, "look_ahead", 0) == "auto" and mode.dense != "local"
        return self._choices.of(mode, facts) if auto and expiry_fault(self.tables.specs, facts) is None else None

    def track_changes(self) -> None:
        """From the next cut on, cuts of changes are possible."""
        for each in self._roles.request_all(self._roles.shards, TrackChanges()):
            self._roles.answer(each)

    def begin_cut(self, place: Place, *, delta: bool) -> TablesCut:
        """The rows of this moment. Shards write their parts; where one cannot see the folder, this process does."""
        found = remote_cut(self._roles, self.tables.specs, place, delta=delta)
        return ExportedRows(self.tables.tiers) if found is None else found

    def check_alive(self) -> None:
        """Handle the losses of roles; RoleLost where one ends the run."""
        self._roles.check_alive()

    def row_loader(self) -> RemoteRowLoader:
        """Shards read their parts; where one cannot see the folder, this process reads all rows."""
        return RemoteRowLoader(self._roles, self.tables.tiers)

    def newest_grant(self) -> int:
        """The largest that the shards or their segments know."""
        return self._roles.newest_grant()

    def attached_samples(self) -> int:
        """That any shard's segments know of."""
        return self._roles.samples()

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[RemoteParameters, RemoteExecutor]:
        """Start a mode: the dense state is sent to the trainers, or to the shards that hold it."""
        self.check_consistent()
        self._roles.check_alive()
        self._roles.check_all_left(facts.workers)
        self.check_mode(mode, facts)  # trainers may have joined since it was chosen
        parameters = RemoteParameters(
            mode,
            facts,
            self._roles,
            self._order,
            self._spec.average,
            self._state.samples,
            self._fetch_at_rest,
            self._set_parameters,
        )
        self._order = parameters.number  # shards have it, even if the rest fails
        parameters.count_first(self._undone)
        packed = dense, settings = self._dense.packed()
        if mode.dense == "server":
            self._dense.send_to_shards(facts.step, packed)
        self._caches.open(parameters.number)
        self._roles.check_all_left(facts.workers)  # the first one is asked where all meet
        begun = Begin(
            mode.model_dump_json(),
            parameters.number,
            facts.step,
            rank=0,
            ranks=facts.workers,
            share=0,  # each rank has its own
            local_batch=facts.local_batch,
            trained=self._state.samples,
            meeting=None if mode.dense == "server" else self._roles.surviving(self._roles.rendezvous),
            optimizer=settings,
            seed=int(torch.randint(2**31, ())),
        )
        begin_on_all(self._roles, begun, shares_of(facts.parts, facts.workers), dense)
        executor = RemoteExecutor(
            self._roles,
            parameters,
            mode,
            facts,
            self._state,
            self._close_mode,
            self._reading.current,
            self._scores.uncollected,
            lambda: self._dense.is_here(parameters.number),
            self._caches,
        )
        self._open, self._undone = OpenMode(mode, parameters, executor, begun), {}
        return parameters, executor

    def _set_parameters(self, parameters: RemoteParameters) -> None:
        self._parameters = parameters

    def resume_shard(self, shard: RestartedShard) -> None:
        """Tell a shard that was started again how far the process before it came."""
        self.tables.set_incarnation(shard.name, shard.incarnation)
        parameters = self._parameters
        resume = ResumeShard(self._order) if parameters is None else parameters.resumption(shard)
        if resume.dense and not shard.dense_found:
            self._dense.restore_shard(shard.name, resume.step)
        self._roles.answer(self._roles.rpc.request(shard.name, resume))

    @property
    def row_prefetch(self) -> RowReading | None:
        """Where tables have rows on disk: shards are told of batches that this process reads."""
        return None if self._hints is None else self._hints.send

    def reading(self, loader: Loader) -> AbstractContextManager[RemoteReading | None]:
        """Loaders or trainers read, where they can."""
        return self._reading.prepared(loader)

    def take_scores(self) -> ScoreSketch:
        """The sketches of all trainers, merged, and those of trainers that have left."""
        return self._scores.take()

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is created or changed."""
        self.check_consistent()
        try:
            after = self._prepare_prediction()
        except WorkersLost as lost:  # in the middle of an event: the mode cannot open again here
            raise RoleLost(str(lost)) from None
        return self._learner.predict(batch, self.tables.lookup(batch, learn=False, after=after))

    def evaluate(self, loader: Loader) -> AnyEvaluator | None:
        """Let the trainers predict batches that loaders or trainers read; None where the driver has to.

        WorkersLost where no trainer is left: it can begin again with another one.
        """
        self.check_consistent()
        if loader.source.schema.group is not None:
            _log.info("the run's own process evaluates: a grouped AUC needs all samples of a group in one place")
            return None
        while True:
            self._roles.check_alive()
            if not self._roles.trainers:
                raise WorkersLost("no trainer is left that could evaluate")
            try:
                return self._roles.surviving(lambda: self._evaluate(loader))
            except WorkersLost as lost:  # nothing was changed: the others begin again
                _log.warning("the evaluation begins again with %d trainers: %s", len(self._roles.trainers), lost)

    def _evaluate(self, loader: Loader) -> AnyEvaluator | None:
        with self._reading.prepared_for_evaluation(loader) as reading:
            if reading is None:
                return None
            after = self._prepare_prediction()
            dense, _ = self._dense.packed(optimizer=False)
            self._evaluations += 1
            evaluation = ClusterEvaluation(self._roles, BeginEvaluation(self._evaluations, after))
            return evaluation.run(loader, reading, dense)

    def _prepare_prediction(self) -> int:
        """Fetch the dense state where it is not here; returns the order that lookups have to wait for."""
        if self._open is None:
            return self._order
        self._caches.flush(self._open.parameters.count)
        self._dense.fetch(self._open, optimizer=False)
        return self._open.parameters.number

    def check_consistent(self) -> None:
        """InputError after a failure: rows and dense parameters may be of different steps."""
        if self._failed or (self._open is not None and self._open.parameters.failed):
            raise InputError("the cluster has failed: close this trainer, and load the last checkpoint into another")

    def _close_mode(self) -> None:
        if (opened := self._open) is None:
            return
        self._open, self._order = None, opened.parameters.number
        self._failed = True  # rows are those of the last step, and dense parameters those of the last fetch
        try:
            if not opened.parameters.failed:
                self._caches.flush(opened.parameters.count)
                self._undone = opened.parameters.last_counts()  # discards of a cut: rows may be applied already
                self._order = opened.parameters.number
                self._dense.fetch(opened, optimizer=True)
                self._failed = False
        finally:
            self._caches.close()  # also where changes are lost: embedding workers that leave stop now
        self._parameters = None  # until here a shard that is started again needs the orders and rules of the mode

    def _fetch_at_rest(self) -> None:
        if self._open is not None:
            self._caches.flush(self._open.parameters.count)
            self._dense.fetch(self._open, optimizer=True)
