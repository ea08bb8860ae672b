"""Permission to run a model's code: a config on a command line is the user's own, a run folder may come from elsewhere.

A checkpoint is data and nothing in it is executed. But config.toml beside it may name a Python file or module as the
model, and to open the run is to run that.
"""

from pathlib import Path

from hotrow.errors import ConfigError
from hotrow.models.registry import MODELS
from hotrow.run.config import RunConfig
from hotrow.run.folder import CONFIG, SCHEMA


def check_trust(config: RunConfig, folder: Path, *, trust: bool) -> None:
    """ConfigError where opening a run would run Python code that its folder names, unless `trust` allows it."""
    name = config.model.name
    if trust or name in MODELS or ":" not in name:  # what is neither is refused as no model at all
        return
    where = name.rpartition(":")[0]
    code = f"the Python file {Path(where).resolve()}" if where.endswith(".py") else f"the Python module {where}"
    message = f"{folder / CONFIG}: model={name!r}: opening this run runs {code}"
    raise ConfigError(f"{message}: look at it, then give --trust (in Python trust=True)")


def is_of_a_run(config: Path) -> bool:
    """Whether a config file is the one that a run has left in its folder."""
    return config.name == CONFIG and (config.parent / SCHEMA).is_file()
