"""The way from a batch of ids to vectors, and from their gradients back to rows. Today they are here."""

from hotrow.client.base import EmbeddingClient, Handle, Output, inputs_of
from hotrow.client.local import LocalClient

__all__ = ["EmbeddingClient", "Handle", "LocalClient", "Output", "inputs_of"]
