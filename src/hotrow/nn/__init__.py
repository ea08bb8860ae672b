"""Modules for a plain PyTorch loop."""

from hotrow.nn.embedding_bag import EmbeddingBag

__all__ = ["EmbeddingBag"]
