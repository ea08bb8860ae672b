"""What a run writes while it trains and at its end: reports, warnings, tables, checkpoints, summary, report page."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow import checkpoint
from hotrow.data.config import Data
from hotrow.disk import fault_of, written
from hotrow.errors import FileError, HotrowError
from hotrow.run.checks import RunChecks
from hotrow.run.config import RunConfig, as_toml
from hotrow.run.folder import CHECKPOINT, RunFolder
from hotrow.run.progress import RunProgress
from hotrow.runtime.settings import Ray
from hotrow.sizes import size_text
from hotrow.trainer import Evaluated, Progress, Remark, Report, Trainer, TrainingEnded
from hotrow.trainer.saving import Saving

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.run.control_server import ControlServer

TABLES_EVERY = 10  # progress reports between two readings of the tables' figures


class RunRecorder:
    """Writes the reports of one run to its folder. `summary` is the result, `page` the path of the report page.

    A file that cannot be written while the run trains is a warning; one that cannot be written at the end is a
    FileError.
    """

    def __init__(self, folder: Path, config: RunConfig, data: Data, trainer: Trainer, progress: RunProgress) -> None:
        self.folder = folder
        self.summary: dict[str, Any] = {"run": str(folder)}
        self.page: Path | None = None
        self.unsaved: FileError | None = None  # why the state at the end is in no checkpoint
        self.control_server: ControlServer | None = None  # while a run on a cluster trains
        self._config, self._data, self._trainer, self._progress = config, data, trainer, progress
        self._saving: Saving | None = None  # the checkpoint that is being written
        self._deltas = 0  # since the last full checkpoint
        self._slow_told = False  # that checkpoints take longer than the samples between them
        self._before = self._saved_at = self._in_checkpoint = trainer.samples
        self.files = RunFolder(
            folder, tensorboard=config.run.tensorboard, metrics_port=config.run.metrics_port, **self._trained()
        )
        self._checks = RunChecks(config, self._before)
        self._began_s = time.monotonic()
        self._progress_reports = 0
        self._settings_written = False
        self._tables_at: int | None = None  # samples at which the tables' figures were last written
        self._new_warnings: list[Remark] = []
        self._validations: dict[int, Evaluated] = {}  # by epoch

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to resume from; one that is being written is finished first."""
        self._take_saved(wait=True)
        return checkpoint.exists(self.folder / CHECKPOINT)

    @property
    def saved_all(self) -> bool:
        """Whether the last checkpoint holds everything that was trained."""
        return self.saved and self._in_checkpoint == self._trainer.samples

    @property
    def trained_nothing(self) -> bool:
        """Whether no gradient was applied since this run began, or was resumed."""
        return self._trainer.samples == self._before

    # While it trains

    def start(self, *, resumed: bool, samples_expected: int | None, started_from: str | None) -> None:
        """Write config, schema and machine; FileError where the folder cannot be written."""
        trainer, cluster = self._trainer, self._trainer.cluster
        self._write_cluster()
        if not resumed:
            self._write_settings()
        self.files.start(
            run=self.folder.name,
            model=self._config.model.name,
            parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
            samples_expected=samples_expected,
            tables=list(trainer.tables.tiers),
            resumed=resumed,
            started_from=started_from,
            engine=self._config.run.engine.name,
            roles=None if cluster is None else {name: place.node for name, place in cluster.roles.items()},
        )

    def write_first_mode(self) -> None:
        self.files.begins_in(self._trainer.mode, self._trainer.facts, self._trained(), self._config.run.mode.name)

    def take(self, report: Report) -> None:
        """Write a report of training, and what is due with it: the tables' figures, a checkpoint."""
        self.files.take(report, self._lr())
        for sentence in self._checks.report(report):
            self.warn(sentence)
        match report:
            case Progress():
                self._take_progress()
            case Evaluated(day=str(day)):
                self._progress.days.tested_on(day)
            case Evaluated():
                self._summarize(report)
            case TrainingEnded():
                self._write_tables()  # warnings about the tables come before the test
                if report.best is not None and report.best.epoch in self._validations:
                    self._summarize(self._validations[report.best.epoch])  # that state was restored
                self.summary |= {
                    "samples": report.samples,
                    "seconds": report.seconds,
                    "samples_per_s": report.samples_per_s,
                    "stopped": report.stopped,
                    "best": None if report.best is None else asdict(report.best),
                    "counts": report.counts,
                }

    def take_test(self, report: Evaluated) -> None:
        """Write the evaluation of a run's test part, also of the one day that it tests on."""
        self.files.take(report, self._lr())
        self._summarize(report)
        for sentence in self._checks.report(report):
            self.warn(sentence)

    def warn(self, sentence: str) -> None:
        """Write a warning, and give it out with the next `take_warnings`."""
        self.files.warning(sentence)
        trainer = self._trainer
        self._new_warnings.append(Remark(trainer.samples, trainer.step, trainer.mode.name, sentence))

    def take_warnings(self) -> Iterator[Remark]:
        """Warnings since the last call."""
        for fault in self.files.take_faults():
            self.warn(f"{fault}; training continues without it")
        new, self._new_warnings = self._new_warnings, []
        yield from new

    # At the end

    def finish(self, stopped: str | None, out_of_reach: str | None = None) -> None:
        """Write the last checkpoint, figures and page. All are tried; then FileError with those that failed."""
        faults: list[FileError | None] = []
        trainer = self._trainer
        if stopped is not None:  # first: a second Ctrl-C may end all that waits
            self.files.stopped(stopped, self._trained())
            self.note_stop(stopped)
        self._take_saved(wait=True)
        self.files.trouble(self._data.train.trouble)
        self.summary |= {"mode": trainer.mode.name, "statistics": trainer.statistics.document()}
        if out_of_reach is None:
            if not self.trained_nothing or not self.saved:  # nothing new would only lose the old position
                self.unsaved = fault_of(self._save_last)
                faults.append(self.unsaved)
            if self._tables_at != trainer.samples:
                self._write_tables()
            self.summary["rows"] = {name: len(tier) for name, tier in trainer.tables.tiers.items()}
            faults.append(fault_of(lambda: self.files.describe(trainer.tables, trainer.rows_loaded)))
        else:
            message = "what was trained since the last checkpoint" if self.saved else "what was trained"
            self.files.warning(f"{out_of_reach}: {message} is not kept")
        faults.append(fault_of(self._write_page))
        if unwritten := [str(fault) for fault in faults if fault is not None]:
            raise FileError("; ".join(unwritten))

    def note_stop(self, stopped: str) -> None:
        """Put why and where the run stopped into the summary."""
        self.summary |= {"stopped": stopped, **self._trained()}

    def abandon_saving(self) -> None:
        """Wait no longer for the checkpoint that is being written."""
        self._saving = None

    def close(self) -> None:
        self.files.close()
        if self.control_server is not None:
            self.control_server.close()

    # Parts of these

    def _take_progress(self) -> None:
        self._progress_reports += 1
        if (fault := fault_of(self._write_cluster)) is not None:
            self.files.failed(self.folder, fault)
        self.files.trouble(self._data.train.trouble)
        if self._progress_reports % TABLES_EVERY == 1:
            self._write_tables()
        self._take_saved()
        every = self._config.run.checkpoint_every
        if every is not None and self._trainer.samples - self._saved_at >= every:
            if self._saving is None:
                self._start_saving(every)
            else:
                self._warn_slow(self._saving, every)

    def _summarize(self, report: Evaluated) -> None:
        self.summary |= {f"{report.split}_{name}": value for name, value in report.metrics.items()}
        if "auc" in report.metrics:
            self.summary[f"{report.split}_auc_error"] = report.auc_error
        if report.split == "valid":
            self._validations[report.epoch] = replace(report, scores=None)

    def _write_tables(self) -> None:
        trainer = self._trainer
        self._tables_at = trainer.samples
        found = self.files.tables(trainer.tables, trainer.samples, trainer.rows_loaded)
        for sentence in self._checks.tables(found, time.monotonic() - self._began_s):
            self.warn(sentence)
        refused = {name: self._checks.lookups_without_row(name, stats) for name, stats in found.items()}
        if any(refused.values()):
            self.summary["lookups_without_row"] = {name: count for name, count in refused.items() if count}
        self.files.statistics(trainer.statistics, trainer.samples)

    def _write_settings(self) -> None:
        self.files.settings(as_toml(self._config), self._data.schema.model_dump_json(indent=1) + "\n")
        self._settings_written = True

    def _save(self) -> None:
        """The checkpoint at the end, after the one that is being written."""
        self._take_saved(wait=True)
        where, how = self.folder / CHECKPOINT, self._how_to_save()
        self._saved(self._trainer.save_in_background(where, slowdown=1.0, **how))  # nothing is trained meanwhile

    def _save_last(self) -> None:
        """`_save`; FileError for whatever keeps it from being written: page and figures are written then, too."""
        try:
            self._save()
        except FileError:
            raise
        except HotrowError as error:
            raise FileError(f"{self.folder / CHECKPOINT}: the last checkpoint is not written: {error}") from error

    def _start_saving(self, every: int) -> None:
        """A checkpoint while training goes on; where it cannot be written, training continues."""
        self._saved_at = self._trainer.samples
        try:
            self._saving = self._trainer.save_in_background(self.folder / CHECKPOINT, **self._how_to_save())
        except HotrowError as fault:  # also a shard that was lost meanwhile, or still writes the one before
            self._warn_unsaved(fault, every)

    def _take_saved(self, *, wait: bool = False) -> None:
        """What became of the checkpoint that was being written."""
        if self._saving is None or not (wait or self._saving.done):
            return
        saving, self._saving = self._saving, None
        try:
            self._saved(saving)
        except HotrowError as fault:  # also the loss of a shard, which ends the run by itself
            self._warn_unsaved(fault, self._config.run.checkpoint_every or 0)

    def _saved(self, saving: Saving) -> None:
        """Note a checkpoint, once it is written; FileError where it is not."""
        manifest = saving.result().manifest
        samples = int(manifest.counters["samples"])
        if not self._settings_written:  # a resume that trains nothing leaves the old ones
            self._write_settings()
        self._saved_at = max(self._saved_at, samples)
        self._in_checkpoint = samples
        self._deltas = 0 if manifest.base is None else self._deltas + 1
        self.files.checkpoint(samples, self.folder / CHECKPOINT, saving)

    def _warn_unsaved(self, fault: HotrowError, every: int) -> None:
        self.warn(f"{fault}; training continues, the next attempt is {every:,} samples later")

    def _warn_slow(self, saving: Saving, every: int) -> None:
        """Once: the next checkpoint begins when this one is written, so that they do not pile up."""
        if self._slow_told:
            return
        self._slow_told = True
        done = f"{size_text(saving.written)} of about {size_text(saving.size)} in {saving.seconds:.1f} s"
        message = (
            f"{self.folder / CHECKPOINT}: the next checkpoint is due, and the one before is being written ({done})"
        )
        remedy = f"raise run.checkpoint_every={every:,}, or save to a faster disk"
        self.warn(f"{message}: the next one begins when it is done, {remedy}")

    def _how_to_save(self) -> dict[str, Any]:
        """Every `checkpoint_full_every`-th checkpoint is full, the others hold what changed."""
        run = self._config.run
        delta = self._deltas + 1 < run.checkpoint_full_every
        return {"keep": run.checkpoint_keep, "delta": delta, **self._progress.document()}

    def _write_page(self) -> None:
        self.page = self.files.finish()
        self.summary["report"] = str(self.page)

    def _write_cluster(self) -> None:
        engine, facts = self._config.run.engine, self._trainer.cluster
        if isinstance(engine, Ray) and facts is not None:
            with written(self.folder, "the addresses of the cluster"):
                self.files.cluster.write(
                    facts, engine.key, None if self.control_server is None else self.control_server.address
                )

    def _trained(self) -> dict[str, int]:
        return {"samples": self._trainer.samples, "step": self._trainer.step}

    def _lr(self) -> float | None:
        optimizer = self._trainer.optimizer
        return None if optimizer is None else float(optimizer.param_groups[0]["lr"])
