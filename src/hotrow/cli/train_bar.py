"""The progress of a training run on standard error."""

import time
from collections.abc import Callable

from rich.console import Console

from hotrow.cli import report_lines
from hotrow.cli.bars import Bar
from hotrow.trainer import EpochEnded, Evaluated, Remark, Report, Switched, TrainingEnded
from hotrow.trainer import Progress as Trained

WIDEST = 145  # columns of a terminal that fits the calibration too


class TrainBar(Bar):
    """A training run, report by report."""

    def __init__(
        self,
        total: int | None,
        epochs: int,
        *,
        before: int = 0,  # samples trained already, where a run is resumed
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("samples", total, console=console, clock=clock)
        self._epochs, self._whole_epoch = epochs, before == 0
        self._bar.update(self._task, completed=before, description="waiting for the first step")

    def report(self, report: Report) -> None:
        """Show one report."""
        match report:
            case Trained():
                epoch = [f"epoch {report.epoch + 1}/{self._epochs}"] if self._epochs > 1 else []
                shown = [*epoch, *report_lines.quality(report, room=self._fits(WIDEST))]
                if self._room:
                    shown += report_lines.lateness(report.staleness)
                self.show(report.samples, report.samples_per_s, *shown)
            case Evaluated():
                self.line(report_lines.evaluation(report, self._epochs))
            case Switched() | Remark():
                self.line(report_lines.of_the_mode(report))
            case EpochEnded(samples=samples):
                if self.total is None and self._whole_epoch and self._epochs > 1:  # an epoch counts the rows
                    self.total = samples * self._epochs
            case TrainingEnded():
                for line in report_lines.ending(report):
                    self.line(line)
