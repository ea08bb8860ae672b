"""The rows of a file to predict: the columns that the features need and those to keep; labels are not read."""

from collections.abc import Sequence
from dataclasses import replace

from hotrow.data.columns import Columns
from hotrow.data.config import DataConfig, open_source
from hotrow.data.files import File
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.settings import dialect_of
from hotrow.data.source import Source
from hotrow.data.text import TextSource
from hotrow.errors import ConfigError

KEEPING = ("csv", "parquet")  # formats whose files have columns by name
LIMIT = 1.0  # of malformed rows: those that can be read are predicted, the others are counted


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
