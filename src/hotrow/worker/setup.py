"""What a trainer is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.transport.messages import Values
from hotrow.worker.core import Loss


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSetup:
    """All of it can be pickled, so that a cluster can bring it to where the trainer runs."""

    tables: Mapping[str, Table]
    shards: Sequence[str]  # as its wire knows them
    model: nn.Module
    optimizer: Optimizer | None
    base_lrs: Sequence[float]
    places: Mapping[str, Sequence[int]]  # by shard, which of the model's parameters it serves in token modes
    loss: Loss | None = None
    clip: float | None = None
    autocast: bool = False
    threads: int = 1
    values: Mapping[str, Values] | None = None  # by table, how its rows and gradients travel
    through: bool = False  # ids are at embedding workers, which pool for it
    device: str = "cpu"  # that the network computes on


def check_device(device: str) -> None:
    """ConfigError where a trainer is to compute on what its host has not."""
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(
            f"engine.trainer.gpus: torch {torch.__version__} finds no device for {device!r} on this host: "
            "install a torch for CUDA there, or leave gpus out"
        )
