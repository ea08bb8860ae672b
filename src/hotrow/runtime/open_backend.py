"""A backend from the engine of the run's settings, with its tables."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from hotrow.cache.modes import check_cached_engine
from hotrow.client.base import TableCollection
from hotrow.config import Segment, Table
from hotrow.errors import ConfigError
from hotrow.runtime.backend import Backend
from hotrow.runtime.device import device_of
from hotrow.runtime.local import LocalBackend
from hotrow.runtime.local_tables import check_no_hbm
from hotrow.runtime.settings import Local, Ray
from hotrow.runtime.state import RunState
from hotrow.store.segments import check_no_rows
from hotrow.store.shards import share_of
from hotrow.store.tier_plan import plan_tiers
from hotrow.store.tiers import listed, named_tables
from hotrow.topology.affinity import open_binder
from hotrow.topology.binding import ThreadCounts
from hotrow.types import Values
from hotrow.worker.spec import TrainingSpec

if TYPE_CHECKING:  # it comes with the extra `ray`
    from hotrow.runtime.ray.cluster import RayCluster


@dataclass(frozen=True, slots=True, eq=False)
class OpenBackend:
    """A backend with its tables."""

    backend: Backend
    tables: TableCollection
    close: Callable[[], None]
    cluster: "RayCluster | None" = None
    remarks: tuple[str, ...] = ()  # for the reports of the run


def open_backend(
    engine: Local | Ray, spec: TrainingSpec, state: RunState, *, workers_most: int | None = None
) -> OpenBackend:
    """Open training in this process, or on a cluster that is started for the run.

    Rows that segments hold are used where the spec attaches to them; else they are a SegmentError.
    `workers_most`: of a number of trainers that changes, how many may start.
    """
    if not spec.attach:  # before a cluster is started; each table checks again when it is opened, on its own machine
        check_no_rows(_parts(engine, named_tables(spec.tables)))
    if isinstance(engine, Ray):
        check_shares(engine, named_tables(spec.tables))
        return _on_ray(engine, spec, state, workers_most or engine.trainers_most)
    binder = open_binder(engine.bind_cores, _threads_of(spec, workers_most or 1))
    try:
        backend = LocalBackend(spec, state, binder, device_of(engine.device))
    except BaseException:
        binder.close()
        raise
    return OpenBackend(backend, backend.tables, backend.close, remarks=(*binder.remarks, *backend.remarks))


def _threads_of(spec: TrainingSpec, workers: int) -> ThreadCounts:
    """The threads of a run in this process. Of the store's, the thread that calls is not counted: it has a role."""
    threads = torch.get_num_threads() if spec.threads is None else spec.threads
    return ThreadCounts(trainers=workers, store=max(1, threads - 1))


def _parts(engine: Local | Ray, tables: Mapping[str, Table]) -> Iterator[Table]:
    """Each table as it will be opened: whole, or a part for every shard."""
    for table in tables.values():
        if isinstance(engine, Local):
            yield table
        else:
            yield from (share_of(table, number, engine.shards) for number in range(engine.shards))


def check_shares(engine: Ray, tables: Mapping[str, Table]) -> None:
    """Before a cluster is started: what a shard has of a table with a disk is enough for its index and rows."""
    for table in tables.values():
        if table.disk is None:
            continue
        part = share_of(table, 0, engine.shards)
        if engine.shared_rows and part.segment is None:
            part = part.model_copy(update={"segment": Segment(run="run")})  # as each shard will name its own
        try:
            plan_tiers(part)
        except ConfigError as error:
            raise ConfigError(
                f"table {table.name!r}, capacity={table.capacity!r}, disk={table.disk!r}: each of "
                f"engine.shards={engine.shards} has an equal part of both, and for it: {error}"
            ) from None


def _on_ray(engine: Ray, spec: TrainingSpec, state: RunState, workers_most: int) -> OpenBackend:
    from hotrow.transport import check_installed

    check_installed()
    # Imported here: training in one process needs none of it.
    from hotrow.client.sharded import ShardedTables
    from hotrow.runtime.cluster.backend import ClusterBackend
    from hotrow.runtime.ray.actors import TransportSettings
    from hotrow.runtime.ray.cluster import RayCluster
    from hotrow.runtime.ray.connection import PlacedRoles, connect_ray
    from hotrow.runtime.ray.setups import RoleSetups
    from hotrow.server.shared_rows import remove_leftovers
    from hotrow.transport.security import ClusterKey
    from hotrow.worker.setup import RoleSpec

    if engine.security == "off" and engine.bind == "node":
        raise ConfigError("engine.bind='node', security='off': any host could read and write: take 'key' or 'curve'")
    spec = replace(spec, tables=named_tables(spec.tables))
    check_no_hbm(spec.tables)
    values = _values(engine, spec.tables)
    check_cached_engine(spec.tables, values, engine.embedding_workers)
    key = ClusterKey.generate() if engine.key is None else ClusterKey.read(engine.key)
    secret = None if engine.security == "off" else key
    transport = TransportSettings(
        engine.security, secret, engine.delay_s, link_gbps=engine.link_gbps, bind_cores=engine.bind_cores
    )
    setups = RoleSetups(
        RoleSpec(spec, engine.threads, values, engine.parked_most),
        shards=engine.shards,
        pooled=engine.embedding_workers > 0,
        device="cuda" if engine.trainer.gpus else "cpu",
        run=f"run-{secrets.token_hex(4)}" if engine.shared_rows else None,
    )
    with ExitStack() as stack:
        own = stack.enter_context(connect_ray(engine))
        placed = PlacedRoles(engine, own=own)
        stack.callback(placed.close)
        if setups.run is not None:  # after the cluster: of shards of this host that did not stop by themselves
            stack.callback(remove_leftovers, setups.run)
        trainers = placed.place_trainers(workers_most)
        cluster = RayCluster(
            setups,
            trainers=trainers,
            embedding_workers=engine.embedding_workers,
            loaders=engine.loaders,
            lines=transport,
            host="127.0.0.1" if engine.bind == "loopback" else None,
            options=placed.options,
            freed=placed.free,
            places=placed.trainer_places,
            restarts=engine.replace_lost,
        )
        stack.callback(cluster.close)
        threads = spec.threads or torch.get_num_threads()
        tables = ShardedTables(spec.tables, cluster.rpc, cluster.roles.shards, values=values, threads=threads)
        backend = ClusterBackend(
            spec,
            tables,
            cluster.roles,
            state,
            places=setups.places,
        )
        return OpenBackend(backend, tables, stack.pop_all().close, cluster)


def _values(engine: Ray, tables: Mapping[str, Table]) -> dict[str, Values]:
    if isinstance(engine.values, str):
        return dict.fromkeys(tables, engine.values)
    if strangers := engine.values.keys() - tables.keys():
        raise ConfigError(f"engine.values: there is no table {listed(strangers)}: there are {listed(tables)}")
    return dict(engine.values)


def workers_in(engine: Local | Ray, workers: int) -> int:
    """The number of workers: on a cluster that of the trainers, the most where it changes."""
    if isinstance(engine, Local):
        return workers
    if workers not in (1, engine.trainers):
        raise ConfigError(f"workers={workers}: on ray the trainers are the workers, and there are {engine.trainers}")
    return engine.trainers_most
