"""The trainer: a model with its tables; training, evaluation, prediction, checkpoints.

`fit_loop` has the loop over epochs; `runtime.loop` has the steps.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hotrow import checkpoint
from hotrow.checkpoint.place import Place
from hotrow.client.aggregate import Average
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime import TrainingLoop
from hotrow.runtime.cluster.facts import ClusterFacts
from hotrow.runtime.interrupts import defer_sigint, deliver_pending_sigint
from hotrow.runtime.open_backend import open_backend, workers_in
from hotrow.runtime.settings import EngineChoice, Local, Ray, engine_of
from hotrow.runtime.state import RunState
from hotrow.spec import whole_number
from hotrow.staleness import Statistics
from hotrow.trainer.autocast import Autocast, gains_from_bfloat16
from hotrow.trainer.batches import check_local_batches, check_same_batches, checked_facts, facts_of
from hotrow.trainer.dense import OptimizerMaker, dense_optimizer
from hotrow.trainer.elastic import ElasticTrainers
from hotrow.trainer.fit_loop import FitLoop
from hotrow.trainer.meter import ProgressMeter
from hotrow.trainer.mode_selector import Choice, ModeSelector, initial_mode, parse_mode
from hotrow.trainer.replacing import RoleReplacement
from hotrow.trainer.reports import Evaluated, FoundRows, Report, Split
from hotrow.trainer.saving import BackgroundSaves, Saving
from hotrow.trainer.scaling import JoiningKind, RoleScaling
from hotrow.trainer.schedule import EarlyStopping, EarlyStoppingState, Schedule
from hotrow.trainer.streams import Batches, Leases, evaluation_batches, is_source, leases
from hotrow.worker.evaluators import AnyEvaluator
from hotrow.worker.losses import Loss, Task, objective_of, predictions_of
from hotrow.worker.spec import TrainingSpec

Callback = Callable[["Trainer", Report], None]


class Trainer:
    """Trains a model whose rows are in Hotrow's tables.

    `model` is any module that maps `hotrow.Inputs` to log-odds [samples] (or [samples, labels]); `tables` are its
    embedding tables by name, or the one table. `optimizer` is a torch optimizer over the model's parameters, or makes
    one from them (Adam with lr 0.001 if left out). The loss is binary cross entropy unless the model has a method
    `loss(output, labels)` or one is given: by name ("squared", docs/models.md), or as a function. `task="regression"`
    says that outputs are the numbers to predict. `callbacks` are called with every report, before the caller gets it.

    `workers` train in a `mode` (docs/modes.md), "auto" for one that is chosen during the run. A global batch is split
    into one local batch per worker, unless `local_batch` gives another size.

    After a loss that is not finite `fit` raises an InputError, and what was trained is not saved any more;
    `not_finite="continue"` trains on.

    A table's segment that holds rows of an earlier run is refused, unless `attach` is set (docs/segments.md); the first
    report then says how many rows there are.

    Example:
        >>> import numpy as np
        >>> import hotrow as hr
        >>> ids = hr.data.FeatureBlock("default", "one", ("user",), np.arange(8))
        >>> batch = hr.data.Batch((ids,), np.zeros((8, 0), np.float32), labels=np.ones((8, 1), np.float32))
        >>> model = hr.models.build("lr", hr.InputShape(numbers=0, fields={"user": 1}))
        >>> trainer = hr.Trainer(model, hr.Table(dim=1), global_batch=8)
        >>> reports = list(trainer.fit([batch] * 3))
        >>> trainer.samples, reports[-1].step
        (24, 3)
        >>> trainer.close()
    """

    def __init__(
        self,
        model: nn.Module,
        tables: Mapping[str, Table] | Table,
        *,
        optimizer: torch.optim.Optimizer | OptimizerMaker | None = None,
        schedule: Schedule | None = None,
        loss: Loss | str | None = None,
        task: Task | None = None,
        clip: float | None = None,
        global_batch: int = 4096,
        mode: Choice | None = None,
        workers: int = 1,
        local_batch: int | None = None,
        embedding_average: Average = "batch",
        engine: EngineChoice = "local",
        autocast: Autocast = "off",
        threads: int | None = None,
        callbacks: Sequence[Callback] = (),
        report_every_s: float = 2.0,
        attach: bool = False,
        not_finite: Literal["stop", "continue"] = "stop",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model is a {type(model).__name__}: give a torch.nn.Module")
        self.model = model
        self.global_batch = whole_number("global_batch", global_batch, 1, 2**31)
        self.schedule = schedule or Schedule()
        where = engine_of(engine)
        facts = facts_of(self.global_batch, workers_in(where, workers), local_batch)
        choice = parse_mode(mode)
        begins_in = initial_mode(choice)
        facts = checked_facts(begins_in, facts, where)
        loss, self.task = objective_of(model, loss, task)
        self._predictions = predictions_of(model, loss, self.task)
        spec = TrainingSpec(
            model,
            {tables.name: tables} if isinstance(tables, Table) else tables,
            dense_optimizer(model, optimizer),
            loss,
            clip,
            autocast == "on" or (autocast == "auto" and gains_from_bfloat16()),
            embedding_average,
            threads,
            attach,
            self.task,
        )
        self.state = RunState(schedule=self.schedule.scale, stops_at_nan=not_finite == "stop")
        self._open = open_backend(where, spec, self.state, workers_most=facts.workers)
        self.tables = self._open.tables
        if (pool := self._open.backend.worker_pool) is not None:
            facts = replace(facts, workers=len(pool.names))
        try:
            self.state.samples = self._open.backend.attached_samples()
            self._loop = TrainingLoop(self._open.backend, self.state, mode=begins_in, facts=facts)
            self._found = self._rows_in_segments()  # until it is told
        except BaseException:
            self._open.close()
            raise
        self._mode_selector = ModeSelector(self._loop, choice)
        self._mode_selector.remark(*self._open.remarks)
        self.scaling = RoleScaling(self._loop, self._open.cluster, self._mode_selector.remark)
        self._elastic = self._elastic_trainers(where)
        if self._elastic is not None:
            self._loop.replacements["trainer"] = self._elastic
            self._elastic.start()
        elif isinstance(where, Ray):
            self._loop.replacements["trainer"] = self._replacement(self.scaling.join_trainer, where.replace_lost)
        if isinstance(where, Ray):
            self._loop.replacements["loader"] = self._replacement(self.scaling.join_loader, where.replace_lost)
        self._callbacks = tuple(callbacks)
        self._report_every_s = report_every_s
        self._loader: Loader | None = None
        self._position: Position | None = None  # that was loaded, until there is a loader
        self._watch = EarlyStoppingState()
        self._saves = BackgroundSaves(self._open.backend)
        self.state.last_checkpoint = self._saves.newest
        if self._open.cluster is not None:
            self._open.cluster.shard_restarts.last_checkpoint = self._saves.newest
        self.rows_loaded: dict[str, int] = {}  # by table, from checkpoints: the tables count them as created

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The dense one; None where the model has no parameters."""
        return self._loop.backend.optimizer

    @property
    def mode(self) -> Mode:
        """The active mode."""
        return self._loop.mode

    @property
    def facts(self) -> RunFacts:
        """Workers and batches."""
        return self._loop.facts

    @property
    def statistics(self) -> Statistics:
        """What happened to all grants, and the staleness of gradients."""
        return self._loop.statistics

    @property
    def cluster(self) -> ClusterFacts | None:
        """The current roles of the cluster; None in one process."""
        return None if self._open.cluster is None else self._open.cluster.facts()

    @property
    def position(self) -> Position | None:
        """The trained part of the data, for a resume."""
        return self._position if self._loader is None else self._loader.position()

    @property
    def samples(self) -> int:
        """Samples whose gradients were applied."""
        return self.state.samples

    @property
    def step(self) -> int:
        """Dense steps so far."""
        return self.state.step

    @property
    def lr_scale(self) -> float:
        """The factor of all learning rates now."""
        return self.state.lr_scale

    def fit(
        self,
        train: Batches,
        *,
        valid: Batches | None = None,
        epochs: int = 1,
        shuffle: int = 0,
        seed: int = 0,
        position: Position | None = None,
        early_stopping: EarlyStopping | None = None,
        best: Path | None = None,
        progressive: bool = False,
        most_samples: int | None = None,
    ) -> Iterator[Report]:
        """Train, and yield reports. Nothing happens until they are iterated.

        `valid` is evaluated after every epoch. With `early_stopping` the best state is kept in the folder `best`, and
        comes back at the end. `progressive` predicts every batch before it trains on it, without dropout and the like.
        """
        if self._loop.busy:
            raise InputError(
                "fit() while another is under way: read its reports to the end, or call close() on their iterator"
            )
        if early_stopping is not None and (valid is None or best is None):
            raise ConfigError("early_stopping: give `valid` to judge by and `best`, a folder for the best state")
        if isinstance(position, Position):
            check_same_batches(position, self.facts)
        self._report_segments()
        stream = leases(train, self.facts.local_batch, epochs=epochs, shuffle=shuffle, seed=seed, position=position)
        check_local_batches(stream, self.facts)
        self._loader = stream if isinstance(stream, Loader) else None
        if position is None:
            self._watch = EarlyStoppingState()
        rule = (early_stopping or EarlyStopping()).of_task(self.task)
        self._watch = self._watch.under(rule, keep_best=best is None or checkpoint.exists(best))
        fitting = FitLoop(
            self,
            self._loop,
            self._mode_selector,
            stream,
            self._watch,
            ProgressMeter(self._report_every_s, task=self.task),
            self._emit,
            valid=valid,
            best=best if early_stopping else None,
            epoch=self._watch.ended if position is not None and self._watch.ended < epochs else None,
            stopped="data ended" if epochs == 1 else "epochs done",
            most_samples=most_samples,
            progress=self.evaluator() if progressive else None,
            requires_rows=is_source(train),
        )
        with self._remote_reading(stream, progressive=progressive):
            yield from fitting.reports()

    @contextmanager
    def _remote_reading(self, stream: Leases, *, progressive: bool) -> Iterator[None]:
        """Let other processes read, where they can. To predict batches before they are trained, this one needs them."""
        if not isinstance(stream, Loader):
            yield
            return
        backend = self._open.backend
        stream.load_rows = backend.row_prefetch if stream.loads_ahead else None
        with nullcontext() if progressive else backend.reading(stream) as stream.remote:
            try:
                yield
            finally:
                stream.remote = stream.load_rows = None

    def evaluate(
        self,
        batches: Batches,
        *,
        split: Split = "test",
        epoch: int = 0,
        day: str | None = None,
        also: AnyEvaluator | None = None,
    ) -> Evaluated:
        """The metrics on these batches; nothing is trained and no row is created. `also` gets the samples too.

        The trainers of a cluster read and predict where they can (docs/cluster.md).
        """
        stream = leases(batches, self.global_batch)
        judge = self._loop.evaluate(stream) if isinstance(stream, Loader) else None
        if judge is None:
            judge = self.evaluator()
            for _, batch in stream:
                deliver_pending_sigint()
                judge.add(self._loop.predict(batch), batch)
        if also is not None:
            also.merge(judge)
        return self.evaluation_report(split, judge, epoch, day=day)

    def evaluator(self) -> AnyEvaluator:
        """Takes outputs of this model in, batch by batch."""
        return AnyEvaluator(self.task, self._predictions)

    def evaluation_report(self, split: Split, judge: AnyEvaluator, epoch: int, day: str | None = None) -> Evaluated:
        """A judgement as a report of now."""
        metrics = judge.metrics()
        return Evaluated(
            split, self.samples, self.step, epoch, judge.rows, metrics, day, judge.auc_error, scores=judge.scores
        )

    def predict(self, batches: Batches) -> Iterator[NDArray[np.float32]]:
        """Probabilities, or the numbers of a regression: [samples], or [samples, labels] where there are several."""
        for batch in evaluation_batches(batches, self.global_batch):
            yield self.predict_batch(batch)

    def predict_batch(self, batch: Batch) -> NDArray[np.float32]:
        """Predictions of one batch; a classifier whose outputs are no log-odds has a method `probabilities(output)`."""
        found: NDArray[np.float32] = self._predictions(self._loop.predict(batch)).numpy()
        return found

    def save(self, folder: str | Path, *, keep: int = 1, delta: bool = False, **about: Any) -> Path:
        """Save everything for a later `load`: rows, dense parameters, optimizer state, counters, position in the data.

        The folder, a path or a URI such as s3://bucket/folder, keeps the newest `keep` checkpoints. With `delta` only
        the rows are written that changed since the last save, if that was to this folder; the first one is full.
        `about` is JSON that is kept with it.
        """
        self.save_in_background(folder, keep=keep, delta=delta, slowdown=1.0, **about)
        self.finish_saving()
        return Path(Place.of(folder).name)

    def save_in_background(
        self, folder: str | Path, *, keep: int = 1, delta: bool = False, slowdown: float = 0.05, **about: Any
    ) -> Saving:
        """As `save`, but a thread writes while training goes on: rows that change meanwhile are copied first.

        Training may be delayed by the share `slowdown` of the time that the save takes. The thread has a low priority
        for that, and rests: with a lower share a save takes longer; with 1 it is as fast as `save`.
        One checkpoint is written at a time: the one before is finished first. `Saving.result`, or `finish_saving` for
        the last one, tells how it went.
        """
        self._saves.settle()
        self.check_consistent()
        began = time.monotonic()
        self._loop.rest()
        self.check_consistent()  # after a fault there is no rest
        return self._saves.start(
            folder, self.model, self._content(about), keep=keep, delta=delta, slowdown=slowdown, began=began
        )

    def finish_saving(self) -> Saving | None:
        """Wait for the checkpoint that is being written; raises what made it fail. None where there is none."""
        return self._saves.finish()

    def _content(self, about: dict[str, Any]) -> checkpoint.Saved:
        position = self.position
        return checkpoint.Saved(
            counters={
                "step": self.step,
                "samples": self.samples,
                "plateau": self.state.plateau,
                "mode": self.mode.name,
                **self._watch.counters(),
            },
            position=None if position is None else position.document(),
            about=about,
            mode=self.mode.model_dump(mode="json"),
        )

    @property
    def checkpoint_bytes(self) -> int:
        """About what `save` would write now."""
        return checkpoint.bytes_of(self.model, self.optimizer, self.tables.tiers)

    def check_consistent(self) -> None:
        """InputError where rows and dense parameters may be of different steps: a step or the cluster has failed."""
        self._loop.check_consistent()

    def load(
        self,
        folder: str | Path | Place,
        *,
        strict: bool = True,
        map: Mapping[str, str] | None = None,
        skip: Sequence[str] = (),
    ) -> Position | None:
        """Load a saved state; returns the position in the data, for `fit(position=...)`.

        With `strict=False` a new training starts from a checkpoint, also that of a run or of imported tables, which may
        differ (docs/checkpoints.md): `map` gives new names to its tables and dense layers, `skip` names those to leave
        out. The next `fit` reports the differences. There is no position then.
        """
        if strict and (map or skip):
            raise ConfigError("load(): map and skip are for a checkpoint that may differ: give strict=False too")
        if self._loop.busy:
            raise InputError(
                "load() while a fit is under way: end it first, or its gradients would change what is loaded"
            )
        self._saves.settle()
        here, changing = (self.model, self.optimizer, self._open.backend.row_loader()), self._begin_loading
        if strict:
            loaded = checkpoint.load(folder, *here, changing=changing)
        else:
            loaded = checkpoint.load_into(folder, *here, checkpoint.LoadRules(map or {}, skip), changing=changing)
        self._loop.loaded()
        self._saves.loaded(Place.of(folder).uri if strict else None)
        for name, tier in self.tables.tiers.items():
            self.rows_loaded[name] = self.rows_loaded.get(name, 0) + len(tier)
        state, counters, position = self.state, loaded.saved.counters, loaded.saved.position
        state.step, state.samples = int(counters["step"]), int(counters["samples"])
        state.plateau = float(counters["plateau"]) if strict else 1.0
        self._watch = EarlyStoppingState.of(counters) if strict else EarlyStoppingState()
        if self._found is not None:
            self._found = replace(self._found, replaced_at=self.samples)
        self._loader = None
        self._position = None if position is None or not strict else Position.of(position)
        self._mode_selector.remark(*loaded.lines)
        return self._position

    def _begin_loading(self) -> None:
        """Parameters change from now on: those of the last checkpoint of this run are not what a delta builds on."""
        self._saves.loaded(None)
        self._loop.half_loaded()

    def go_back(self, folder: str | Path) -> None:
        """Restore parameters that this run has saved; counts and position stay."""
        step, samples, position, watch = self.step, self.samples, self.position, self._watch
        with defer_sigint():
            self.load(folder)
        self._position, self._watch = position, watch
        self.state.step, self.state.samples = step, samples

    def switch(self, mode: Choice) -> None:
        """Continue in another mode, also between two reports of a `fit`: batches in progress are applied first.

        Parameters, optimizer state, hyper-parameters and the global batch stay as they are.
        """
        self._mode_selector.switch(mode)

    def join(self, kind: JoiningKind) -> str:
        """Start one more "trainer" or "embedding worker" of a cluster; returns its name.

        Thread-safe; it takes the seconds that a process takes to start. An embedding worker takes part then, a
        trainer from the next step on. In modes whose trainers end steps together that is a step as after a switch.
        """
        return self.scaling.join(kind)

    def leave(self, name: str) -> "Future[None]":
        """Remove a trainer or embedding worker; the future is done when its batches are applied and it has stopped.

        Thread-safe. It happens between steps: do not wait for it in the thread that iterates `fit`.
        """
        return self.scaling.leave(name)

    def schedule_from(self, samples: int) -> None:
        """Begin the schedule of learning rates after so many samples: those of the run that this one starts from."""
        self.state.schedule = lambda now: self.schedule.scale(now - samples)

    def forget_position(self) -> None:
        """Drop the position: the next data is different, and a resume begins with its first row."""
        self._loader = self._position = None

    def close(self, *, at_once: bool = False) -> None:
        """Finish the checkpoint that is being written, and release the tables.

        `at_once`: the process ends, and does not wait for the checkpoint, which is as if it had never begun.
        """
        if self._elastic is not None:
            self._elastic.close()
        reads = at_once and self._saves.abandon()
        try:
            self.finish_saving()
        finally:
            if not reads:
                self._saves.close()
            try:
                self._loop.close()
            finally:
                if not reads or self._open.cluster is not None:  # else a thread still reads rows of this process
                    self._open.close()

    def _elastic_trainers(self, engine: Local | Ray) -> ElasticTrainers | None:
        """None where the number of trainers is fixed."""
        cluster = self._open.cluster
        if not isinstance(engine, Ray) or cluster is None or cluster.places is None:
            return None
        return ElasticTrainers(
            self.scaling,
            cluster.places,
            cluster,
            self._mode_selector.remark,
            lambda: self.step,
            fewest=engine.trainers_fewest,
            most=engine.trainers_most,
            losses_most=engine.replace_lost,
        )

    def _replacement(self, start: Callable[[], object], most: int) -> RoleReplacement:
        return RoleReplacement(start, self._mode_selector.remark, lambda: self.step, most)

    def _rows_in_segments(self) -> FoundRows | None:
        tiers = {name: tier for name, tier in self.tables.tiers.items() if tier.table.segment is not None}
        rows = {name: count for name, tier in tiers.items() if (count := len(tier))}
        return FoundRows(rows, self.samples) if rows else None

    def _report_segments(self) -> None:
        found, self._found = self._found, None
        if found is not None:
            self._mode_selector.remark(str(found))

    def _emit(self, report: Report) -> Report:
        for callback in self._callbacks:
            callback(self, report)
        return report
