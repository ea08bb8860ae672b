"""Where a trainer's run takes place: its client and its site, opened together and closed together."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from hotrow.client import LocalTables
from hotrow.client.aggregate import Average
from hotrow.client.base import TableCollection
from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.runtime import LocalBackend
from hotrow.runtime.backend import Backend
from hotrow.runtime.settings import Local, Ray, Values
from hotrow.store.segments import check_no_rows
from hotrow.store.shards import share_of
from hotrow.store.tiers import listed, named_tables
from hotrow.worker.core import Loss

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.runtime.ray.cluster import RayCluster

Now: TypeAlias = Callable[[], tuple[int, float]]  # samples trained so far, and what learning rates are multiplied by


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSpec:
    """What a trainer brings to any place."""

    model: nn.Module
    tables: Mapping[str, Table]
    optimizer: Optimizer | None
    loss: Loss | None
    clip: float | None
    autocast: bool
    average: Average
    threads: int | None


@dataclass(slots=True, eq=False)
class OpenBackend:
    """A site, and the tables behind it."""

    site: Backend
    client: TableCollection
    close: Callable[[], None]
    cluster: "RayCluster | None" = None


def open_backend(engine: Local | Ray, brought: TrainingSpec, now: Now, *, attach: bool) -> OpenBackend:
    """This process, or a cluster that is started for the run. `attach`: rows that segments hold are taken over."""
    if not attach:  # segments of shards on other machines are not seen from here; the trainer tells of their rows
        check_no_rows(_parts(engine, named_tables(brought.tables)))
    return _here(brought) if isinstance(engine, Local) else _on_ray(engine, brought, now)


def _parts(engine: Local | Ray, tables: Mapping[str, Table]) -> Iterator[Table]:
    """Each table as it will be opened: whole, or a part for every shard."""
    for table in tables.values():
        if isinstance(engine, Local):
            yield table
        else:
            yield from (share_of(table, number, engine.shards) for number in range(engine.shards))


def _here(brought: TrainingSpec) -> OpenBackend:
    client = LocalTables(brought.tables, threads=brought.threads)
    site = LocalBackend(
        brought.model,
        client,
        brought.optimizer,
        loss=brought.loss,
        clip=brought.clip,
        autocast=brought.autocast,
        average=brought.average,
    )
    return OpenBackend(site, client, client.close)


def _on_ray(engine: Ray, brought: TrainingSpec, now: Now) -> OpenBackend:
    from hotrow.transport import check_installed

    check_installed()
    # Not with hotrow itself: who trains in one process needs none of it.
    from hotrow.client.sharded import ShardedTables
    from hotrow.runtime.cluster.backend import ClusterBackend
    from hotrow.runtime.ray.actors import TransportSettings
    from hotrow.runtime.ray.cluster import RayCluster
    from hotrow.runtime.ray.connection import PlacedRoles, connect_ray
    from hotrow.transport.security import ClusterKey

    if engine.security == "off" and engine.bind == "node":
        raise ConfigError("engine.bind='node', security='off': strangers could read and write: take 'key' or 'curve'")
    tables = named_tables(brought.tables)
    values = _values(engine, tables)
    key = ClusterKey.generate() if engine.key is None else ClusterKey.read(engine.key)
    lines = TransportSettings(engine.security, None if engine.security == "off" else key, engine.delay_s)
    with ExitStack() as stack:
        own = stack.enter_context(connect_ray(engine))
        placed = PlacedRoles(engine, own=own)
        stack.callback(placed.close)
        cluster = RayCluster(
            tables,
            brought.model,
            brought.optimizer,
            shards=engine.shards,
            trainers=engine.trainers,
            embedding_workers=engine.embedding_workers,
            lines=lines,
            loss=brought.loss,
            clip=brought.clip,
            autocast=brought.autocast,
            threads=engine.threads,
            values=values,
            parked_bytes=engine.parked_most,
            device="cuda" if engine.trainer.gpus else "cpu",
            host="127.0.0.1" if engine.bind == "loopback" else None,
            options=placed.options,
        )
        stack.callback(cluster.close)
        threads = brought.threads or torch.get_num_threads()
        client = ShardedTables(tables, cluster.wire, cluster.roles.shards, values=values, threads=threads)
        site = ClusterBackend(
            brought.model,
            client,
            brought.optimizer,
            cluster.roles,
            now,
            places=cluster.places,
            hosts=cluster.hosts,
            dismiss=cluster.leave_trainer,
            loss=brought.loss,
            autocast=brought.autocast,
            average=brought.average,
        )
        return OpenBackend(site, client, stack.pop_all().close, cluster)


def _values(engine: Ray, tables: Mapping[str, Table]) -> dict[str, Values]:
    if isinstance(engine.values, str):
        return dict.fromkeys(tables, engine.values)
    if strangers := engine.values.keys() - tables.keys():
        raise ConfigError(f"engine.values: there is no table {listed(strangers)}: there are {listed(tables)}")
    return dict(engine.values)


def workers_in(engine: Local | Ray, workers: int) -> int:
    """As many as there are trainers, where these are the workers."""
    if isinstance(engine, Local):
        return workers
    if workers not in (1, engine.trainers):
        raise ConfigError(f"workers={workers}: on ray the trainers are the workers, and there are {engine.trainers}")
    return engine.trainers
