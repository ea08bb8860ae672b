"""The settings of the roles of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from hotrow.errors import ConfigError
from hotrow.types import RoleId, Values
from hotrow.worker.spec import TrainingSpec


@dataclass(frozen=True, slots=True, eq=False)
class RoleSpec:
    """The specification of a job, with the settings of every role of its cluster."""

    spec: TrainingSpec
    threads: int = 1
    values: Mapping[str, Values] | None = None  # by table, the wire format of rows and gradients
    parked_bytes: int = 2**30  # of parked gradients of rows on a shard, and as many of dense ones


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSetup:
    """All of them can be pickled, so that a cluster can send them to the trainer's host."""

    role: RoleSpec
    shards: Sequence[RoleId]  # connection names
    base_lrs: Sequence[float]
    places: Mapping[RoleId, Sequence[int]]  # by shard, which of the model's parameters it holds in token modes
    pooled: bool = False  # ids are at embedding workers, which pool for it
    device: str = "cpu"  # that the network computes on


def check_device(device: str) -> None:
    """ConfigError where the trainer's device does not exist on its host."""
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(
            f"engine.trainer.gpus: torch {torch.__version__} finds no device for {device!r} on this host: "
            "install a torch for CUDA there, or leave gpus out"
        )
