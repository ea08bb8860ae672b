"""Optimizers: specs of the native sparse ones, and what torch lacks for dense parameters."""

from hotrow.optim.dense import KStepAdam, SwapOptimizer, merge

__all__ = ["KStepAdam", "SwapOptimizer", "merge"]
