"""From a batch of ids to vectors, and from their gradients back to rows."""

from hotrow.client.base import EmbeddingClient, FeatureVectors, Handle, inputs_of
from hotrow.client.local import LocalTables

__all__ = ["EmbeddingClient", "FeatureVectors", "Handle", "LocalTables", "inputs_of"]
