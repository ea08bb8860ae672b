"""Hotrow: embedding tables that do not fit where the model computes."""

from hotrow import nn
from hotrow.config import AtLeast, Chance, Constant, Normal, Segment, Table, Uniform
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.optim.sparse import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap

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
    "HotrowError",
    "InputError",
    "Normal",
    "RowwiseAdagrad",
    "Segment",
    "Swap",
    "Table",
    "Uniform",
    "nn",
]
