"""A first look at the files of a run: a column that is missing in the test file is told now, and not after hours."""

from hotrow.data.config import DataConfig, open_source
from hotrow.data.files import find_files
from hotrow.run.config import RunConfig

IN_MEMORY = ("taobao", "movielens")  # formats that are looked at whole when they are opened


def preflight(config: RunConfig) -> None:
    """Read the first block of each part; whatever is wrong with it raises."""
    data = config.data
    if not isinstance(data, DataConfig) or data.format in IN_MEMORY:
        return
    for where in (data.train, data.valid, data.test):
        if isinstance(where, tuple):
            next(open_source(data, find_files(where)[0]).read(), None)
