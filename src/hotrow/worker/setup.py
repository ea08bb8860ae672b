"""What a trainer is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from hotrow.errors import ConfigError
from hotrow.transport.messages import Values
from hotrow.worker.spec import TrainingSpec


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSetup:
    """All of it can be pickled, so that a cluster can bring it to where the trainer runs."""

    spec: TrainingSpec
    shards: Sequence[str]  # as its wire knows them
    base_lrs: Sequence[float]
    places: Mapping[str, Sequence[int]]  # by shard, which of the model's parameters it serves in token modes
    threads: int = 1
    values: Mapping[str, Values] | None = None  # by table, how its rows and gradients travel
    pooled: bool = False  # ids are at embedding workers, which pool for it
    device: str = "cpu"  # that the network computes on


def check_device(device: str) -> None:
    """ConfigError where a trainer is to compute on what its host has not."""
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(
            f"engine.trainer.gpus: torch {torch.__version__} finds no device for {device!r} on this host: "
            "install a torch for CUDA there, or leave gpus out"
        )
