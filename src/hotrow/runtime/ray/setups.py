"""The settings of the roles of a run, whenever one of them starts."""

from dataclasses import dataclass, field
from functools import cached_property

from hotrow.client.row_hints import hinted_tables
from hotrow.runtime.ray.actors import LoaderSetup, ShardSetup
from hotrow.server.dense_shard import spread
from hotrow.server.restarting import ShardBefore
from hotrow.types import RoleId
from hotrow.worker.embedding import BufferLimits
from hotrow.worker.embedding_process import EmbeddingSetup
from hotrow.worker.setup import RoleSpec, TrainerSetup


@dataclass(frozen=True, eq=False)
class RoleSetups:
    """The same for all roles of a kind, except for their numbers."""

    role: RoleSpec
    shards: int
    pooled: bool = False  # trainers get vectors from embedding workers
    limits: BufferLimits = field(default_factory=BufferLimits)  # of each embedding worker
    device: str = "cpu"  # that trainers compute on
    run: str | None = None  # names the shared memory of shards; None: they have none

    @property
    def names(self) -> list[RoleId]:
        """Of the shards."""
        return [RoleId("shard", number) for number in range(self.shards)]

    @cached_property
    def held(self) -> list[list[int]]:
        """By shard, the dense parameters that it holds in token modes."""
        spec = self.role.spec
        sizes = [each.numel() for each in spec.model.parameters() if each.requires_grad]
        return spread(sizes, self.shards, together=spec.clip is not None)

    @property
    def places(self) -> dict[RoleId, list[int]]:
        """The same by name; the first shard has the buffers, if nothing else."""
        named = zip(self.names, self.held, strict=True)
        return {name: places for name, places in named if places or name == self.names[0]}

    def shard(self, number: int, before: ShardBefore | None = None) -> ShardSetup:
        return ShardSetup(self.role, number, self.shards, self.held[number], self.run, before)

    def trainer(self) -> TrainerSetup:
        optimizer = self.role.spec.optimizer
        return TrainerSetup(
            self.role,
            self.names,
            [] if optimizer is None else [group["lr"] for group in optimizer.param_groups],
            self.places,
            pooled=self.pooled,
            device=self.device,
        )

    def loader(self) -> LoaderSetup:
        """Without the model, which loaders do not need."""
        return LoaderSetup(hinted_tables(self.role.spec.tables), self.role.threads)

    def embedding_worker(self, number: int) -> EmbeddingSetup:
        """Without the model, which embedding workers do not need."""
        role = self.role
        return EmbeddingSetup(role.spec.tables, number, self.names, role.threads, role.values, self.limits)
