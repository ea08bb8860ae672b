"""A state of training on disk: plain files, no pickle. docs/checkpoints.md describes them."""

from hotrow.checkpoint.folder import (
    Saved,
    bytes_of,
    discard_unfinished,
    exists,
    load,
    open_rows,
    peek,
    save,
    tables,
)

__all__ = ["Saved", "bytes_of", "discard_unfinished", "exists", "load", "open_rows", "peek", "save", "tables"]
