"""The backend of a cluster: where dense parameters are in each mode, and how they get there and back.

At rest the dense state is in the driver. When a mode begins it is sent to the trainers, or to the shards that hold it;
when the mode ends it is fetched from the first trainer, or from the shards.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.optim import Optimizer

from hotrow.cache.modes import cached_tables, check_cached_mode
from hotrow.checkpoint import dense as dense_state
from hotrow.checkpoint.dense_loading import load_dense
from hotrow.checkpoint.local_cut import ExportedRows
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.saving import TablesCut
from hotrow.client.row_hints import RowHints, hinted_tables
from hotrow.client.sharded import ShardedTables
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader, RemoteReading
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.metrics.sketch import ScoreSketch
from hotrow.modes import MODES, Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.clock import RunClock
from hotrow.runtime.cluster.evaluation import ClusterEvaluation
from hotrow.runtime.cluster.executor import RemoteExecutor, shares_of
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.cluster.remote_cut import remote_cut
from hotrow.runtime.cluster.remote_load import RemoteRowLoader
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.shard_restarts import RestartedShard
from hotrow.runtime.look_ahead import LookAheadChoice, LookAheadChoices, expiry_fault
from hotrow.runtime.losses import RoleLoss, RoleLost, WorkersLost, is_gone
from hotrow.runtime.state import RunState
from hotrow.server.replicas import k_step_adam
from hotrow.transport.client import Answer
from hotrow.transport.errors import PeerLost
from hotrow.transport.limits import Limits
from hotrow.transport.messages import (
    Begin,
    BeginEvaluation,
    CacheFlushed,
    CollectedScores,
    CollectScores,
    DenseGiven,
    FlushCache,
    GiveDense,
    ResumeShard,
    TakeDense,
    TrackChanges,
)
from hotrow.transport.sketches import unpack_sketch
from hotrow.transport.tensors import cut, joined
from hotrow.types import RoleId
from hotrow.worker.evaluators import AnyEvaluator
from hotrow.worker.spec import TrainingSpec

_log = logging.getLogger("hotrow.runtime")

T = TypeVar("T")

FLUSH_REQUESTS = 64  # of one trainer to a shard before the driver is asked for more numbers
FLUSHES_LOGGED = 32_768  # the last ones, by the log of a segment: those in flight together must not be more
IN_FLIGHT_MOST = Limits().open_requests // 4  # a batch has a lookup, a push and some messages open at one shard


@dataclass(frozen=True, slots=True, eq=False)
class _OpenMode:
    """State that exists only while a mode runs."""

    mode: Mode
    parameters: RemoteParameters
    executor: RemoteExecutor
    begun: Begin  # as sent to the first trainer


class ClusterBackend:
    """The backend whose workers are the trainers of a cluster, and its `WorkerPool`."""

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
        self._places = places
        self._learner = spec.learner()
        self._hints: RowHints | None = None  # of batches that this process reads
        if hinted_tables(tables.specs):
            self._hints = RowHints(tables.specs, roles.rpc, roles.shards, threads=tables.threads)
        self._reading = ReadingRoles(roles, loads_ahead=self._hints is not None)
        self._open: _OpenMode | None = None
        self._order = 0  # number of the last order
        self._fetched = (-1, False)  # the order after which the dense state was fetched, and whether all of it
        self._failed = False
        self._undone: Mapping[str, int] = {}  # counted when the last mode had ended
        self._choices = LookAheadChoices()
        self._evaluations = 0
        self._flushes: int | None = None  # numbers that flushes of caches have used; None: no one was
        self._collections = 0  # of scores
        self._scores_left = ScoreSketch()  # of trainers that have left
        self._uncollected: Counter[str] = Counter()  # by trainer, samples whose scores it has
        self._parameters: RemoteParameters | None = None  # of the open mode, also while it opens
        self._dense_lost: set[RoleId] = set()  # shards that got dense parameters of the last rest, not yet reported
        if roles.shard_restarts is not None:
            roles.shard_restarts.user, roles.shard_restarts.step = self, lambda: state.step

    @property
    def optimizer(self) -> Optimizer | None:
        """The dense optimizer; None where the model has no parameters."""
        return self._spec.optimizer

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        """ConfigError where a cluster does not support a mode."""
        if mode.name not in MODES:  # trainers make a mode from its settings
            raise ConfigError(
                f"mode={mode.name!r}: a mode of your own runs in one process and in the simulator, not on a cluster: "
                f"set engine to 'local', or take one of {', '.join(MODES)}"
            )
        mode.check(facts)
        check_cached_mode(self.tables.specs, mode)
        if mode.most_in_flight > IN_FLIGHT_MOST:
            raise ConfigError(
                f"max_in_flight={mode.most_in_flight}: on a cluster at most {IN_FLIGHT_MOST} batches of a trainer are "
                f"in flight, since a role takes {Limits().open_requests:,} requests of a peer at once: take fewer"
            )
        if mode.dense == "local":
            k_step_adam(self.optimizer)
        if mode.first_look_ahead and (fault := expiry_fault(self.tables.specs, facts)) is not None:
            raise ConfigError(f"look_ahead=1: {fault}, or leave it at 'auto'")
        if mode.dense != "server" and facts.workers > facts.parts:
            raise ConfigError(
                f"trainers={facts.workers}: in {mode.name} every trainer takes a share of the {facts.parts} local "
                f"batches of a global batch: take {facts.parts} or fewer, or another local_batch"
            )

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
        self._check_all_left(facts.workers)
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
        tensors, settings = dense_state.to_bytes(self._spec.model, self.optimizer)
        if mode.dense == "server":
            state = TakeDense(facts.step, settings)
            for asked in self._roles.request_all(list(self._places), state, self._frames(tensors)):
                self._roles.answer(asked)
        self._check_all_left(facts.workers)  # the first one is asked where all meet
        begun = Begin(
            mode.model_dump_json(),
            parameters.number,
            facts.step,
            rank=0,
            ranks=facts.workers,
            share=0,  # each rank has its own
            local_batch=facts.local_batch,
            trained=self._state.samples,
            meeting=None if mode.dense == "server" else self._surviving(self._roles.rendezvous),
            optimizer=settings,
            seed=int(torch.randint(2**31, ())),
        )
        self._begin_all(begun, shares_of(facts.parts, facts.workers), tensors)
        executor = RemoteExecutor(
            self._roles,
            parameters,
            mode,
            facts,
            self._state,
            self._close_mode,
            self._reading.current,
            self._uncollected,
            lambda: self._fetched == (parameters.number, True),
        )
        self._open, self._undone = _OpenMode(mode, parameters, executor, begun), {}
        return parameters, executor

    def _set_parameters(self, parameters: RemoteParameters) -> None:
        self._parameters = parameters

    def resume_shard(self, shard: RestartedShard) -> None:
        """Tell a shard that was started again how far the process before it came."""
        self.tables.set_incarnation(shard.name, shard.incarnation)
        parameters = self._parameters
        resume = ResumeShard(self._order) if parameters is None else parameters.resumption(shard)
        if resume.dense and not shard.dense_found and shard.name in self._places:
            tensors, settings = dense_state.to_bytes(self._spec.model, self.optimizer)
            state = TakeDense(resume.step, settings)  # as of the last rest: no later one is left
            self._roles.answer(self._roles.rpc.request(shard.name, state, self._frames(tensors)))
            self._dense_lost.add(shard.name)
        self._roles.answer(self._roles.rpc.request(shard.name, resume))

    def _begin_all(self, begun: Begin, shares: Sequence[int], tensors: bytes) -> None:
        """WorkersLost where a trainer is lost, also after its reply: workers are numbered as they begin."""

        def begin() -> None:
            ranks = enumerate(self._roles.trainers)
            shared = [(rank, name, replace(begun, share=shares[rank])) for rank, name in ranks]
            sent = {name: self._send_begin(own, rank, name, tensors) for rank, name, own in shared}
            self._roles.answers_of_ranks(sent, begun.meeting)

        self._surviving(begin)
        self._check_all_left(len(shares))

    def _check_all_left(self, workers: int) -> None:
        if len(self._roles.trainers) != workers:
            raise WorkersLost(f"{workers} trainers were to begin, and {len(self._roles.trainers)} are left")

    def _surviving(self, act: Callable[[], T]) -> T:
        """Act on all trainers, and those that read for them; WorkersLost where one is lost meanwhile."""
        names = [*self._roles.trainers, *self._roles.loaders]
        try:
            return act()
        except HotrowError as error:
            if not self._roles.caused_by_loss(names, error):
                raise
            raise WorkersLost(str(error)) from None

    @property
    def worker_pool(self) -> "ClusterBackend":
        """Trainers join and leave."""
        return self

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
        if (opened := self._open) is None:
            raise AssertionError(f"{name}: no mode is open")
        tensors, settings = dense_state.to_bytes(self._spec.model, self.optimizer)
        begun = replace(
            opened.begun,
            order=opened.parameters.number,
            step=step,
            trained=self._state.samples,
            optimizer=settings,
        )
        with opened.parameters.failing():
            try:
                self._roles.answer(self._send_begin(begun, worker, name, tensors))
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
        self._flush_caches([name])
        self._scores_left.merge(self._collect([name]))
        return self._reading.stop_trainer(name)

    def take_losses(self) -> list[RoleLoss]:
        """Roles that were lost since the last call. Loaders that were started in place of lost ones begin to read."""
        self._reading.admit_loaders()
        losses = [self._roles.losses.popleft() for _ in range(len(self._roles.losses))]
        changed = {} if self._open is None else self._open.executor.changed_rows
        return [self._completed(each, changed.pop(each.name, 0)) for each in losses]

    def _completed(self, loss: RoleLoss, changed_rows: int) -> RoleLoss:
        scores, dense_lost = self._uncollected.pop(loss.name, 0), loss.name in self._dense_lost
        self._dense_lost.discard(loss.name)
        return dataclasses.replace(loss, scores=scores, dense_restored=dense_lost, changed_rows=changed_rows)

    def check_workers(self) -> None:
        """RoleLost where no trainer is left."""
        self._roles.check_trainers()

    @property
    def row_prefetch(self) -> Callable[[Batch], object] | None:
        """Where tables have rows on disk: shards are told of batches that this process reads."""
        return None if self._hints is None else self._hints.send

    def reading(self, loader: Loader) -> AbstractContextManager[RemoteReading | None]:
        """Loaders or trainers read, where they can."""
        return self._reading.prepared(loader)

    def take_scores(self) -> ScoreSketch:
        """The sketches of all trainers, merged, and those of trainers that have left."""
        found, self._scores_left = self._scores_left, ScoreSketch()
        found.merge(self._collect(self._roles.trainers))
        return found

    def _collect(self, names: Sequence[RoleId]) -> ScoreSketch:
        """Scores of a trainer that is lost meanwhile are lost with it, and counted as such."""
        self._collections += 1
        found, names = ScoreSketch(), list(names)
        asked = self._roles.request_all(names, CollectScores(self._collections))
        for name, each in zip(names, asked, strict=True):
            try:
                answer = self._roles.answer(each)
            except PeerLost:
                if not self._roles.caused_by_loss([name]):
                    raise
                continue
            found.merge(unpack_sketch(answer.of(CollectedScores, name), answer.frames))
            self._uncollected.pop(name, None)
        return found

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
                return self._surviving(lambda: self._evaluate(loader))
            except WorkersLost as lost:  # nothing was changed: the others begin again
                _log.warning("the evaluation begins again with %d trainers: %s", len(self._roles.trainers), lost)

    def _evaluate(self, loader: Loader) -> AnyEvaluator | None:
        with self._reading.prepared_for_evaluation(loader) as reading:
            if reading is None:
                return None
            after = self._prepare_prediction()
            tensors, _ = dense_state.to_bytes(self._spec.model, None)
            self._evaluations += 1
            evaluation = ClusterEvaluation(self._roles, BeginEvaluation(self._evaluations, after))
            return evaluation.run(loader, reading, self._frames(tensors))

    def _prepare_prediction(self) -> int:
        """Fetch the dense state where it is not here; returns the order that lookups have to wait for."""
        if self._open is None:
            return self._order
        self._flush_caches(self._roles.trainers)
        self._fetch(self._open, optimizer=False)
        return self._open.parameters.number

    def check_consistent(self) -> None:
        """InputError after a failure: rows and dense parameters may be of different steps."""
        if self._failed or (self._open is not None and self._open.parameters.failed):
            raise InputError("the cluster has failed: close this trainer, and load the last checkpoint into another")

    def _send_begin(self, begun: Begin, rank: int, name: RoleId, tensors: bytes) -> Future[Answer]:
        return self._roles.rpc.request(name, replace(begun, rank=rank, seed=begun.seed + rank), self._frames(tensors))

    def _frames(self, tensors: bytes) -> list[memoryview]:
        return cut([tensors], self._roles.rpc.limits.frame_bytes)

    def _close_mode(self) -> None:
        if (opened := self._open) is None:
            return
        self._open, self._order = None, opened.parameters.number
        self._failed = True  # rows are those of the last step, and dense parameters those of the last fetch
        if not opened.parameters.failed:
            self._flush_caches(self._roles.trainers)
            self._undone = opened.parameters.last_counts()  # discards of a cut: rows may be applied already
            self._order = opened.parameters.number
            self._fetch(opened, optimizer=True)
            self._failed = False
        self._parameters = None  # until here a shard that is started again needs the orders and rules of the mode

    def _fetch_at_rest(self) -> None:
        if self._open is not None:
            self._flush_caches(self._roles.trainers)
            self._fetch(self._open, optimizer=True)

    def _flush_caches(self, names: Sequence[RoleId]) -> None:
        """Let trainers write the changes of cached rows back. Those of one that is lost meanwhile are lost with it."""
        if not cached_tables(self.tables.specs):
            return
        left = list(names)
        while left:
            left = self._flush_some(left)

    def _flush_some(self, names: Sequence[RoleId]) -> list[RoleId]:
        """Let each trainer send a number of requests; returns those that have more changes."""
        if self._flushes is None:
            self._flushes = self.newest_grant()  # a kept segment knows those of runs before
        most, sent, left = max(1, min(FLUSH_REQUESTS, FLUSHES_LOGGED // len(names))), {}, []
        for name in names:
            sent[name] = self._roles.rpc.request(name, FlushCache(self._flushes + 1, most))
            self._flushes += most
        for name, asked in sent.items():
            try:
                flushed = self._roles.answer(asked).of(CacheFlushed, name)
            except PeerLost:
                if not self._roles.caused_by_loss([name]):
                    raise
                continue
            if flushed.left:
                left.append(name)
            if self._open is not None:
                if not flushed.left:
                    self._open.executor.changed_rows.pop(name, None)
                self._open.parameters.count(flushed.counts)
        return left

    def _fetch(self, opened: _OpenMode, *, optimizer: bool) -> None:
        """Fetch the dense state after the last order; at rest no update of it is in flight."""
        number = opened.parameters.number
        if self._fetched[0] == number and (self._fetched[1] or not optimizer):
            return
        own = self.optimizer if optimizer else None
        if opened.mode.dense == "server":
            pieces = []
            for name, places in self._places.items():
                given, reply = self._given(name, GiveDense(optimizer))
                pieces.append((places, given, reply.optimizer))
            dense_state.from_pieces(pieces, self._spec.model, own)
        else:
            cut = opened.executor.cut_step
            if cut is not None and cut.restored is not None:
                load_dense(cut.restored.where, self._spec.model, own)
            elif cut is None or cut.sources:  # else this process has it
                given, reply = self._given_by_trainer(opened, optimizer=optimizer)
                dense_state.from_bytes(given, reply.optimizer, self._spec.model, own)
        self._fetched = (number, optimizer)

    def _given_by_trainer(self, opened: _OpenMode, *, optimizer: bool) -> tuple[bytes, DenseGiven]:
        """From the first trainer, or the next one where it is lost: all have the same, except after a cut.

        WorkersLost where none is left that has it.
        """
        executor = opened.executor
        cut = executor.cut_step
        names, step = (self._roles.trainers, executor.step) if cut is None else (cut.sources, 0)
        for name in list(names):
            try:
                return self._given(name, GiveDense(optimizer, step))
            except (PeerLost, InputError):
                if not self._roles.caused_by_loss([name]):
                    raise
        if cut is not None and cut.behind:  # all that had ended the step were lost since
            executor.cut_step = dataclasses.replace(cut, sources=cut.behind, behind=())
            opened.parameters.count({"dense_steps_lost": 1})
            return self._given_by_trainer(opened, optimizer=optimizer)
        gone = next(name for name in (*reversed(names), *reversed(self._roles.lost)) if name in self._roles.lost)
        error = is_gone(gone, self._roles.lost[gone])
        raise WorkersLost(str(error)) if cut is None else error

    def _given(self, name: RoleId, request: GiveDense) -> tuple[bytes, DenseGiven]:
        answer = self._roles.answer(self._roles.rpc.request(name, request))
        return joined(answer.frames), answer.of(DenseGiven, name)
