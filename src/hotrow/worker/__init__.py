"""The computation of a worker."""

from hotrow.worker.core import Gradients, Learner
from hotrow.worker.losses import Loss, binary_cross_entropy

__all__ = ["Gradients", "Learner", "Loss", "binary_cross_entropy"]
