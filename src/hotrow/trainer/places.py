"""Where a trainer's run takes place: its client and its site, opened together and closed together."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from hotrow.client import LocalClient
from hotrow.client.aggregate import Average
from hotrow.client.base import TableClient
from hotrow.config import Table
from hotrow.engines import LocalSite
from hotrow.engines.settings import Local, Ray, Values
from hotrow.engines.site import Site
from hotrow.errors import ConfigError
from hotrow.store.segments import demand_no_rows
from hotrow.store.shards import share_of
from hotrow.store.tiers import listed, named_tables
from hotrow.worker.core import Loss

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.engines.ray.cluster import RayCluster

Now: TypeAlias = Callable[[], tuple[int, float]]  # samples trained so far, and what learning rates are multiplied by


@dataclass(frozen=True, slots=True, eq=False)
class Brought:
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
class Place:
    """A site, and the tables behind it."""

    site: Site
    client: TableClient
    close: Callable[[], None]
    cluster: "RayCluster | None" = None


def opened(engine: Local | Ray, brought: Brought, now: Now, *, attach: bool) -> Place:
    """This process, or a cluster that is started for the run. `attach`: rows that segments hold are taken over."""
    if not attach:  # segments of shards on other machines are not seen from here; the trainer tells of their rows
        demand_no_rows(_parts(engine, named_tables(brought.tables)))
    return _here(brought) if isinstance(engine, Local) else _on_ray(engine, brought, now)


def _parts(engine: Local | Ray, tables: Mapping[str, Table]) -> Iterator[Table]:
    """Each table as it will be opened: whole, or a part for every shard."""
    for table in tables.values():
        if isinstance(engine, Local):
            yield table
        else:
            yield from (share_of(table, number, engine.shards) for number in range(engine.shards))


def _here(brought: Brought) -> Place:
    client = LocalClient(brought.tables, threads=brought.threads)
    site = LocalSite(
        brought.model,
        client,
        brought.optimizer,
        loss=brought.loss,
        clip=brought.clip,
        autocast=brought.autocast,
        average=brought.average,
    )
    return Place(site, client, client.close)


def _on_ray(engine: Ray, brought: Brought, now: Now) -> Place:
    from hotrow.transport import check_installed

    check_installed()
    # Not with hotrow itself: who trains in one process needs none of it.
    from hotrow.client.direct import ShardedClient
    from hotrow.engines.cluster.site import ClusterSite
    from hotrow.engines.ray.actors import Lines
    from hotrow.engines.ray.cluster import RayCluster
    from hotrow.engines.ray.started import Placed, connected
    from hotrow.transport.security import ClusterKey

    if engine.security == "off" and engine.bind == "node":
        raise ConfigError("engine.bind='node', security='off': strangers could read and write: take 'key' or 'curve'")
    tables = named_tables(brought.tables)
    values = _values(engine, tables)
    key = ClusterKey.generate() if engine.key is None else ClusterKey.read(engine.key)
    lines = Lines(engine.security, None if engine.security == "off" else key, engine.delay_s)
    with ExitStack() as stack:
        own = stack.enter_context(connected(engine))
        placed = Placed(engine, own=own)
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
        client = ShardedClient(tables, cluster.wire, cluster.roles.shards, values=values, threads=threads)
        site = ClusterSite(
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
        return Place(site, client, stack.pop_all().close, cluster)


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
