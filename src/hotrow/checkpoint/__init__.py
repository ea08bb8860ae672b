"""A state of training on disk: plain files, no pickle. docs/checkpoints.md describes them.

Reading checkpoints needs no torch; what loads and saves dense tensors is imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from hotrow.checkpoint.reader import SavedCheckpoint, exists

if TYPE_CHECKING:
    from hotrow.checkpoint.loading import Loaded, LoadRules, bytes_of, load, load_into, peek, save
    from hotrow.checkpoint.saving import DenseTensors, Saved, check_keep, discard_unfinished, write_checkpoint

__all__ = [
    "DenseTensors",
    "LoadRules",
    "Loaded",
    "Saved",
    "SavedCheckpoint",
    "bytes_of",
    "check_keep",
    "discard_unfinished",
    "exists",
    "load",
    "load_into",
    "peek",
    "save",
    "write_checkpoint",
]

if not TYPE_CHECKING:
    _SOURCE_OF = {
        **dict.fromkeys(
            ("LoadRules", "Loaded", "bytes_of", "load", "load_into", "peek", "save"), "hotrow.checkpoint.loading"
        ),
        **dict.fromkeys(
            ("DenseTensors", "Saved", "check_keep", "discard_unfinished", "write_checkpoint"),
            "hotrow.checkpoint.saving",
        ),
    }

    def __getattr__(name: str) -> object:
        if name not in _SOURCE_OF:
            raise AttributeError(f"module 'hotrow.checkpoint' has no attribute {name!r}")
        return getattr(import_module(_SOURCE_OF[name]), name)
