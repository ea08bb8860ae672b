"""What the roles of a run are made of, whenever one of them starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import nn
from torch.optim import Optimizer

from hotrow.config import Table
from hotrow.runtime.ray.actors import ShardSetup
from hotrow.server.dense_shard import spread
from hotrow.transport.messages import Values
from hotrow.worker.core import Loss
from hotrow.worker.embedding import BufferLimits
from hotrow.worker.embedding_process import EmbeddingSetup
from hotrow.worker.setup import TrainerSetup


@dataclass(frozen=True, eq=False)
class RoleSetups:
    """The same for all roles of a kind, but for their numbers."""

    tables: Mapping[str, Table]
    model: nn.Module
    optimizer: Optimizer | None
    shards: int
    through: bool  # trainers get vectors from embedding workers
    bounds: BufferLimits  # of what each of these keeps
    loss: Loss | None
    clip: float | None
    autocast: bool
    threads: int
    values: Mapping[str, Values] | None
    parked_bytes: int
    device: str  # that trainers compute on

    @property
    def names(self) -> list[str]:
        """Of the shards."""
        return [f"shard {number}" for number in range(self.shards)]

    @cached_property
    def held(self) -> list[list[int]]:
        """By shard, the dense parameters that it serves in token modes."""
        sizes = [each.numel() for each in self.model.parameters() if each.requires_grad]
        return spread(sizes, self.shards, together=self.clip is not None)

    @property
    def places(self) -> dict[str, list[int]]:
        """The same by name; the first shard has the buffers, if nothing else."""
        named = zip(self.names, self.held, strict=True)
        return {name: places for name, places in named if places or name == self.names[0]}

    def shard(self, number: int) -> ShardSetup:
        return ShardSetup(
            self.tables,
            number,
            self.shards,
            self.model,
            self.optimizer,
            self.held[number],
            self.threads,
            self.clip,
            self.values,
            self.parked_bytes,
        )

    def trainer(self) -> TrainerSetup:
        return TrainerSetup(
            self.tables,
            self.names,
            self.model,
            self.optimizer,
            [] if self.optimizer is None else [group["lr"] for group in self.optimizer.param_groups],
            self.places,
            self.loss,
            self.clip,
            self.autocast,
            self.threads,
            self.values,
            through=self.through,
            device=self.device,
        )

    def embedding_worker(self, number: int) -> EmbeddingSetup:
        return EmbeddingSetup(self.tables, number, self.names, self.threads, self.values, self.bounds)
