"""A whole run from a config file, and the folder it leaves."""

from hotrow.run.config import RunConfig, load_config
from hotrow.run.run import Run

__all__ = ["Run", "RunConfig", "load_config"]
