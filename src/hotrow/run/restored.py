"""A run that was trained, opened again from its folder: to evaluate it on any files, and to predict with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Self

from hotrow import checkpoint
from hotrow.data.batch import Batch
from hotrow.data.columns import Columns
from hotrow.data.config import DataConfig, open_data, open_source
from hotrow.data.files import File, Where, find_files
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.settings import CSV_ONLY, dialect_of
from hotrow.data.source import Source
from hotrow.data.text import TextSource
from hotrow.errors import ConfigError, InputError
from hotrow.run.build import trainer_of
from hotrow.run.config import RunConfig, load_config
from hotrow.run.folder import CHECKPOINT, CONFIG, SCHEMA
from hotrow.run.predictions import Predicted, predicted
from hotrow.run.trust import check_trust
from hotrow.runtime.device import device_of
from hotrow.runtime.settings import AnyEngine, Local
from hotrow.trainer import Evaluated, Trainer
from hotrow.trainer.streams import evaluation_batches

Watch = Callable[[int], None]  # rows so far
Part = Literal["test", "valid"]
KEEPING = ("csv", "parquet")  # formats whose files have columns by name
LIMIT = 1.0  # of malformed rows: those that can be read are predicted, the others are counted
SORTED = ("movielens",)  # formats whose rows are not in the order of the file


class Restored:
    """The config, the schema and the trainer of a run folder, its checkpoint loaded. Use it with `with`.

    A folder whose model is a Python file or module is refused unless `trust` allows this code to run. `changes` as
    "data.delimiter=;" say how other text files are written than those the run was trained on.
    """

    def __init__(self, folder: Path, *, trust: bool = False, changes: Sequence[str] = ()) -> None:
        if not has_checkpoint(folder):
            raise ConfigError(f"{folder}: there is no checkpoint in it: name the folder of a run, as runs/NAME")
        checkpoint.peek(folder / CHECKPOINT)  # InputError where this version of Hotrow cannot read it
        self.folder = folder
        check_file_settings(changes)
        self.config: RunConfig = load_config(folder / CONFIG, changes)
        check_trust(self.config, folder, trust=trust)
        self.schema: Schema = read_schema(folder / SCHEMA)
        with ExitStack() as opened:
            here = _in_this_process(self.config, folder, opened)
            self.trainer: Trainer = trainer_of(here, self.schema)
            opened.callback(self.trainer.close)
            self.trainer.load(folder / CHECKPOINT)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self._opened.close()

    def source(self, where: Where) -> Source:
        """The rows of other files of the same format, with labels."""
        return open_source(self._of_files(), where, schema=self.schema)

    def part(self) -> tuple[Part, Source]:
        """The test part of the config; else its validation part."""
        config = self.config.data
        if isinstance(test := getattr(config, "test", None), tuple):  # files of their own: others may be gone by now
            return "test", self.source(test)
        if isinstance(valid := getattr(config, "valid", None), tuple) and getattr(config, "split", None) is None:
            return "valid", self.source(valid)
        data = open_data(config.with_schema(self.schema) if isinstance(config, DataConfig) else config)
        if data.test is not None:
            return "test", data.test
        if data.valid is not None:
            return "valid", data.valid
        if data.by_day is not None:
            message = f"{self.folder / CONFIG}: its data are tested day by day, no part of them is the test"
            raise ConfigError(f"{message}: name files, as --on FILE")
        raise ConfigError(f"{self.folder / CONFIG}: it names neither test nor valid data: name files, as --on FILE")

    def evaluate(self, source: Source, *, split: Part = "test", watch: Watch | None = None) -> Evaluated:
        """How good the run is on these rows."""
        batches = evaluation_batches(source, self.trainer.global_batch)
        return self.trainer.evaluate(_watched(batches, watch) if watch else batches, split=split)

    def unlabelled(self, where: Where, keep: Sequence[str] = ()) -> Source:
        """The rows of one file to predict. It needs the columns of the features, and those to `keep` unchanged."""
        config = self._of_files()
        if config.format in SORTED:
            message = (
                f"data.format={config.format!r}: its rows are sorted by time, so their predictions have no numbers"
            )
            raise ConfigError(f"{message}: describe the file as csv in a config of its own")
        files = find_files(where)
        if len(files) > 1:
            raise InputError(f"{where}: names {len(files)} files: rows are numbered, so predict one at a time")
        return unlabelled_source(config, files, self.schema, keep)

    def predict(self, source: Source, keep: Sequence[str] = ()) -> Iterator[Predicted]:
        """Predictions of the rows of an `unlabelled` source, block by block in their order."""
        return predicted(self.trainer, source, keep)

    def _of_files(self) -> DataConfig:
        if not isinstance(self.config.data, DataConfig):
            message = f"data.format={self.config.data.format!r}: {self.folder} was trained on synthetic rows"
            raise ConfigError(f"{message}, so it has no file format: name a run that was trained on files")
        return self.config.data


def check_file_settings(changes: Sequence[str]) -> None:
    """ConfigError where a change is not one of how a text file is written: all else is as the run was trained."""
    for change in changes:
        section, _, field = change.partition("=")[0].strip().partition(".")
        if section != "data" or field not in CSV_ONLY:
            known = ", ".join(f"data.{name}" for name in CSV_ONLY)
            raise ConfigError(f"--set {change}: a trained run takes {known}, the settings of how a file is written")


def find_run(given: Path | None, parent: Path = Path("runs")) -> Path:
    """The folder of a run: as given, or by its name under `parent`; the one saved last if nothing is given.

    A folder without a checkpoint does not hide the run of that name: `hotrow new shop` makes such a folder.
    """
    if given is not None:
        places = (given, parent / given)
        return next(filter(has_checkpoint, places), next(filter(Path.is_dir, places), given))
    runs = [folder for folder in parent.iterdir() if has_checkpoint(folder)] if parent.is_dir() else []
    if not runs:
        message = f"there is no run with a checkpoint in {parent.absolute()}"
        raise ConfigError(f"{message}: train one with `hotrow train`, or name another folder with --run")
    return max(runs, key=lambda folder: (folder / CHECKPOINT).stat().st_mtime)  # every save makes a folder in it


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder is that of a run which was saved."""
    return checkpoint.exists(folder / CHECKPOINT) and (folder / CONFIG).is_file()


