"""A state of training on disk: plain files, no pickle. docs/checkpoints.md describes them."""

from hotrow.checkpoint.folder import Saved, exists, load, peek, save

__all__ = ["Saved", "exists", "load", "peek", "save"]
