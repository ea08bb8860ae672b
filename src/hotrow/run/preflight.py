"""Checks of a run's data before training: a missing column or an empty part is an error now, and not after hours."""

from hotrow.data.config import Data, DataConfig, open_source
from hotrow.data.files import find_files
from hotrow.data.labels import PositiveSearch
from hotrow.data.source import Source
from hotrow.errors import InputError
from hotrow.run.config import RunConfig

IN_MEMORY = ("taobao", "movielens")  # formats that are read whole when they are opened
REMEDIES = {
    "train": "name other files, or change data.split",
    "valid": "change data.split or data.valid, or leave the validation out",
    "test": "change data.split or data.test, or leave the test out",
}


def preflight(config: RunConfig) -> None:
    """Read the first block of each part's files; raises what the reader raises."""
    data = config.data
    if not isinstance(data, DataConfig) or data.format in IN_MEMORY:
        return
    for where in (data.train, data.valid, data.test):
        if isinstance(where, tuple):
            next(open_source(data, find_files(where)[0]).read(), None)


def check_parts(data: Data) -> None:
    """InputError where a part of the data holds no rows, or the train part no positive label.

    Each part is read up to its first row. Of a split by time or by rows that is the file up to there, once.
    The train part of a label with `positive` is read up to the first positive row.
    """
    parts: dict[str, Source | None] = {"train": data.train}
    if data.by_day is None:
        parts |= {"valid": data.valid, "test": data.test}
    for name, source in parts.items():
        if source is None:
            continue
        try:
            empty = not _read_first(source) if name == "train" else next(source.read(), None) is None
        except InputError as error:
            error.add_note(f"this is the {name} part of the data")
            raise
        if empty:
            raise InputError(f"the {name} part of the data holds no rows: {REMEDIES[name]}")


def _read_first(source: Source) -> bool:
    """Whether the source holds a row; InputError where all of its rows are negative for a label with `positive`."""
    search, rows = PositiveSearch(source.schema.label), 0
    for batch in source.read():
        rows += batch.num_rows
        search.add(batch)
        if search.complete:
            return True
    if rows:
        search.check(rows)
    return rows > 0
