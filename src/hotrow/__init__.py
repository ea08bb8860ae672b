"""Hotrow: embedding tables that do not fit where the model computes."""

from hotrow import data, models, nn
from hotrow.config import AtLeast, Chance, Constant, Normal, Segment, Table, Uniform
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Sync
from hotrow.nn.inputs import Inputs, InputShape
from hotrow.optim import KStepAdam
from hotrow.optim.sparse import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap
from hotrow.runtime.settings import Ray
from hotrow.staleness import Cutoff, Inverse, Linear, Power, Staleness
from hotrow.switching import Auto
from hotrow.trainer import EarlyStopping, Schedule, Trainer

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
    "data",
    "models",
    "nn",
]