def read_schema(path: Path) -> Schema:
    """What the columns of a run mean."""
    try:
        return Schema.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a schema: {error}: it is written when a run starts") from None


def _in_this_process(config: RunConfig, folder: Path, opened: ExitStack) -> RunConfig:
    """Without shared memory, and with files of its own: a reader must not take the rows of a run that is training."""
    here = {"segment": None, "cache": None, "hbm": 0}  # nothing is trained: no row would come up to a GPU
    tables = {
        name: table.model_copy(update=here if table.path is None else here | {"path": _own(table.path, folder, opened)})
        for name, table in config.tables.items()
    }
    run = config.run.model_copy(update={"engine": Local(device=_device_here(config.run.engine))})
    return config.model_copy(update={"tables": tables, "run": run})


def _own(path: Path, folder: Path, opened: ExitStack) -> Path:
    """A directory that ends with the reader: on the disk of the run's rows, or in its folder if that is gone."""
    for parent in (path, folder):
        with suppress(OSError):
            return Path(opened.enter_context(TemporaryDirectory(prefix="hotrow-", dir=parent)))
    return Path(opened.enter_context(TemporaryDirectory(prefix="hotrow-")))


def _device_here(engine: AnyEngine) -> str:
    """The device of the run where it is here too."""
    if not isinstance(engine, Local):
        return "auto"
    try:
        device_of(engine.device)
    except ConfigError:
        return "auto"
    return engine.device


def _watched(batches: Iterator[Batch], watch: Watch) -> Iterator[Batch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += len(batch)
        watch(rows)


def unlabelled_source(config: DataConfig, files: Sequence[File], schema: Schema, keep: Sequence[str] = ()) -> Source:
    """A source of the features' columns alone: neither labels, nor the time and the group, which no feature reads."""
    features = schema.model_copy(update={"time": None, "group": None})
    if not keep:
        return open_source(config.model_copy(update={"malformed": LIMIT}), files, labels=False, schema=features)
    if config.format not in KEEPING:
        message = f"--keep {keep[0]}: columns are kept of {' and '.join(KEEPING)} files"
        raise ConfigError(f"{message}, and this run reads format {config.format!r}: leave it out")
    columns = Columns.of(features, labels=False).instead((), keep)
    columns = replace(columns, as_they_are=columns.as_they_are | frozenset(keep))
    if config.format == "parquet":
        return ParquetSource(files, features, labels=False, limit=LIMIT, columns=columns)
    dialect = dialect_of(config, files[0].path)
    return TextSource(files, features, dialect, labels=False, limit=LIMIT, columns=columns)
