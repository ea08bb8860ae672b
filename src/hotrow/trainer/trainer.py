"""The trainer: loops over data, evaluates, stops early, and tells about it. A step itself is the engine's."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hotrow import checkpoint
from hotrow.client import LocalClient
from hotrow.client.aggregate import Average
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.engines import LocalEngine, Pool
from hotrow.engines.unbroken import breath, unbroken
from hotrow.errors import ConfigError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.spec import whole_number
from hotrow.staleness import Statistics
from hotrow.trainer.autocast import Autocast, gains_from_bfloat16
from hotrow.trainer.batches import demand_local_batches, demand_same_batches, facts_of
from hotrow.trainer.counts import mode_counts
from hotrow.trainer.evaluation import AnyJudge
from hotrow.trainer.meter import Meter
from hotrow.trainer.reports import Best, Ended, EpochEnded, Evaluated, Report, Split, Stopped
from hotrow.trainer.schedule import EarlyStopping, Schedule, Watch
from hotrow.trainer.steering import Choice, Steering, chosen, first_of
from hotrow.trainer.streams import Batches, evaluation_batches, is_source, leases
from hotrow.worker.core import Loss

OptimizerMaker = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Callback = Callable[["Trainer", Report], None]


class Trainer:
    """Trains a model whose rows live in Hotrow's tables.

    `model` is any module that maps `hotrow.Inputs` to log-odds [samples] (or [samples, labels]); `tables` are its
    embedding tables by name, or the one table. `optimizer` is a torch optimizer over the model's parameters, or
    makes one from them (Adam with lr 0.001 if left out). The loss is binary cross entropy unless the model has a method
    `loss(output, labels)` or one is given. `callbacks` are called with every report, before the caller gets it.

    `workers` train in a `mode` (docs/modes.md), "auto" for one that is chosen as the run goes: a global batch is dealt
    to them in local ones, all of the same size unless `local_batch` says another.
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
        autocast: Autocast = "off",
        threads: int | None = None,
        callbacks: Sequence[Callback] = (),
        report_every_s: float = 2.0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model is a {type(model).__name__}: give a torch.nn.Module")
        self.model = model
        self.global_batch = whole_number("global_batch", global_batch, 1, 2**31)
        self.schedule = schedule or Schedule()
        self.client = LocalClient({tables.name: tables} if isinstance(tables, Table) else tables, threads=threads)
        facts = facts_of(self.global_batch, workers, local_batch)
        choice = chosen(mode)
        self._engine = LocalEngine(
            model,
            self.client,
            _dense_optimizer(model, optimizer),
            self._account,
            mode=first_of(choice),
            facts=facts,
            average=embedding_average,
            loss=loss,
            clip=clip,
            autocast=autocast == "on" or (autocast == "auto" and gains_from_bfloat16()),
        )
        self._steering = Steering(self._engine, choice, lambda: (self.samples, self.step))
        self.step = 0
        self.samples = self.client.samples
        self.plateau = 1.0  # what validations that were no better have left of the learning rates
        self._callbacks = tuple(callbacks)
        self._report_every_s = report_every_s
        self._loader: Loader | None = None
        self._position: Position | None = None  # that was loaded, until there is a loader
        self._watch = Watch()

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The dense one; None where the model has no parameters."""
        return self._engine.optimizer

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
            demand_same_batches(position, self.facts)
        stream = leases(train, self.facts.local_batch, epochs=epochs, shuffle=shuffle, seed=seed, position=position)
        demand_local_batches(stream, self.facts)
        self._loader = stream if isinstance(stream, Loader) else None
        best_is_there = best is None or checkpoint.exists(best)
        if position is None:
            self._watch = Watch()
        watch = self._watch = self._watch.under(early_stopping, keep_best=best_is_there)
        stopped: Stopped = "data ended" if epochs == 1 else "epochs done"
        meter = Meter(self._report_every_s)
        progress = AnyJudge() if progressive else None
        self._engine.before = None if progress is None else lambda batch: self._foretell(batch, progress)
        epoch = watch.ended if position is not None and watch.ended < epochs else None  # the one that runs
        pool = Pool(iter(stream))
        held = _hold_all(self._loader)
        counted = mode_counts(self.statistics)
        self._steering.begin()
        try:
            yield from self._news()
            while (opened := pool.open_epoch()) is not None:
                if epoch is not None and opened != epoch:
                    yield from self._end_epoch(epoch, meter, valid, watch, best if early_stopping else None)
                    meter.resume()
                if early_stopping is not None and watch.over:  # now, or before it was resumed
                    stopped, epoch = "early stopping", None
                    break
                epoch = opened
                for stepped in self._engine.steps(pool, self.step, stream.done):
                    meter.step(stepped, pool.take_waited())
                    self._steering.stepped()
                    yield from self._news()
                    if meter.due:
                        yield self._tell(self._progress(meter, epoch))
                        meter.resume()
                    if most_samples is not None and self.samples >= most_samples:
                        stopped = "enough samples"
                        break
                if stopped == "enough samples":
                    break
        finally:
            try:
                self._engine.rest()
            finally:
                self._engine.close()
                pool.close()
                _hold(self._loader, held)
        for stepped in self._engine.take_early():
            meter.step(stepped, 0.0)
        if self.samples == 0 and is_source(train):
            raise InputError("the training data hold no rows: name other files, or look at the split")
        if epoch is not None and stopped == "enough samples":
            if not meter.empty:
                yield self._tell(self._progress(meter, epoch))
        elif epoch is not None:
            yield from self._end_epoch(epoch, meter, valid, watch, best if early_stopping else None)
        if progress is not None:
            yield self._tell(self._evaluated("progressive", progress, epoch or 0))
        yield from self._news()
        counts = {**stream.counts, **mode_counts(self.statistics, counted)}
        yield self._tell(self._end(meter, watch, stopped, best if early_stopping else None, counts))

    def evaluate(
        self,
        batches: Batches,
        *,
        split: Split = "test",
        epoch: int = 0,
        day: str | None = None,
        also: AnyJudge | None = None,
    ) -> Evaluated:
        """How good the model is on these; nothing is trained and no row is made. `also` takes them in beside others."""
        judge = AnyJudge()
        for batch in evaluation_batches(batches, self.global_batch):
            breath()
            output = self._engine.predict(batch)
            for taker in (judge, also) if also is not None else (judge,):
                taker.add(output, batch)
        return self._evaluated(split, judge, epoch, day=day)

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
        self._watch = Watch.of(saved.counters)
        self._loader = None
        self._position = None if saved.position is None else Position.of(saved.position)
        return self._position

    def switch(self, mode: Choice) -> None:
        """Go on in another mode, also between two reports of a `fit`: what is being computed is applied first.

        Parameters, optimizer state, hyper-parameters and the global batch stay as they are.
        """
        self._steering.switch(mode)

    def forget_position(self) -> None:
        """What comes next are other data: a resume begins with their first row."""
        self._loader = self._position = None

    def close(self) -> None:
        """Give the tables up."""
        self._engine.close()
        self.client.close()

    def _account(self, samples: int, dense_step: bool) -> tuple[int, float]:
        """Take an aggregate in that is about to be applied."""
        scale = self.lr_scale
        self.samples += samples
        self.step += dense_step
        return self.samples, scale

    def _foretell(self, batch: Batch, progress: AnyJudge) -> None:
        progress.add(self._engine.predict(batch), batch)

    def _end_epoch(
        self, epoch: int, meter: Meter, valid: Batches | None, watch: Watch, best: Path | None
    ) -> Iterator[Report]:
        if not meter.empty:
            yield self._tell(self._progress(meter, epoch))
        found = None if valid is None else self.evaluate(valid, split="valid", epoch=epoch)
        watch.ended = epoch + 1
        if found is not None:
            self._judge(found, watch, best)
            yield self._tell(found)
        yield self._tell(EpochEnded(epoch, self.samples))

    def _judge(self, found: Evaluated, watch: Watch, best: Path | None) -> None:
        metric = watch.rule.metric
        if metric not in found.metrics:
            if best is None and self.schedule.plateau is None:
                return  # nobody judges by it
            known = ", ".join(found.metrics) or "none"
            raise ConfigError(f"early_stopping.metric={metric!r}: the validation has no such metric, it has {known}")
        value = found.metrics[metric]
        if value is None:  # one class alone in the validation: it says nothing
            return
        better = watch.better(value, found.epoch)
        if better and best is not None:
            self.save(best)
        if not better and self.schedule.plateau is not None:
            self.plateau *= self.schedule.plateau

    def _end(self, meter: Meter, watch: Watch, stopped: Stopped, best: Path | None, counts: Mapping[str, int]) -> Ended:
        found = None
        if best is not None and watch.best is not None and watch.epoch is not None:
            found = Best(watch.rule.metric, watch.best, watch.epoch)
            step, samples = self.step, self.samples
            position = self.position
            with unbroken():
                self.load(best)
            self._position = position
            self.step = step  # what was trained was trained
            self.samples = self.client.samples = samples
            self._watch = watch
        return Ended(
            samples=self.samples,
            step=self.step,
            seconds=meter.trained_s,
            samples_per_s=meter.trained / max(meter.trained_s, 1e-9),
            stopped=stopped,
            best=found,
            counts={**counts, "refused_gradients": meter.refused, "losses_not_finite": meter.losses_not_finite},
        )

    def _progress(self, meter: Meter, epoch: int) -> Report:
        staleness = None if self.facts.workers == 1 else self.statistics.gradient.mean
        return meter.report(
            samples=self.samples, step=self.step, epoch=epoch, lr_scale=self.lr_scale, staleness=staleness
        )

    def _evaluated(self, split: Split, judge: AnyJudge, epoch: int, day: str | None = None) -> Evaluated:
        metrics = judge.metrics()
        return Evaluated(split, self.samples, self.step, epoch, judge.rows, metrics, day=day, scores=judge.scores)

    def _news(self) -> Iterator[Report]:
        for report in self._steering.take_news():
            yield self._tell(report)

    def _tell(self, report: Report) -> Report:
        for callback in self._callbacks:
            callback(self, report)
        return report


def _hold_all(loader: Loader | None) -> int | None:
    """The trainer reports every lease, and a step may hold more batches than somebody forgetful should."""
    if loader is None:
        return None
    held, loader.held = loader.held, None
    return held


def _hold(loader: Loader | None, held: int | None) -> None:
    if loader is not None:
        loader.held = held


def _dense_optimizer(
    model: nn.Module, given: torch.optim.Optimizer | OptimizerMaker | None
) -> torch.optim.Optimizer | None:
    if isinstance(given, torch.optim.Optimizer):
        return given
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        return None
    made = torch.optim.Adam(parameters, lr=1e-3) if given is None else given(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"optimizer gives a {type(made).__name__}: give a torch.optim optimizer, or what makes one")
    return made
