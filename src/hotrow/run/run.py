"""A run from its config: reads, trains, evaluates, writes everything down, and tells how it goes."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotrow import checkpoint
from hotrow.data.config import Data, DataConfig, open_data
from hotrow.data.position import Position
from hotrow.data.source import Source
from hotrow.data.synthetic import SyntheticSource, best
from hotrow.disk import check_room, fault_of, written
from hotrow.errors import ConfigError, FileError, InputError
from hotrow.run.build import trainer_of
from hotrow.run.checks import RunChecks
from hotrow.run.config import RunConfig, as_toml
from hotrow.run.daily import NEXT, OneDay, one_day
from hotrow.run.folder import BEST, CHECKPOINT, RunFolder, discard_unfinished, free_folder, trained_before
from hotrow.run.preflight import check_parts
from hotrow.run.progress import DaysDone, check_fit
from hotrow.run.resume import check_same_order, with_kept_schema
from hotrow.run.starting import starting_cluster
from hotrow.runtime.settings import Ray
from hotrow.trainer import Evaluated, Progress, Remark, Report, TrainingEnded
from hotrow.trainer.batches import check_same_batches
from hotrow.trainer.days import fit_days
from hotrow.transport.errors import PeerLost

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.run.control_server import ControlServer

TABLES_EVERY = 10  # progress reports between two looks at the tables


class Run:
    """Iterate it once: it trains and gives reports. Afterwards `summary` holds the result, `page` the report's path.

    Use it with `with`: whatever ends it, what was trained is saved and the page is written; a run that trained nothing
    leaves no folder. `resume` continues from the
    checkpoint in the run's folder. `day` trains on one day's rows alone, on top of that checkpoint if there is one, and
    tests on the next day: what a job does that runs every night. `attach` begins a new run with the rows that segments
    of an earlier one hold, which are refused otherwise.

    A file that cannot be written while it trains (a checkpoint of `checkpoint_every`, events) is a warning.
    A file that cannot be written at the end is a FileError.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        base: Path = Path(),
        resume: bool = False,
        day: str | None = None,
        attach: bool = False,
    ) -> None:
        folder = Path(config.run.folder) / config.run.name
        self._resumed = (resume or day is not None) and checkpoint.exists(folder / CHECKPOINT)
        if resume and not self._resumed:
            message = f"--resume: there is no checkpoint in {folder}"
            raise ConfigError(
                f"{message}: name another run with --set run.name=NAME, or leave --resume out to start a new one"
            )
        if self._resumed:
            check_same_order(config, folder)
            config = with_kept_schema(config, folder)
        self.config = config
        self.data: Data = open_data(config.data, base)
        check_fit(config, self.data, by_day=self.data.by_day is not None or day is not None)
        if not self._resumed:
            check_parts(self.data)
        with starting_cluster(config, folder, resumed=self._resumed) as self._announced:
            self.trainer = trainer_of(config, self.data.schema, attach=attach or self._resumed)
            try:
                self._prepare(folder, day)
            except BaseException:
                self.trainer.close()
                raise

    def _prepare(self, folder: Path, day: str | None) -> None:
        config = self.config
        self._shuffle = config.data.shuffle if isinstance(config.data, DataConfig) else 0
        self._position: Position | None = None
        self._progress = DaysDone()
        self._started = self._ended = False
        if self._resumed:
            discard_unfinished(folder)
            self._position = self.trainer.load(folder / CHECKPOINT)
            self._progress = DaysDone.of(checkpoint.peek(folder / CHECKPOINT).about)
        self._only = None if day is None else self._chosen(day)
        if self._position is not None:
            check_same_batches(self._position, self.trainer.facts)
        self.folder = self._announced or (folder if self._resumed else free_folder(folder.parent, folder.name))
        try:
            self._book = RunFolder(self.folder, tensorboard=config.run.tensorboard, **self._trained())
        except FileError:
            self._give_folder_back()
            raise
        self._book.cluster.announced = self._announced is not None
        self._before = self._saved_at = self._kept = self.trainer.samples
        self._told = 0  # progress reports
        self._unsaid: list[Remark] = []
        self._looked_at: int | None = None  # samples at which the tables were last written down
        self._checks = RunChecks(config, self._before)
        self._validations: dict[int, Evaluated] = {}  # by epoch
        self._trained_again = max(0, trained_before(folder) - self.trainer.samples) if self._resumed else 0
        self.unsaved: FileError | None = None  # why the state at the end is in no checkpoint
        self._control_server: ControlServer | None = None  # while a run on a cluster goes on
        self.summary: dict[str, Any] = {"run": str(self.folder)}
        self.page: Path | None = None

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return checkpoint.exists(self.folder / CHECKPOINT)

    @property
    def saved_all(self) -> bool:
        """Whether the last checkpoint holds all that was trained."""
        return self.saved and self._kept == self.trainer.samples

    @property
    def trained_nothing(self) -> bool:
        """Whether no gradient was applied since this run began, or was resumed."""
        return self.trainer.samples == self._before

    @property
    def samples_expected(self) -> int | None:
        """Samples at the end of training; None where the source does not know its rows, and day by day."""
        if self._only is not None:
            rows = self._only.train.rows()
            done = 0 if self._position is None else self._position.samples
            return None if rows is None else self._before - done + rows
        rows = None if self.data.by_day is not None else self.data.train.rows()
        return None if rows is None else rows * self.config.run.epochs

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        kept = self._started if isinstance(fault, FileError) else fault is None or not self.trained_nothing
        try:
            if not kept and not self._ended:
                self.summary |= {"stopped": _reason(fault), **self._trained()}
            elif not self._ended:
                self._finish(_reason(fault), self.out_of_reach(fault))
        except FileError as error:
            if not isinstance(fault, Exception):
                raise
            fault.add_note(str(error))  # what stopped the run comes first
        finally:
            self._book.close()
            if self._control_server is not None:
                self._control_server.close()
            self.trainer.close()
            if not kept:
                self._give_folder_back()

    def _give_folder_back(self) -> None:
        """Remove the folder of a run that trained nothing; that of a resumed run stays as it is."""
        if not self._resumed and not self._ended:
            shutil.rmtree(self.folder, ignore_errors=True)

    def out_of_reach(self, fault: BaseException | None) -> str | None:
        """Why nothing of the run can be saved any more: a step, or its cluster, has failed. None: it can."""
        cluster = self.trainer.cluster
        if cluster is not None and cluster.lost:
            return "; ".join(f"{name} is gone: {reason}" for name, reason in cluster.lost.items())
        try:
            self.trainer.check_consistent()
        except InputError as error:
            return str(fault) if isinstance(fault, Exception) else str(error)
        return str(fault) if isinstance(fault, PeerLost) else None

    def __iter__(self) -> Iterator[Report]:
        self.begin()
        if self._trained_again:
            message = f"the checkpoint holds {self._before:,} samples, and the run had trained more when it ended"
            self._warn(f"{message}: at least {self._trained_again:,} samples are trained again")
        if self._is_finished():
            epochs = self.config.run.epochs
            message = f"the run is finished: run.epochs={epochs:,} is trained"
            self._warn(f"{message}; raise run.epochs to train more, or start another run with --set run.name=NAME")
        yield from self._warnings()
        only = self._only
        begun = self._position is not None
        if only is not None and only.test is None and not begun:  # no tomorrow yet: test on today, then train on it
            yield self._tested(only.train, only.name)
        for report in self._reports():
            self._take(report)
            yield report
            yield from self._warnings()
        if only is not None:
            self._progress.trained.append(only.name)
            self._progress.current = None
            self.trainer.forget_position()
        test = self.data.test if only is None else only.test
        if test is not None:
            yield self._tested(test, None if only is None else only.test_name)
            yield from self._warnings()
        self._finish(None)

    def _chosen(self, day: str) -> OneDay:
        """The day that was cut before all others, then the one that is asked for."""
        progress = self._progress
        wanted = progress.current if day == NEXT and progress.current is not None else day
        if wanted != progress.current:
            self._position = None
        begin = progress.begin or (progress.tested[0] if progress.tested else None)
        chosen = one_day(self.data, wanted, [*progress.tested[:-1], *progress.trained], begin)
        progress.begin = begin or next(self.data.days()).name
        progress.current = chosen.name
        return chosen

    def _tested(self, source: Source, day: str | None) -> Evaluated:
        tested = self.trainer.evaluate(source, split="test", day=day)
        self._book.take(tested, self._lr())
        self._told_of(tested)
        for sentence in self._checks.report(tested):
            self._warn(sentence)
        if isinstance(source, SyntheticSource):  # the AUC of the model that drew the labels
            self.summary["best_auc"] = best(source.log_odds()).auc
        return tested

    def _reports(self) -> Iterator[Report]:
        settings = self.config.run
        how: dict[str, Any] = {"shuffle": self._shuffle, "seed": settings.seed, "position": self._position}
        if self._only is not None:
            return self.trainer.fit(self._only.train, **how)
        if self.data.by_day is not None:
            done = self._progress.tested
            if done:
                message = f"the run was resumed: the figures over all days leave out {done[0]} to {done[-1]}"
                self._book.warning(message)
            return fit_days(self.trainer, self.data.days(), done=done, replay=settings.replay, **how)
        return self.trainer.fit(
            self.data.train,
            valid=self.data.valid,
            epochs=settings.epochs,
            early_stopping=settings.early_stopping,
            best=self.folder / BEST if settings.early_stopping else None,
            progressive=settings.progressive,
            **how,
        )

    def begin(self) -> None:
        """Write the first files into the run's folder. FileError: there is no room, and the folder is removed again.

        Iterating does it by itself; call it to know before that the folder stays.
        """
        if self._started:
            return
        check_room(self.folder / CHECKPOINT, self.trainer.checkpoint_bytes, "a checkpoint as it is now")
        if (server := self.trainer.scaling.listen()) is not None:
            from hotrow.run.control_server import ControlServer

            self._control_server = ControlServer(self.trainer.scaling, server)
        self._write_cluster()
        cluster = self.trainer.cluster
        self._book.start(
            as_toml(self.config),
            self.data.schema.model_dump_json(indent=1) + "\n",
            run=self.folder.name,
            model=self.config.model.name,
            parameters=sum(parameter.numel() for parameter in self.trainer.model.parameters()),
            samples_expected=self.samples_expected,
            tables=list(self.trainer.tables.tiers),
            resumed=self._resumed,
            engine=self.config.run.engine.name,
            roles=None if cluster is None else {name: place.node for name, place in cluster.roles.items()},
        )
        self._started = True
        self._book.begins_in(self.trainer.mode, self.trainer.facts, self._trained(), self.config.run.mode.name)

    def _is_finished(self) -> bool:
        """Whether a resumed run has no row left to train on."""
        one_pass = self._only is None and self.data.by_day is None
        return one_pass and self._position is not None and self._position.epoch >= self.config.run.epochs

    def _take(self, report: Report) -> None:
        self._book.take(report, self._lr())
        for sentence in self._checks.report(report):
            self._warn(sentence)
        match report:
            case Progress():
                self._told += 1
                if (fault := fault_of(self._write_cluster)) is not None:
                    self._book.failed(self.folder, fault)
                self._book.trouble(self.data.train.trouble)
                if self._told % TABLES_EVERY == 1:
                    self._look()
                every = self.config.run.checkpoint_every
                if every is not None and self.trainer.samples - self._saved_at >= every:
                    self._try_to_save(every)
            case Evaluated(day=str(day)):
                self._progress.tested.append(day)
            case Evaluated():
                self._told_of(report)
            case TrainingEnded():
                self._look()  # so that what the tables show is told before the test
                if report.best is not None and report.best.epoch in self._validations:
                    self._told_of(self._validations[report.best.epoch])  # that state came back
                self.summary |= {
                    "samples": report.samples,
                    "seconds": report.seconds,
                    "samples_per_s": report.samples_per_s,
                    "stopped": report.stopped,
                    "best": None if report.best is None else asdict(report.best),
                    "counts": report.counts,
                }

    def _told_of(self, report: Evaluated) -> None:
        self.summary |= {f"{report.split}_{name}": value for name, value in report.metrics.items()}
        if report.split == "valid":
            self._validations[report.epoch] = replace(report, scores=None)

    def _finish(self, stopped: str | None, out_of_reach: str | None = None) -> None:
        """All that is left to write; what cannot be written does not keep the rest from it, and is told at the end."""
        self._ended = True
        faults: list[FileError | None] = []
        if stopped is not None:
            self._book.stopped(stopped, self._trained())
            self.summary |= {"stopped": stopped, **self._trained()}
        self._book.trouble(self.data.train.trouble)
        self.summary |= {"mode": self.trainer.mode.name, "statistics": self.trainer.statistics.document()}
        if out_of_reach is None:
            if self.trainer.samples > self._before or not self._resumed:  # nothing new would only lose the old position
                self.unsaved = fault_of(self._save)
                faults.append(self.unsaved)
            if self._looked_at != self.trainer.samples:
                self._look()
            self.summary["rows"] = {name: len(tier) for name, tier in self.trainer.tables.tiers.items()}
            faults.append(fault_of(lambda: self._book.describe(self.trainer.tables, self.trainer.rows_loaded)))
        else:
            message = "what was trained since the last checkpoint" if self.saved else "what was trained"
            self._book.warning(f"{out_of_reach}: {message} is not kept")
        faults.append(fault_of(self._write_page))
        if unwritten := [str(fault) for fault in faults if fault is not None]:
            raise FileError("; ".join(unwritten))

    def _write_page(self) -> None:
        self.page = self._book.finish()
        self.summary["report"] = str(self.page)

    def _write_cluster(self) -> None:
        engine, facts = self.config.run.engine, self.trainer.cluster
        if isinstance(engine, Ray) and facts is not None:
            with written(self.folder, "the addresses of the cluster"):
                self._book.cluster.write(
                    facts, engine.key, None if self._control_server is None else self._control_server.address
                )

    def _look(self) -> None:
        self._looked_at = self.trainer.samples
        found = self._book.tables(self.trainer.tables, self.trainer.samples, self.trainer.rows_loaded)
        for sentence in self._checks.tables(found):
            self._warn(sentence)
        self._book.statistics(self.trainer.statistics, self.trainer.samples)

    def _trained(self) -> dict[str, int]:
        return {"samples": self.trainer.samples, "step": self.trainer.step}

    def _save(self) -> None:
        path = self.trainer.save(self.folder / CHECKPOINT, **asdict(self._progress))
        self._saved_at = self._kept = self.trainer.samples
        self._book.checkpoint(self.trainer.samples, path)

    def _try_to_save(self, every: int) -> None:
        """A checkpoint while training: where it cannot be written, training continues."""
        fault = fault_of(self._save)
        if fault is not None:
            self._saved_at = self.trainer.samples
            self._warn(f"{fault}; training continues, the next attempt is {every:,} samples later")

    def _warn(self, sentence: str) -> None:
        self._book.warning(sentence)
        self._unsaid.append(Remark(self.trainer.samples, self.trainer.step, self.trainer.mode.name, sentence))

    def _warnings(self) -> Iterator[Remark]:
        for fault in self._book.take_faults():
            self._warn(f"{fault}; training continues without it")
        unsaid, self._unsaid = self._unsaid, []
        yield from unsaid

    def _lr(self) -> float | None:
        optimizer = self.trainer.optimizer
        return None if optimizer is None else float(optimizer.param_groups[0]["lr"])


def _reason(fault: BaseException | None) -> str:
    """Why a run stopped before its end."""
    return f"fault: {fault}" if isinstance(fault, Exception) else "interrupted"
