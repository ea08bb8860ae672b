"""Hotrow: embedding tables that do not fit where the model computes."""

from hotrow import data, models, nn
from hotrow.config import AtLeast, Chance, Constant, Normal, Segment, Table, Uniform
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.nn.inputs import Inputs, InputShape
from hotrow.optim.sparse import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap
from hotrow.trainer import EarlyStopping, Schedule, Trainer

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "AtLeast",
    "Chance",
    "ConfigError",
    "Constant",
    "DecayedAdagrad",
    "EarlyStopping",
    "HotrowError",
    "InputError",
    "InputShape",
    "Inputs",
    "Normal",
    "RowwiseAdagrad",
    "Schedule",
    "Segment",
    "Swap",
    "Table",
    "Trainer",
    "Uniform",
    "data",
    "models",
    "nn",
]
