"""From the `[data]` section of a run to its sources."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from hotrow.data.files import File, Where, find_files
from hotrow.data.formats import avazu, criteo, movielens, taobao
from hotrow.data.libsvm import LibsvmSource
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.settings import DataConfig, dialect_of, schema_of
from hotrow.data.source import Source, Trouble
from hotrow.data.splits import Day, DaysSplit, NextDay, day_by_day, file_days, split
from hotrow.data.standard import is_open, resolved
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.data.text import TextSource
from hotrow.errors import ConfigError

__all__ = ["Data", "DataConfig", "open_data", "open_source"]


@dataclass(frozen=True, slots=True)
class Data:
    """The sources of a run; they share one account of malformed lines."""

    train: Source
    valid: Source | None
    test: Source | None
    schema: Schema
    by_day: Callable[[bool], Iterator[Day]] | None = None

    def days(self, *, all_of_them: bool = False) -> Iterator[Day]:
        """Day after day: what to train on, then what to test on. All: also those that the config does not test on."""
        if self.by_day is None:
            remedy = "set split = { by = 'days' }, or test = { next = 'day' } where each file is a day"
            raise ConfigError(f"data: is not read day by day: {remedy}")
        return self.by_day(all_of_them)


def open_data(config: DataConfig | SyntheticConfig, base: Path = Path()) -> Data:
    """All sources that a config names; relative paths start at `base`. What its numbers leave open is measured."""
    if isinstance(config, SyntheticConfig):
        return _made_up(config)
    data = _opened(config, schema_of(config), base)
    if not any(is_open(number) for number in data.schema.numbers):
        return data
    known = data.train if data.by_day is None else next(data.days()).train  # days to come are not known yet
    schema = resolved(data.schema, known)
    return data if schema == data.schema else _opened(config, schema, base)


def _made_up(config: SyntheticConfig) -> Data:
    train = SyntheticSource(config)
    valid = SyntheticSource(config, "valid") if config.valid_rows else None
    if config.days > 1:  # each day is tested by the one after it
        return Data(train, valid, None, train.schema, lambda _: train.days())
    test = SyntheticSource(config, "test") if config.test_rows else None
    return Data(train, valid, test, train.schema)


def _opened(config: DataConfig, schema: Schema, base: Path) -> Data:
    trouble = Trouble()

    def opened(where: Where) -> Source:
        return open_source(config, where, base, schema=schema, trouble=trouble)

    train = opened(config.train)
    valid = None if config.valid is None else opened(config.valid)
    if isinstance(config.test, NextDay):
        files = find_files(config.train, base)
        return Data(
            train, valid, None, train.schema, lambda _: file_days({name: opened(file) for name, file in _named(files)})
        )
    test = None if config.test is None else opened(config.test)
    if isinstance(config.split, DaysSplit):
        how = config.split
        return Data(train, valid, None, train.schema, lambda every: day_by_day(train, DaysSplit() if every else how))
    if config.split is not None:
        parts = split(train, config.split)
        train, valid, test = parts.train, parts.valid or valid, parts.test or test
    return Data(train, valid, test, train.schema)


def _named(files: Sequence[File]) -> list[tuple[str, File]]:
    """Files by their names alone, where these differ."""
    short = [PurePath(file.path).name for file in files]
    return list(zip(short if len(set(short)) == len(short) else [file.name for file in files], files, strict=True))


def open_source(
    config: DataConfig,
    where: Where,
    base: Path = Path(),
    *,
    labels: bool = True,
    schema: Schema | None = None,
    trouble: Trouble | None = None,
) -> Source:
    """The rows of some files in the way the config describes; without labels for data that has none, to predict."""
    files = find_files(where, base)
    schema = schema or schema_of(config)
    limit, trouble = config.malformed, trouble or Trouble()
    match config.format:
        case "csv":
            return TextSource(
                files, schema, dialect_of(config, files[0].path), labels=labels, limit=limit, trouble=trouble
            )
        case "parquet":
            return ParquetSource(files, schema, labels=labels, limit=limit, trouble=trouble)
        case "libsvm":
            return LibsvmSource(files, schema, labels=labels, limit=limit, trouble=trouble)
        case "criteo":
            return criteo.opened(files, schema, labels=labels, limit=limit, trouble=trouble)
        case "avazu":
            return avazu.opened(files, schema, labels=labels, limit=limit, trouble=trouble)
        case "taobao":
            ads, profiles = _one_file("ads", config.ads or "", base), _one_file("users", config.users or "", base)
            return taobao.opened(files, schema, ads, profiles, labels=labels, limit=limit, trouble=trouble)
        case "movielens":
            users = _one_file("users", config.users, base) if config.users else None
            items = _one_file("items", config.items, base) if config.items else None
            return movielens.opened(files, schema, users, items, labels=labels, limit=limit, trouble=trouble)


def _one_file(name: str, where: str, base: Path) -> File:
    found = find_files(where, base)
    if len(found) > 1:
        raise ConfigError(f"data.{name}={where!r}: names {len(found)} files, must name one")
    return found[0]
