"""Modules for a plain PyTorch loop."""

from hotrow.nn.data_norm import DataNorm, DataNormSettings
from hotrow.nn.embedding_bag import EmbeddingBag

__all__ = ["DataNorm", "DataNormSettings", "EmbeddingBag"]
