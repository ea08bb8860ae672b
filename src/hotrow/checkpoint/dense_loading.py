"""The dense part of a checkpoint alone: rows stay as they are."""

import json
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from hotrow.checkpoint import dense
from hotrow.checkpoint.manifest import DENSE
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.errors import InputError


def load_dense(where: str | Path | Place, model: nn.Module, optimizer: Optimizer | None) -> None:
    """Put dense parameters and the optimizer's state back, or nothing; InputError where the file was changed."""
    found = SavedCheckpoint.open(where)
    tensors, settings = found.dense(), found.manifest.optimizer
    if found.place.facts(DENSE) != found.manifest.files.get(DENSE):
        raise InputError(f"checkpoint {found.name}: {DENSE} was changed since it was saved: take another checkpoint")
    dense.from_bytes(tensors, None if settings is None else json.dumps(settings), model, optimizer)
