"""Checks of a run while it trains: what makes its result worthless without stopping it becomes a warning, once each."""

import math
from collections.abc import Iterator, Mapping

from hotrow.run.config import RunConfig
from hotrow.sizes import number_text
from hotrow.store.rows import Stats
from hotrow.trainer.reports import EpochEnded, Evaluated, Progress, Report

LOSS_MOST = 10.0  # mean cross entropy of a model that learns; chance is 0.69
LOSS_GROWTH = 100.0  # over the lowest loss so far: for losses that are no cross entropy
TURNOVERS_MOST = 10  # evicted rows, in capacities of their table
DISK_WAIT_MOST = 0.25  # of the time of a run


class RunChecks:
    """Gets reports and table figures, returns warnings."""

    def __init__(self, config: RunConfig, samples: int = 0) -> None:
        self._config = config
        self._lowest = math.inf
        self._epoch_began = samples
        self._given: set[str] = set()  # subjects with a warning already

    def report(self, report: Report) -> Iterator[str]:
        """Warnings about a report."""
        match report:
            case Progress():
                if self._diverges(report) and self._first("loss"):
                    yield self._divergence(report)
                self._lowest = min(self._lowest, report.loss)
            case EpochEnded(samples=samples):
                rows, self._epoch_began = samples - self._epoch_began, samples
                if 0 < rows < self._config.run.global_batch and report.epoch == 0 and self._first("rows"):
                    yield self._few_rows(rows)
            case Evaluated() if report.day is None and self._first(f"classes of {report.split}"):
                if (reason := one_class(report)) is not None:
                    yield reason

    def tables(self, stats: Mapping[str, Stats], seconds: float) -> Iterator[str]:
        """Warnings about the figures of tables after some seconds of a run."""
        for name, found in stats.items():
            if found.disk_wait_s > DISK_WAIT_MOST * seconds and self._first(f"disk of {name}"):
                message = (
                    f"table {name!r}: {found.disk_wait_s / seconds:.0%} of the time was spent waiting for the disk"
                )
                section = f"tables.{self._section(name)}"
                yield f"{message}: raise {section}.capacity, the memory, or set {section}.path to a faster disk"
            full = found.capacity_rows
            if full and found.evicted >= TURNOVERS_MOST * full and self._first(f"capacity of {name}"):
                message = f"table {name!r}: {found.evicted:,} rows were evicted, its capacity is {full:,} rows"
                yield f"{message}: rows are lost before they are trained, raise tables.{self._section(name)}.capacity"
            refused = self.lookups_without_row(name, found)
            if refused and self._first(f"full table {name}"):
                message = (
                    f"table {name!r}: is full with {found.rows:,} rows, and eviction='refuse' makes no row for new ids"
                )
                yield f"{message} ({refused:,} lookups so far): raise tables.{self._section(name)}.capacity"

    def lookups_without_row(self, name: str, found: Stats) -> int:
        """Lookups of new ids that a full table gave no row. With admission they are counted only once it is full."""
        table = self._config.tables[self._section(name)]
        full = table.admission is None or found.rows >= found.capacity_rows
        return found.turned_away if table.policy == "refuse" and full else 0

    def _first(self, subject: str) -> bool:
        new = subject not in self._given
        self._given.add(subject)
        return new

    def _diverges(self, report: Progress) -> bool:
        if not math.isfinite(report.loss):
            return True
        most = LOSS_MOST if report.auc is not None else max(LOSS_MOST, LOSS_GROWTH * self._lowest)
        return report.loss > most

    def _divergence(self, report: Progress) -> str:
        rates = [
            f"tables.{name}.optimizer.lr={number_text(table.optimizer.lr)}"
            for name, table in self._config.tables.items()
        ]
        dense = self._config.dense.optimizer.settings.get("lr")
        rates += [f"dense.optimizer.lr={number_text(dense)}"] if isinstance(dense, int | float) else []
        message = f"the loss is {loss_text(report.loss)} after {report.samples:,} samples: training diverges"
        return f"{message}, lower the learning rate ({', '.join(rates)}) or set dense.clip"

    def _few_rows(self, rows: int) -> str:
        batch = self._config.run.global_batch
        held = "1 row" if rows == 1 else f"{rows:,} rows"
        return f"the training data hold {held}, less than one step of run.global_batch={batch:,}: lower it, or add data"

    def _section(self, name: str) -> str:
        return name if name in self._config.tables else "default"


def one_class(report: Evaluated) -> str | None:
    """Why an evaluation has no AUC; None where it has one, or its metrics have none."""
    if report.metrics.get("auc", 0.0) is not None or not report.rows:
        return None
    label = "0" if report.metrics.get("calibration") is None else "1"
    message = f"the {report.split} AUC is unknown: all {report.rows:,} {report.split} rows have the label {label}"
    return f"{message}, and an AUC needs both classes"


def loss_text(loss: float) -> str:
    """A loss: four digits where it is small, none of them where it is huge."""
    return f"{loss:,.4f}" if abs(loss) < 1000 else number_text(round(loss)) if math.isfinite(loss) else str(loss)
