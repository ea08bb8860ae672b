"""One fit: the loop over epochs and steps, the validations, and the reports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hotrow.data.loader import Loader
from hotrow.errors import ConfigError, InputError
from hotrow.obs.table_counts import is_gauge
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.staleness import Statistics
from hotrow.trainer.meter import ProgressMeter
from hotrow.trainer.mode_selector import ModeSelector
from hotrow.trainer.reports import Best, EpochEnded, Evaluated, Report, Stopped, TrainingEnded
from hotrow.trainer.schedule import EarlyStoppingState
from hotrow.trainer.streams import Batches, Leases
from hotrow.worker.evaluators import AnyEvaluator

if TYPE_CHECKING:
    from hotrow.trainer.trainer import Trainer


@dataclass(slots=True, eq=False)
class FitLoop:
    """A fit of a trainer, from its first report to its last."""

    trainer: "Trainer"
    loop: TrainingLoop
    mode_selector: ModeSelector
    stream: Leases
    watch: EarlyStoppingState
    meter: ProgressMeter
    emit: Callable[[Report], Report]
    valid: Batches | None
    best: Path | None  # where the best state is kept; None: no early stopping
    epoch: int | None  # that runs
    stopped: Stopped
    most_samples: int | None
    progress: AnyEvaluator | None  # takes predictions in that were made before training
    requires_rows: bool  # whether data without rows are a mistake
    leases: LeaseQueue = field(init=False)
    best_at: int | None = None  # samples at which this fit saved its best state
    epochs_ended: int = 0

    def __post_init__(self) -> None:
        progress = self.progress
        before = None if progress is None else lambda batch: progress.add(self.loop.backend.predict(batch), batch)
        self.leases = LeaseQueue(iter(self.stream), self.stream.done, before, self.most_samples)

    def reports(self) -> Iterator[Report]:
        """Train, and yield reports."""
        held = _hold_all(self.stream)
        counted = mode_counts(self.trainer.statistics)
        self.mode_selector.begin()
        self.loop.backend.take_scores()  # of a fit that was interrupted
        try:
            yield from self._news()
            yield from self._epochs()
        finally:
            try:
                self.loop.rest()
            finally:
                try:
                    self.loop.close()
                finally:
                    self.leases.close()
                    _hold(self.stream, held)
        self.meter.refused += self.loop.take_refused()
        for stepped in self.loop.take_steps():
            self.meter.step(stepped, 0.0)
        self._check_finite()
        if self.trainer.samples == 0 and self.requires_rows:
            raise InputError("the training data hold no rows: name other files, or look at the split")
        if self.epoch is not None and self.stopped == "enough samples":
            if not self.meter.empty:
                yield self._progress(self.epoch)
        elif self.epoch is not None:
            yield from self._end_epoch(self.epoch)
        if self.progress is not None:
            yield self.emit(self.trainer.evaluation_report("progressive", self.progress, self.epoch or 0))
        self.mode_selector.remark(*self.loop.take_remarks())
        yield from self._news()
        yield self.emit(self._end({**self.stream.counts, **mode_counts(self.trainer.statistics, counted)}))

    def _epochs(self) -> Iterator[Report]:
        while (opened := self.leases.open_epoch()) is not None:
            if self.epoch is not None and opened != self.epoch:
                yield from self._end_epoch(self.epoch)
                self.meter.resume()
            if self.best is not None and self.watch.over:  # now, or before it was resumed
                self.stopped, self.epoch = "early stopping", None
                if isinstance(self.stream, Loader):
                    self.stream.discount(opened)
                return
            self.epoch = opened
            yield from self._steps(opened)
            if self.stopped == "enough samples":
                return

    def _steps(self, epoch: int) -> Iterator[Report]:
        for stepped in self.loop.steps(self.leases, self.trainer.step):
            self.meter.step(stepped, self.leases.take_waited())
            self._check_finite()
            self.mode_selector.remark(*self.loop.take_remarks())
            self.mode_selector.stepped()
            yield from self._news()
            if self.meter.due:
                yield self._progress(epoch)
                self.meter.resume()
            if self.most_samples is not None and self.trainer.samples >= self.most_samples:
                self.stopped = "enough samples"
                return

    def _check_finite(self) -> None:
        if (diverged := self.trainer.state.diverged) is not None:
            remedy = "lower the learning rates, set dense.clip, or look for extreme numbers in its rows"
            raise InputError(f"{diverged}: {remedy}; run.not_finite='continue' trains on")

    def _end_epoch(self, epoch: int) -> Iterator[Report]:
        if not self.meter.empty:
            yield self._progress(epoch)
        found = None if self.valid is None else self.trainer.evaluate(self.valid, split="valid", epoch=epoch)
        self.watch.ended = epoch + 1
        self.epochs_ended += 1
        if found is not None:
            self._judge(found)
            yield self.emit(found)
        yield self.emit(EpochEnded(epoch, self.trainer.samples))

    def _judge(self, found: Evaluated) -> None:
        metric, plateau = self.watch.rule.metric or "auc", self.trainer.schedule.plateau
        if metric not in found.metrics:
            if self.best is None and plateau is None:
                return  # no rule needs it
            known = ", ".join(found.metrics) or "none"
            raise ConfigError(f"early_stopping.metric={metric!r}: the validation has no such metric, it has {known}")
        value = found.metrics[metric]
        if value is None:  # only one class in the validation: no metric
            return
        better = self.watch.better(value, found.epoch)
        if better and self.best is not None:
            self.trainer.save(self.best)
            self.best_at = self.trainer.samples
        if not better and plateau is not None:
            self.trainer.state.plateau *= plateau

    def _end(self, counts: dict[str, int]) -> TrainingEnded:
        watch, meter, found = self.watch, self.meter, None
        if self.best is not None and watch.best is not None and watch.epoch is not None:
            restored = self.best_at != self.trainer.samples  # else the state at the end is the best one
            found = Best(watch.rule.metric or "auc", watch.best, watch.epoch, restored)
            if restored:
                self.trainer.go_back(self.best)
        return TrainingEnded(
            samples=self.trainer.samples,
            step=self.trainer.step,
            seconds=meter.trained_s,
            samples_per_s=meter.trained / max(meter.trained_s, 1e-9),
            stopped=self.stopped,
            best=found,
            counts={**counts, "refused_gradients": meter.refused, "losses_not_finite": meter.losses_not_finite},
            epochs=self.epochs_ended,
        )

    def _progress(self, epoch: int) -> Report:
        trainer = self.trainer
        staleness = None if trainer.facts.workers == 1 else trainer.statistics.gradient.mean
        return self.emit(
            self.meter.report(
                samples=trainer.samples,
                step=trainer.step,
                epoch=epoch,
                lr_scale=trainer.lr_scale,
                staleness=staleness,
                scores=self.loop.backend.take_scores(),
            )
        )

    def _news(self) -> Iterator[Report]:
        for report in self.mode_selector.take_reports():
            yield self.emit(report)


def _hold_all(stream: Leases) -> int | None:
    """Lift the bound on open leases: the trainer reports every lease, and a step may hold many batches."""
    if not isinstance(stream, Loader):
        return None
    held, stream.held = stream.held, None
    return held


def _hold(stream: Leases, held: int | None) -> None:
    if isinstance(stream, Loader):
        stream.held = held


def mode_counts(statistics: Statistics, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """What one large batch would not have done, by name and not 0; `before`: counted earlier and not told again.

    How many rows are in GPU memory is told whole.
    """
    counts = {f"{reason}_batches_dropped": count for reason, count in statistics.dropped.items()}
    counts |= {f"{reason}_samples_dropped": count for reason, count in statistics.samples_dropped.items()}
    counts |= {"decayed_gradients": statistics.decayed, "gradients_of_weight_0": statistics.zero_weight}
    counts |= {"decayed_ids": statistics.ids_decayed, "ids_of_weight_0": statistics.ids_zero_weight}
    counts |= statistics.counts
    told = before or {}
    since = {name: count if is_gauge(name) else count - told.get(name, 0) for name, count in counts.items()}
    return {name: count for name, count in since.items() if count}
