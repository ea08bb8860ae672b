"""Optimizers of dense parameters: k-step Adam, and SWAP around those of torch."""

from hotrow.optim.dense.k_step_adam import KStepAdam, adam_second_moments, merge, take_local_steps
from hotrow.optim.dense.swap import SwapOptimizer

__all__ = ["KStepAdam", "SwapOptimizer", "adam_second_moments", "merge", "take_local_steps"]
