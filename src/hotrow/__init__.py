"""Hotrow: embedding tables that do not fit where the model computes."""

from hotrow import nn
from hotrow.config import Constant, Normal, Table, Uniform
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.optim.sparse import FTRL, SGD, Adagrad, Adam, DecayedAdagrad, RowwiseAdagrad, Swap

__all__ = [
    "FTRL",
    "SGD",
    "Adagrad",
    "Adam",
    "ConfigError",
    "Constant",
    "DecayedAdagrad",
    "HotrowError",
    "InputError",
    "Normal",
    "RowwiseAdagrad",
    "Swap",
    "Table",
    "Uniform",
    "nn",
]
