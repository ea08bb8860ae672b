"""A resumed run reads its data as before: the same files, order and features, numbers scaled as measured then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotrow import checkpoint
from hotrow.checkpoint.finding import find_checkpoints
from hotrow.checkpoint.manifest import number_of
from hotrow.checkpoint.place import Place
from hotrow.data.config import DataConfig
from hotrow.data.position import Position
from hotrow.data.schema import Number, Schema, Standard
from hotrow.data.settings import schema_of
from hotrow.data.splits import DaysSplit, NextDay
from hotrow.errors import ConfigError
from hotrow.run.config import RunConfig, load_config
from hotrow.run.folder import BEST, CHECKPOINT, CONFIG, SCHEMA
from hotrow.run.progress import TrainFile
from hotrow.spec import Spec
from hotrow.trainer.schedule import EarlyStoppingState
from hotrow.worker.losses import Task

FILES_SHOWN = 3


def with_kept_schema(config: RunConfig, folder: Path) -> RunConfig:
    """The config with the measured numbers of the run in `folder`; other columns than it was trained on are refused."""
    if not isinstance(config.data, DataConfig) or not (folder / SCHEMA).is_file():
        return config
    kept = Schema.model_validate_json((folder / SCHEMA).read_text(encoding="utf-8"))
    given = schema_of(config.data)
    ours, theirs = _features(given), _features(kept)
    for name in dict.fromkeys([*theirs, *ours]):
        if ours.get(name) != theirs.get(name):
            message = (
                f"it was trained with {theirs.get(name) or 'no such feature'}, now it is {ours.get(name) or 'gone'}"
            )
            raise ConfigError(f"data: feature {name!r}: {message}: start a new run for other columns")
    return config.model_copy(update={"data": config.data.with_schema(kept)})


def check_same_data(config: RunConfig, folder: Path, before: Sequence[TrainFile], now: Sequence[TrainFile]) -> None:
    """ConfigError where a resume would train other batches: other files, another split, order or seed."""
    path = folder / CONFIG
    if not path.is_file():
        return
    kept = load_config(path)
    pairs: dict[str, tuple[object, object]] = {"run.seed": (config.run.seed, kept.run.seed)}
    if isinstance(config.data, DataConfig) and isinstance(kept.data, DataConfig):
        pairs["data.shuffle"] = (config.data.shuffle, kept.data.shuffle)
        if not (is_by_day(config.data) and is_by_day(kept.data)):  # days are known by their names, in any files
            pairs["data.split"] = (config.data.split, kept.data.split)
            pairs["data.test"] = (_next_day(config.data), _next_day(kept.data))
            _check_same_files(folder, before, now)
    for name, (given, then) in pairs.items():
        if given != then:
            message = f"{name}={_shown(given)}: the run in {folder} was trained with {name}={_shown(then)}"
            raise ConfigError(f"{message}: set it back, or start another run with --set run.name=NAME")


def is_by_day(data: DataConfig) -> bool:
    """Whether the data are read day by day."""
    return isinstance(data.split, DaysSplit) or isinstance(data.test, NextDay)


def changed_files(before: Sequence[TrainFile], now: Sequence[TrainFile]) -> str:
    """A note where a file has another size than the one that the position was counted in; else empty."""
    for then, file in zip(before, now, strict=False):
        if then.name == file.name and None not in (then.bytes, file.bytes) and then.bytes != file.bytes:
            message = f"{file.name} has changed since the checkpoint ({then.bytes:,} bytes then, {file.bytes:,} now)"
            return f"{message}: rows are counted from its beginning, those before the position are not trained again"
    return ""


@dataclass(frozen=True, slots=True)
class Origin:
    """The checkpoint that a new run starts from."""

    place: Place
    options: tuple[str, ...]  # of the command line that name it
    rules: checkpoint.LoadRules | None = None  # None: the run has the same columns, tables and network

    @property
    def name(self) -> str:
        """For messages."""
        return self.options[1]


def origin_of(
    start_from: Path | None,
    load: str | Path | None,
    rules: checkpoint.LoadRules,
    others: Mapping[str, bool],
    runs: str | Path,
) -> Origin | None:
    """What --from or --load name; `others`: which options are given with them. None: neither is given.

    ConfigError where options do not go together, or where there is no checkpoint; `runs` is the folder of runs.
    """
    if load is None and (rules.map or rules.skip):
        given = "--map" if rules.map else "--skip"
        raise ConfigError(f"{given}: is for the checkpoint that a run starts from: name it with --load")
    if start_from is None and load is None:
        return None
    option, given = ("--load", str(load)) if start_from is None else ("--from", str(start_from))
    others = {**others, "--load": option == "--from" and load is not None}
    for other in (name for name, is_given in others.items() if is_given):
        raise ConfigError(f"{option} {given}: starts a new run, {other} does not go with it: give one of them")
    if start_from is not None:
        if not checkpoint.exists(start_from / CHECKPOINT):
            raise ConfigError(f"--from {start_from}: there is no checkpoint in it: name a run, as runs/NAME")
        return Origin(Place.of(start_from / CHECKPOINT), ("--from", str(start_from)))
    place = find_checkpoints(given, runs)
    checkpoint.peek(place)  # InputError where there is none that can be read
    further = [part for old, new in rules.map.items() for part in ("--map", f"{old}={new}")]
    further += [part for name in rules.skip for part in ("--skip", name)]
    return Origin(place, ("--load", Place.of(given).name, *further), rules)


def with_schema_of(config: RunConfig, origin: Origin) -> RunConfig:
    """The config with numbers as they were measured for the run of a checkpoint, if it is that of a run.

    Other columns are refused, unless the checkpoint may differ: then the numbers count that are the same.
    """
    folder = origin.place.parent
    if number_of(origin.place.path.rpartition("/")[2]) is not None:
        folder = folder.parent
    if origin.rules is None:
        return with_kept_schema(config, Path(folder.name))
    if not isinstance(config.data, DataConfig) or not folder.has(SCHEMA):
        return config
    kept = {number.column: number for number in Schema.model_validate_json(folder.read(SCHEMA)).numbers}
    schema = schema_of(config.data)
    numbers = [
        kept[each.column]
        if each.column in kept and _without_measures(kept[each.column]) == _without_measures(each)
        else each
        for each in schema.numbers
    ]
    return config.model_copy(
        update={"data": config.data.with_schema(schema.model_copy(update={"numbers": type(schema.numbers)(numbers)}))}
    )


def finished_notes(config: RunConfig, folder: Path, position: Position, task: Task) -> Iterator[str]:
    """Notes of a resumed run that has nothing left to train."""
    rule = config.run.early_stopping
    if rule is not None:
        state = EarlyStoppingState.of(checkpoint.peek(folder / CHECKPOINT).counters)
        state = state.under(rule.of_task(task), keep_best=checkpoint.exists(folder / BEST))
        if state.over:
            message = f"the run is finished: early stopping ended it after epoch {state.ended}"
            remedy = f"raise run.early_stopping.patience={rule.patience}, or set run.early_stopping=none"
            yield f"{message}; to train more, {remedy}"
    if position.epoch >= config.run.epochs:
        message = f"the run is finished: run.epochs={config.run.epochs:,} is trained"
        yield f"{message}; raise run.epochs to train more, or start a new run from it with --from {folder}"


def _next_day(data: DataConfig) -> NextDay | None:
    return data.test if isinstance(data.test, NextDay) else None


def _check_same_files(folder: Path, before: Sequence[TrainFile], now: Sequence[TrainFile]) -> None:
    if [file.name for file in before] == [file.name for file in now]:
        return
    if [file.moved for file in before] == [file.moved for file in now]:
        return
    message = f"data.train is {_listed(now)}: the run in {folder} was trained on {_listed(before)}"
    remedy = f"a new run that starts from this one takes other files, with --from {folder} in place of --resume"
    raise ConfigError(f"{message}: set it back; {remedy}")


def _listed(files: Sequence[TrainFile]) -> str:
    names = [file.name for file in files]
    return ", ".join(names[:FILES_SHOWN]) + (f" and {len(names) - FILES_SHOWN:,} more" if names[FILES_SHOWN:] else "")


def _shown(value: object) -> str:
    if isinstance(value, Spec):
        return str(value.model_dump(mode="json", exclude_none=True))
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def _features(schema: Schema) -> dict[str, dict[str, Any]]:
    """What makes a feature's rows and the model's inputs, by name."""
    # A source finds out by itself that a column holds lists, a config does not know it yet.
    found = {feature.name: feature.model_dump(exclude={"name", "several"}) for feature in schema.ids}
    return found | {f"{number.column} (number)": _without_measures(number) for number in schema.numbers}


def _without_measures(number: Number) -> dict[str, Any]:
    apart = {"transform": {"mean", "deviation"}} if isinstance(number.transform, Standard) else None
    return number.model_dump(exclude=apart)
