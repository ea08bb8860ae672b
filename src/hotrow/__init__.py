"""Hotrow: embedding tables that do not fit where the model computes.

Public names are imported on first use (PEP 562): `import hotrow` takes milliseconds, and torch is imported by the first
name that needs it. Type checkers read the imports below; `SOURCES` is the same list for the interpreter.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from hotrow import openmp

if TYPE_CHECKING:
    from hotrow import data, models, nn
    from hotrow.config import AtLeast, Cache, Chance, Constant, Normal, Segment, Table, Uniform
    from hotrow.errors import ConfigError, HotrowError, InputError
    from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Sync
    from hotrow.nn.inputs import Inputs, InputShape
    from hotrow.optim import KStepAdam
    from hotrow.optim.sparse import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap
    from hotrow.runtime.settings import Local, Ray
    from hotrow.staleness import Cutoff, Inverse, Linear, Power, Staleness
    from hotrow.switching import Auto
    from hotrow.trainer import EarlyStopping, Schedule, Trainer

    __version__: str

__all__ = [
    "FTRL",
    "GBA",
    "SGD",
    "Adagrad",
    "Adam",
    "Async",
    "AtLeast",
    "Auto",
    "BackupWorkers",
    "BoundedStaleness",
    "BulkSync",
    "Cache",
    "Chance",
    "ConfigError",
    "Constant",
    "Cutoff",
    "DecayedAdagrad",
    "EarlyStopping",
    "HotrowError",
    "Hybrid",
    "InputError",
    "InputShape",
    "Inputs",
    "Inverse",
    "KStep",
    "KStepAdam",
    "Linear",
    "Local",
    "Normal",
    "Power",
    "Ray",
    "RowwiseAdagrad",
    "Schedule",
    "Segment",
    "Staleness",
    "Swap",
    "Sync",
    "Table",
    "Trainer",
    "Uniform",
    "__version__",
    "data",
    "models",
    "nn",
]

SOURCES = {
    "hotrow.config": "AtLeast Cache Chance Constant Normal Segment Table Uniform",
    "hotrow.errors": "ConfigError HotrowError InputError",
    "hotrow.modes": "GBA Async BackupWorkers BoundedStaleness BulkSync Hybrid KStep Sync",
    "hotrow.nn.inputs": "Inputs InputShape",
    "hotrow.optim": "KStepAdam",
    "hotrow.optim.sparse": "FTRL SGD Adagrad Adam DecayedAdagrad RowwiseAdagrad Swap",
    "hotrow.runtime.settings": "Local Ray",
    "hotrow.staleness": "Cutoff Inverse Linear Power Staleness",
    "hotrow.switching": "Auto",
    "hotrow.trainer": "EarlyStopping Schedule Trainer",
}
SUBMODULES = {
    "admission", "checkpoint", "client", "config", "data", "disk", "errors", "metrics", "models", "modes", "nn",
    "optim", "runtime", "server", "sizes", "spec", "staleness", "store", "switching", "trainer", "transport", "worker",
}  # fmt: skip

openmp.shorten_spinning()  # whatever imports torch afterwards

_SOURCE_OF = {name: module for module, names in SOURCES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker that sees __getattr__ accepts every name

    def __getattr__(name: str) -> object:
        """Import what a public name stands for, and keep it."""
        if name in _SOURCE_OF:
            value = getattr(import_module(_SOURCE_OF[name]), name)
        elif name in SUBMODULES:
            value = import_module(f"hotrow.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("hotrow")  # as pyproject.toml has it
        else:
            raise AttributeError(f"module 'hotrow' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *SUBMODULES})
