"""Optimizers: specs of the native sparse ones, and what torch lacks for dense parameters."""

from hotrow.optim.dense import KStepAdam, SwapOptimizer, adam_second_moments, merge

__all__ = ["KStepAdam", "SwapOptimizer", "adam_second_moments", "merge"]
