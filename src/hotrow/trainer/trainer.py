"""The trainer: a model with its tables; training, evaluation, prediction, checkpoints.

`fit_loop` has the loop over epochs; `runtime.loop` has the steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hotrow.checkpoint.place import Place
from hotrow.client.aggregate import Average
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.position import Position
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.cluster.facts import ClusterFacts
from hotrow.runtime.open_backend import workers_in
from hotrow.runtime.settings import EngineChoice, engine_of
from hotrow.runtime.state import RunState
from hotrow.spec import whole_number
from hotrow.staleness import Statistics
from hotrow.trainer.autocast import Autocast, takes_bfloat16
from hotrow.trainer.batches import check_local_batches, check_same_batches, checked_facts, facts_of
from hotrow.trainer.checkpoints import DataProgress, TrainerCheckpoints
from hotrow.trainer.dense import OptimizerMaker, dense_optimizer
from hotrow.trainer.evaluation import TrainerEvaluation
from hotrow.trainer.fit_loop import FitLoop
from hotrow.trainer.meter import ProgressMeter
from hotrow.trainer.mode_selector import Choice, ModeSelector, initial_mode, parse_mode
from hotrow.trainer.opening import open_training
from hotrow.trainer.replacing import replace_lost_roles
from hotrow.trainer.reports import Evaluated, Report, Split
from hotrow.trainer.saving import Saving
from hotrow.trainer.scaling import JoiningKind, RoleScaling
from hotrow.trainer.schedule import EarlyStopping, Schedule
from hotrow.trainer.streams import Batches, evaluation_batches, is_source, leases, remote_reading
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
        spec = TrainingSpec(
            model,
            {tables.name: tables} if isinstance(tables, Table) else tables,
            dense_optimizer(model, optimizer),
            loss,
            clip,
            takes_bfloat16(autocast, where),
            embedding_average,
            threads,
            attach,
            self.task,
        )
        self.state = RunState(schedule=self.schedule.scale, stops_at_nan=not_finite == "stop")
        self._open, self._loop, self._found = open_training(where, spec, self.state, begins_in, facts)
        self.tables = self._open.tables
        self._mode_selector = ModeSelector(self._loop, choice)
        self._mode_selector.remark(*self._open.remarks)
        self.scaling = RoleScaling(self._loop, self._open.cluster, self._mode_selector.remark)
        self._progress = DataProgress()
        self._checkpoints = TrainerCheckpoints(model, self.tables, self._loop, self._progress)
        self._evaluation = TrainerEvaluation(self._loop, self.task, predictions_of(model, loss, self.task))
        self.state.last_checkpoint = newest = self._checkpoints.saves.newest
        self._elastic = replace_lost_roles(
            self._loop, self.scaling, where, self._open.cluster, newest, self._mode_selector.remark
        )
        self._callbacks, self._report_every_s = tuple(callbacks), report_every_s

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
        return self._progress.position

    @property
    def samples(self) -> int:
        """Samples whose gradients were applied."""
        return self.state.samples

    @property
    def step(self) -> int:
        """Dense steps so far."""
        return self.state.step

    @property
    def rows_loaded(self) -> Mapping[str, int]:
        """By table, rows that came from checkpoints: the tables count them as created."""
        return self._checkpoints.rows_loaded

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
        found, self._found = self._found, None
        if found is not None:
            self._mode_selector.remark(str(found))
        stream = leases(train, self.facts.local_batch, epochs=epochs, shuffle=shuffle, seed=seed, position=position)
        check_local_batches(stream, self.facts)
        rule = (early_stopping or EarlyStopping()).of_task(self.task)
        watch = self._progress.begin(stream, rule, best, resumed=position is not None)
        fitting = FitLoop(
            self,
            self._loop,
            self._mode_selector,
            stream,
            watch,
            ProgressMeter(self._report_every_s, task=self.task),
            self._emit,
            valid=valid,
            best=best if early_stopping else None,
            epoch=watch.ended if position is not None and watch.ended < epochs else None,
            stopped="data ended" if epochs == 1 else "epochs done",
            most_samples=most_samples,
            progress=self.evaluator() if progressive else None,
            requires_rows=is_source(train),
        )
        with remote_reading(stream, self._open.backend, whole_batches=progressive):
            yield from fitting.reports()

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
        judge = self._evaluation.evaluated(leases(batches, self.global_batch))
        if also is not None:
            also.merge(judge)
        return self.evaluation_report(split, judge, epoch, day=day)

    def evaluator(self) -> AnyEvaluator:
        """Takes outputs of this model in, batch by batch."""
        return self._evaluation.evaluator()

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
        return self._evaluation.predicted(batch)

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
        return self._checkpoints.start(folder, about, keep=keep, delta=delta, slowdown=slowdown)

    def finish_saving(self) -> Saving | None:
        """Wait for the checkpoint that is being written; raises what made it fail. None where there is none."""
        return self._checkpoints.saves.finish()

    @property
    def checkpoint_bytes(self) -> int:
        """About what `save` would write now."""
        return self._checkpoints.size

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
        lines = self._checkpoints.load(folder, strict=strict, map=map or {}, skip=skip)
        if self._found is not None:
            self._found = replace(self._found, replaced_at=self.samples)
        self._mode_selector.remark(*lines)
        return self.position

    def go_back(self, folder: str | Path) -> None:
        """Restore parameters that this run has saved; counts and position stay."""
        self._mode_selector.remark(*self._checkpoints.go_back(folder))

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
        self._progress.forget()

    def close(self, *, at_once: bool = False) -> None:
        """Finish the checkpoint that is being written, and release the tables.

        `at_once`: the process ends, and does not wait for the checkpoint, which is as if it had never begun.
        """
        if self._elastic is not None:
            self._elastic.close()
        reads = at_once and self._checkpoints.saves.abandon()
        try:
            self.finish_saving()
        finally:
            if not reads:
                self._checkpoints.saves.close()
            try:
                self._loop.close()
            finally:
                if not reads or self._open.cluster is not None:  # else a thread still reads rows of this process
                    self._open.close()

    def _emit(self, report: Report) -> Report:
        for callback in self._callbacks:
            callback(self, report)
        return report
