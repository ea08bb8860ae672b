"""The trainer: a model with its tables, what it can be asked for, and what it saves.

How a fit goes is in `fitting`; a step itself is the engine's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hotrow import checkpoint
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
from hotrow.runtime.open_backend import TrainingSpec, open_backend, workers_in
from hotrow.runtime.settings import EngineChoice, engine_of
from hotrow.spec import whole_number
from hotrow.staleness import Statistics
from hotrow.trainer.autocast import Autocast, gains_from_bfloat16
from hotrow.trainer.batches import check_local_batches, check_same_batches, facts_of
from hotrow.trainer.dense import OptimizerMaker, dense_optimizer
from hotrow.trainer.evaluation import AnyEvaluator
from hotrow.trainer.fit_loop import FitLoop
from hotrow.trainer.found import FoundRows
from hotrow.trainer.meter import ProgressMeter
from hotrow.trainer.mode_selector import Choice, ModeSelector, initial_mode, parse_mode
from hotrow.trainer.reports import Evaluated, Report, Split
from hotrow.trainer.scaling import Kind, RoleScaling
from hotrow.trainer.schedule import EarlyStopping, EarlyStoppingState, Schedule
from hotrow.trainer.streams import Batches, evaluation_batches, is_source, leases
from hotrow.worker.core import Loss

Callback = Callable[["Trainer", Report], None]


class Trainer:
    """Trains a model whose rows live in Hotrow's tables.

    `model` is any module that maps `hotrow.Inputs` to log-odds [samples] (or [samples, labels]); `tables` are its
    embedding tables by name, or the one table. `optimizer` is a torch optimizer over the model's parameters, or
    makes one from them (Adam with lr 0.001 if left out). The loss is binary cross entropy unless the model has a method
    `loss(output, labels)` or one is given. `callbacks` are called with every report, before the caller gets it.

    `workers` train in a `mode` (docs/modes.md), "auto" for one that is chosen as the run goes: a global batch is dealt
    to them in local ones, all of the same size unless `local_batch` says another.

    A table's segment that holds rows of an earlier run is refused, unless `attach` says to take them over (docs/
    segments.md); the first report then tells how many there are.
    """

    def __init__(
        self,
        model: nn.Module,
        tables: Mapping[str, Table] | Table,
        *,
        optimizer: torch.optim.Optimizer | OptimizerMaker | None = None,
        schedule: Schedule | None = None,
        loss: Loss | None = None,
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
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model is a {type(model).__name__}: give a torch.nn.Module")
        self.model = model
        self.global_batch = whole_number("global_batch", global_batch, 1, 2**31)
        self.schedule = schedule or Schedule()
        where = engine_of(engine)
        facts = facts_of(self.global_batch, workers_in(where, workers), local_batch)
        choice = parse_mode(mode)
        initial_mode(choice).check(facts)
        brought = TrainingSpec(
            model,
            {tables.name: tables} if isinstance(tables, Table) else tables,
            dense_optimizer(model, optimizer),
            loss,
            clip,
            autocast == "on" or (autocast == "auto" and gains_from_bfloat16()),
            embedding_average,
            threads,
        )
        self._place = open_backend(where, brought, lambda: (self.samples, self.lr_scale), attach=attach)
        self.client = self._place.client
        try:
            self._engine = TrainingLoop(self._place.site, self._account, mode=initial_mode(choice), facts=facts)
        except BaseException:
            self._place.close()
            raise
        self._mode_selector = ModeSelector(self._engine, choice, lambda: (self.samples, self.step))
        self.members = RoleScaling(self._engine, self._place.cluster, self._mode_selector.say)
        self.step = 0
        self.samples = self.client.samples
        self.plateau = 1.0  # what validations that were no better have left of the learning rates
        self._callbacks = tuple(callbacks)
        self._report_every_s = report_every_s
        self._loader: Loader | None = None
        self._position: Position | None = None  # that was loaded, until there is a loader
        self._watch = EarlyStoppingState()
        self._found = self._rows_in_segments()  # until it is told

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The dense one; None where the model has no parameters."""
        return self._engine.site.optimizer

    @property
    def mode(self) -> Mode:
        """The mode at work."""
        return self._engine.mode

    @property
    def facts(self) -> RunFacts:
        """Workers and batches."""
        return self._engine.facts

    @property
    def statistics(self) -> Statistics:
        """What became of all grants, and how late gradients were."""
        return self._engine.statistics

    @property
    def cluster(self) -> ClusterFacts | None:
        """The roles of the cluster as it stands; None in one process."""
        return None if self._place.cluster is None else self._place.cluster.facts()

    @property
    def position(self) -> Position | None:
        """What of the data is trained, for a resume."""
        return self._position if self._loader is None else self._loader.position()

    @property
    def lr_scale(self) -> float:
        """What all learning rates are multiplied by now."""
        return self.schedule.scale(self.samples) * self.plateau

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
        """Train, telling how it goes. Nothing happens until the reports are asked for.

        `valid` is evaluated after every epoch. With `early_stopping` the best state is kept in the folder `best`, and
        comes back at the end. `progressive` predicts every batch before it trains on it, without dropout and the like.
        """
        if early_stopping is not None and (valid is None or best is None):
            raise ConfigError("early_stopping: give `valid` to judge by and `best`, a folder for the best state")
        if isinstance(position, Position):
            check_same_batches(position, self.facts)
        self._tell_of_segments()
        stream = leases(train, self.facts.local_batch, epochs=epochs, shuffle=shuffle, seed=seed, position=position)
        check_local_batches(stream, self.facts)
        self._loader = stream if isinstance(stream, Loader) else None
        if position is None:
            self._watch = EarlyStoppingState()
        self._watch = self._watch.under(early_stopping, keep_best=best is None or checkpoint.exists(best))
        fitting = FitLoop(
            self,
            self._engine,
            self._mode_selector,
            stream,
            self._watch,
            ProgressMeter(self._report_every_s),
            self._tell,
            valid=valid,
            best=best if early_stopping else None,
            epoch=self._watch.ended if position is not None and self._watch.ended < epochs else None,
            stopped="data ended" if epochs == 1 else "epochs done",
            most_samples=most_samples,
            progress=AnyEvaluator() if progressive else None,
            demands_rows=is_source(train),
        )
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
        """How good the model is on these; nothing is trained and no row is made. `also` takes them in beside others."""
        judge = AnyEvaluator()
        for batch in evaluation_batches(batches, self.global_batch):
            deliver_pending_sigint()
            output = self._engine.predict(batch)
            for taker in (judge, also) if also is not None else (judge,):
                taker.add(output, batch)
        return self.judged(split, judge, epoch, day=day)

    def judged(self, split: Split, judge: AnyEvaluator, epoch: int, day: str | None = None) -> Evaluated:
        """A judgement as a report of now."""
        metrics = judge.metrics()
        return Evaluated(split, self.samples, self.step, epoch, judge.rows, metrics, day=day, scores=judge.scores)

    def predict(self, batches: Batches) -> Iterator[NDArray[np.float32]]:
        """Probabilities, batch by batch: [samples], or [samples, labels] where there are several."""
        for batch in evaluation_batches(batches, self.global_batch):
            yield self.predict_batch(batch)

    def predict_batch(self, batch: Batch) -> NDArray[np.float32]:
        """Probabilities of one batch; a model whose outputs are no log-odds says how in `probabilities(output)`."""
        probabilities = getattr(self.model, "probabilities", torch.sigmoid)
        found: NDArray[np.float32] = probabilities(self._engine.predict(batch)).numpy()
        return found

    def save(self, folder: str | Path, **about: Any) -> Path:
        """Everything a later `load` needs: rows, dense parameters, optimizer state, counters, position in the data.

        `about` is JSON that is kept with it.
        """
        self.check_whole()
        self._engine.rest()
        position = self.position
        saved = checkpoint.Saved(
            counters={
                "step": self.step,
                "samples": self.samples,
                "plateau": self.plateau,
                "mode": self.mode.name,
                **self._watch.counters(),
            },
            position=None if position is None else position.document(),
            about=about,
        )
        return checkpoint.save(Path(folder), self.model, self.optimizer, self.client.tiers, saved)

    @property
    def checkpoint_bytes(self) -> int:
        """About what `save` would write now."""
        return checkpoint.bytes_of(self.model, self.optimizer, self.client.tiers)

    def check_whole(self) -> None:
        """InputError where a cluster has failed: its rows and dense parameters may be of different steps."""
        self._engine.site.check_whole()

    def load(self, folder: str | Path) -> Position | None:
        """Go on from a saved state; gives the position in the data, for `fit(position=...)`."""
        if self._engine.busy:
            raise InputError(
                "load() while a fit is under way: end it first, or its gradients would change what is loaded"
            )
        saved = checkpoint.load(Path(folder), self.model, self.optimizer, self.client.tiers)
        self.step, self.samples = int(saved.counters["step"]), int(saved.counters["samples"])
        self.plateau = float(saved.counters["plateau"])
        self.client.samples = self.samples
        self._watch = EarlyStoppingState.of(saved.counters)
        if self._found is not None:
            self._found = replace(self._found, replaced_at=self.samples)
        self._loader = None
        self._position = None if saved.position is None else Position.of(saved.position)
        return self._position

    def go_back(self, folder: str | Path) -> None:
        """To a state that this run has saved. What was trained since was trained: counts and position stay."""
        step, samples, position, watch = self.step, self.samples, self.position, self._watch
        with defer_sigint():
            self.load(folder)
        self._position, self._watch = position, watch
        self.step = step
        self.samples = self.client.samples = samples

    def switch(self, mode: Choice) -> None:
        """Go on in another mode, also between two reports of a `fit`: what is being computed is applied first.

        Parameters, optimizer state, hyper-parameters and the global batch stay as they are.
        """
        self._mode_selector.switch(mode)

    def join(self, kind: Kind) -> str:
        """Start one more "trainer" or "embedding worker" of a cluster; gives its name.

        In any thread; it takes the seconds that a process takes to start. An embedding worker takes part then, a
        trainer from the next step on. In modes whose trainers end steps together that is a step as after a switch.
        """
        return self.members.join(kind)

    def leave(self, name: str) -> "Future[None]":
        """Let a trainer or an embedding worker go; done when all that it has is applied and its process has stopped.

        In any thread. It happens as steps are made: do not wait for it in the thread that makes them.
        """
        return self.members.leave(name)

    def forget_position(self) -> None:
        """What comes next are other data: a resume begins with their first row."""
        self._loader = self._position = None

    def close(self) -> None:
        """Give the tables up."""
        try:
            self._engine.close()
        finally:
            self._place.close()

    def _rows_in_segments(self) -> FoundRows | None:
        tiers = {name: tier for name, tier in self.client.tiers.items() if tier.table.segment is not None}
        rows = {name: count for name, tier in tiers.items() if (count := len(tier))}
        return FoundRows(rows, self.client.samples) if rows else None

    def _tell_of_segments(self) -> None:
        found, self._found = self._found, None
        if found is not None:
            self._mode_selector.say(str(found))

    def _account(self, samples: int, dense_step: bool) -> tuple[int, float]:
        """Take an aggregate in that is about to be applied."""
        scale = self.lr_scale
        self.samples += samples
        self.step += dense_step
        return self.samples, scale

    def _tell(self, report: Report) -> Report:
        for callback in self._callbacks:
            callback(self, report)
        return report
