"""A run from its config: opens or resumes it, trains, evaluates, and ends with everything saved."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hotrow import checkpoint
from hotrow.data.config import Data, DataConfig, open_data
from hotrow.data.position import Position
from hotrow.data.source import Source
from hotrow.data.synthetic import SyntheticSource, best
from hotrow.disk import check_room
from hotrow.errors import ConfigError, FileError, InputError
from hotrow.run.build import trainer_of
from hotrow.run.config import RunConfig
from hotrow.run.daily import NEXT, DaysToTrain, OneDay, check_fit, days_to_train, one_day
from hotrow.run.folder import BEST, CHECKPOINT, discard_unfinished, free_folder, trained_before
from hotrow.run.preflight import check_parts
from hotrow.run.progress import RunProgress, train_files
from hotrow.run.recorder import RunRecorder
from hotrow.run.resume import (
    Origin,
    changed_files,
    check_same_data,
    finished_notes,
    origin_of,
    with_kept_schema,
    with_schema_of,
)
from hotrow.run.starting import starting_cluster
from hotrow.runtime.losses import RoleLost
from hotrow.trainer import Evaluated, Report
from hotrow.trainer.batches import check_same_batches
from hotrow.trainer.days import fit_days
from hotrow.transport.errors import PeerLost


class Run:
    """Trains what a config describes. Iterate it once, inside `with`, for its reports.

    Whatever ends the `with` block, what was trained is saved and the report page is written; a run that trained nothing
    leaves no folder. Afterwards `summary` holds the result and `page` the path of the report page.

    `resume` continues from the checkpoint in the run's folder. `day` trains on the rows of one day, on top of that
    checkpoint if there is one, and tests on the next day: the job of every night. `start_from` is the folder of another
    run: a new run begins with its rows, network and optimizer state, on any data with the same columns. `load` is a
    checkpoint of any kind, which may differ: a new run begins with what fits, `map` gives its tables and dense layers
    new names, and `skip` names those to leave out. `attach` begins a new run with the rows that segments of an earlier
    one hold, which are refused otherwise.

    A file that cannot be written while it trains (a checkpoint of `checkpoint_every`, events) is a warning.
    A file that cannot be written at the end is a FileError.

    Example:
        >>> from pathlib import Path
        >>> from hotrow.run import Run, load_config

        Not run here, because it writes files and takes a second:

        >>> with Run(load_config(Path("train.toml"))) as run:  # doctest: +SKIP
        ...     for report in run:
        ...         print(report)
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        base: Path = Path(),
        resume: bool = False,
        day: str | None = None,
        start_from: Path | None = None,
        load: str | Path | None = None,
        map: Mapping[str, str] | None = None,
        skip: Sequence[str] = (),
        attach: bool = False,
    ) -> None:
        others = {"--resume": resume, "--day": day is not None, "--attach": attach}
        rules = checkpoint.LoadRules(map or {}, skip)
        self.origin = origin_of(start_from, load, rules, others, config.run.folder)
        folder = Path(config.run.folder) / config.run.name
        self._resumed = (resume or day is not None) and checkpoint.exists(folder / CHECKPOINT)
        if resume and not self._resumed:
            message = f"--resume: there is no checkpoint in {folder}"
            raise ConfigError(
                f"{message}: name another run with --set run.name=NAME, or leave --resume out to start a new one"
            )
        self._progress = RunProgress(train_files(config.data, base))
        self._changed = ""
        if self._resumed:
            before = RunProgress.of(checkpoint.peek(folder / CHECKPOINT).about)
            check_same_data(config, folder, before.files, self._progress.files)
            self._changed = changed_files(before.files, self._progress.files)
            self._progress = RunProgress(self._progress.files, before.began, before.days)
        if self._resumed:
            config = with_kept_schema(config, folder)
        elif self.origin is not None:
            config = with_schema_of(config, self.origin)
        self.config = config
        self.data: Data = open_data(config.data, base)
        check_fit(config, self.data, by_day=self.data.by_day is not None or day is not None)
        if not self._resumed:
            check_parts(self.data)
        with starting_cluster(config, folder, resumed=self._resumed) as announced:
            self.trainer = trainer_of(config, self.data.schema, attach=attach or self._resumed)
            try:
                self._prepare(folder, day, announced)
            except BaseException:
                self.trainer.close()
                raise

    def _prepare(self, folder: Path, day: str | None, announced: Path | None) -> None:
        self._position: Position | None = None
        self._days = self._progress.days
        self._started = self._ended = False
        if self._resumed:
            discard_unfinished(folder)
            self._position = self.trainer.load(folder / CHECKPOINT)
        elif self.origin is not None:
            self._start_from(self.origin)
        self.trainer.schedule_from(self._progress.began)
        self._only = None if day is None else self._chosen(day)
        self._to_train = DaysToTrain(())
        if self._only is None and self.data.by_day is not None:
            self._to_train = days_to_train(self.data, self._days, begun=self._position is not None)
        if self._position is not None:
            check_same_batches(self._position, self.trainer.facts)
        self._before = self.trainer.samples
        self._trained_again = max(0, trained_before(folder) - self._before) if self._resumed else 0
        self.folder = announced or (folder if self._resumed else free_folder(folder.parent, folder.name))
        try:
            self._recorder = RunRecorder(self.folder, self.config, self.data, self.trainer, self._progress)
        except (ConfigError, FileError):
            self._remove_new_folder()
            raise
        self._recorder.files.cluster.announced = announced is not None

    def _start_from(self, origin: Origin) -> None:
        if (rules := origin.rules) is None:
            self.trainer.load(origin.place)
        else:
            self.trainer.load(origin.place, strict=False, map=rules.map, skip=rules.skip)
        self.trainer.forget_position()
        self.trainer.state.plateau = 1.0
        self._progress.began = self.trainer.samples

    def _chosen(self, day: str) -> OneDay:
        """The day that a run before was interrupted in, else the one that is asked for."""
        progress = self._days
        wanted = progress.current if day == NEXT and self._position is not None and progress.current else day
        if wanted != progress.current:
            self._position = None
        chosen = one_day(self.data, wanted, progress)
        progress.begin = progress.begin or next(self.data.days()).name
        progress.current = chosen.name
        return chosen

    @property
    def summary(self) -> dict[str, Any]:
        """The result: metrics by split, samples, rows by table, statistics."""
        return self._recorder.summary

    @property
    def page(self) -> Path | None:
        """The report page; None until it is written."""
        return self._recorder.page

    @property
    def unsaved(self) -> FileError | None:
        """Why the state at the end is in no checkpoint; None where it is."""
        return self._recorder.unsaved

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return self._recorder.saved

    @property
    def saved_all(self) -> bool:
        """Whether the last checkpoint holds everything that was trained."""
        return self._recorder.saved_all

    @property
    def trained_nothing(self) -> bool:
        """Whether no gradient was applied since this run began, or was resumed."""
        return self._recorder.trained_nothing

    @property
    def samples_expected(self) -> int | None:
        """Samples at the end of training; None where the source does not know its rows, and day by day."""
        if self._only is not None:
            rows = self._only.train.rows()
            done = 0 if self._position is None else self._position.samples
            return None if rows is None else self._before - done + rows
        rows = None if self.data.by_day is not None else self.data.train.rows()
        return None if rows is None else self._progress.began + rows * self.config.run.epochs

    # Training

    def begin(self) -> None:
        """Write the first files into the run's folder. FileError: there is no room, and the folder is removed again.

        Iterating does it by itself; call it to know before that the folder stays.
        """
        if self._started:
            return
        check_room(self.folder / CHECKPOINT, self.trainer.checkpoint_bytes, "a checkpoint as it is now")
        if (server := self.trainer.scaling.listen()) is not None:
            from hotrow.run.control_server import ControlServer

            self._recorder.control_server = ControlServer(self.trainer.scaling, server)
        self._recorder.start(
            resumed=self._resumed,
            samples_expected=self.samples_expected,
            started_from=None if self.origin is None else self.origin.name,
        )
        self._started = True
        self._recorder.write_first_mode()

    def __iter__(self) -> Iterator[Report]:
        recorder = self._recorder
        self.begin()
        self._warn_of_resume()
        yield from recorder.take_warnings()
        only = self._only
        begun = self._position is not None
        if only is not None and only.test is None and not begun:  # no tomorrow yet: test on today, then train on it
            yield self._tested(only.train, only.name)
        for report in self._reports():
            recorder.take(report)
            yield report
            yield from recorder.take_warnings()
        if only is not None:
            self._days.trained.append(only.name)
            self._days.current = None
            self.trainer.forget_position()
        test = self.data.test if only is None else only.test
        if test is not None:
            yield self._tested(test, None if only is None else only.test_name)
            yield from recorder.take_warnings()
        self._finish(None)

    def _warn_of_resume(self) -> None:
        if self._trained_again:
            message = f"the checkpoint holds {self._before:,} samples, and the run had trained more when it ended"
            self._recorder.warn(f"{message}: at least {self._trained_again:,} samples are trained again")
        notes = [*self._to_train.notes, "" if self._only is None else self._only.note]
        if self._only is None and self.data.by_day is None and self._position is not None:
            notes.append(self._changed)
            notes += finished_notes(self.config, self.folder, self._position, self.trainer.task)
        for note in filter(None, notes):
            self._recorder.warn(note)

    def _reports(self) -> Iterator[Report]:
        settings = self.config.run
        shuffle = self.config.data.shuffle if isinstance(self.config.data, DataConfig) else 0
        how: dict[str, Any] = {"shuffle": shuffle, "seed": settings.seed, "position": self._position}
        if self._only is not None:
            return self.trainer.fit(self._only.train, **how)
        if self.data.by_day is not None:
            return fit_days(self.trainer, self._to_train.days, done=self._to_train.done, replay=settings.replay, **how)
        return self.trainer.fit(
            self.data.train,
            valid=self.data.valid,
            epochs=settings.epochs,
            early_stopping=settings.early_stopping,
            best=self.folder / BEST if settings.early_stopping else None,
            progressive=settings.progressive,
            **how,
        )

    def _tested(self, source: Source, day: str | None) -> Evaluated:
        tested = self.trainer.evaluate(source, split="test", day=day)
        self._recorder.take_test(tested)
        if isinstance(source, SyntheticSource):  # the AUC of the model that drew the labels
            self.summary["best_auc"] = best(source.log_odds()).auc
        return tested

    # The end

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> None:
        kept = self._started if isinstance(fault, FileError) else fault is None or not self.trained_nothing
        at_once = False
        try:
            if not kept and not self._ended:
                self._recorder.note_stop(_reason(fault))
            elif not self._ended:
                self._finish(_reason(fault), self.out_of_reach(fault))
        except FileError as error:
            if not isinstance(fault, Exception):
                raise
            fault.add_note(str(error))  # what stopped the run comes first
        except KeyboardInterrupt:  # a second one
            at_once = True
            self._recorder.abandon_saving()
            raise
        finally:
            self._recorder.close()
            self.trainer.close(at_once=at_once)
            if not kept:
                self._remove_new_folder()

    def _finish(self, stopped: str | None, out_of_reach: str | None = None) -> None:
        self._ended = True
        self._recorder.finish(stopped, out_of_reach)

    def _remove_new_folder(self) -> None:
        """Remove the folder of a run that trained nothing; that of a resumed run stays as it is."""
        if not self._resumed and not self._ended:
            shutil.rmtree(self.folder, ignore_errors=True)

    def out_of_reach(self, fault: BaseException | None) -> str | None:
        """Why the state of the run cannot be saved: a step or its cluster has failed. None: it can be saved."""
        try:
            self.trainer.check_consistent()
        except InputError as error:
            return str(fault) if isinstance(fault, Exception) else str(error)
        return str(fault) if isinstance(fault, PeerLost | RoleLost) else None


def _reason(fault: BaseException | None) -> str:
    """Why a run stopped before its end."""
    return f"fault: {fault}" if isinstance(fault, Exception) else "interrupted"
