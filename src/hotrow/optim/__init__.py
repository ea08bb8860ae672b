"""Optimizers: specs of the native sparse ones, and what torch lacks for dense parameters.

The dense ones are imported on first use (PEP 562): processes that only read the settings of tables need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hotrow.optim import dense, sparse
    from hotrow.optim.dense import KStepAdam, SwapOptimizer, adam_second_moments, merge

__all__ = ["KStepAdam", "SwapOptimizer", "adam_second_moments", "dense", "merge", "sparse"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what a public name stands for."""
        if name in ("dense", "sparse"):
            return import_module(f"hotrow.optim.{name}")
        if name in __all__:
            return getattr(import_module("hotrow.optim.dense"), name)
        raise AttributeError(f"module 'hotrow.optim' has no attribute {name!r}")
