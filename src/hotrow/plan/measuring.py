"""The plan of a run from its config: reads a sample of the data, and measures training on some batches of it."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.config import Data
from hotrow.data.describe import Watch
from hotrow.data.loader import Loader
from hotrow.errors import InputError
from hotrow.modes import Sync
from hotrow.modes.base import RunFacts
from hotrow.plan.capacity import CapacityPlan, RunShape, plan_capacity
from hotrow.plan.hosts import HostCluster
from hotrow.plan.machine import known_hosts
from hotrow.plan.sample import read_sample
from hotrow.plan.tables import PlannedTable
from hotrow.run.build import tables_of, trainer_of
from hotrow.run.config import RunConfig
from hotrow.runtime.open_backend import workers_in
from hotrow.runtime.settings import Local, Ray
from hotrow.store.native_spec import table_spec
from hotrow.store.shards import share_of
from hotrow.store.tier_plan import plan_tiers
from hotrow.trainer import Trainer
from hotrow.trainer.batches import facts_of
from hotrow.types import Values

BATCHES, WARM_BATCHES, TOGETHER = 40, 4, 2  # of the measurement
MEASURED_S = 3.0
SAMPLE_ROWS = 200_000  # that are read where the number of all rows is known


@dataclass(frozen=True, slots=True)
class MeasuredTrainer:
    """One trainer of a run, on this machine."""

    samples_per_s: float
    dense_parameters: int


def plan_run(
    config: RunConfig,
    data: Data,
    cluster: HostCluster,
    *,
    sample_rows: int | None = None,
    rows: int | None = None,
    watch: Watch | None = None,
) -> CapacityPlan:
    """Read a sample of the data, measure a trainer, and predict. `rows`: of the whole data, where it is not known."""
    facts = facts_of(config.run.global_batch, workers_in(config.run.engine, config.run.workers), config.run.local_batch)
    there = data.train.rows() if rows is None else rows
    if sample_rows is not None and there is None:
        raise InputError(
            "--sample: how many rows the data has is not known without reading it: give --rows too, or leave --sample "
            "out to read all of it"
        )
    wanted = sample_rows if sample_rows is not None else (SAMPLE_ROWS if there is not None else None)
    sample = read_sample(data.train, batch=facts.local_batch, rows=wanted, total=there, watch=watch)
    total = sample.rows if sample.whole and rows is None else max(sample.rows, there or 0)
    measured = measure_trainer(config, data, facts.local_batch)
    return plan_capacity(
        planned_tables(config, data),
        sample,
        total,
        shape_of_run(config, facts, measured.dense_parameters),
        known_hosts(cluster),
        cluster.trainer_samples_per_s or measured.samples_per_s,
        measured=cluster.trainer_samples_per_s is None,
    )


def shape_of_run(config: RunConfig, facts: RunFacts, dense_parameters: int) -> RunShape:
    """Workers and batches of a run, and where its rows are."""
    engine = config.run.engine
    shards = engine.shards if isinstance(engine, Ray) else 1
    return RunShape(
        facts.workers, shards, facts.local_batch, facts.global_batch, dense_parameters, isinstance(engine, Ray)
    )


def planned_tables(config: RunConfig, data: Data) -> list[PlannedTable]:
    """The tables that the features of the data name, with the capacity that the store makes of their settings."""
    engine = config.run.engine
    given, shards = (engine.values, engine.shards) if isinstance(engine, Ray) else ("fp32", 1)
    found = []
    for name, table in tables_of(data.schema, config.tables).items():
        values: Values = given.get(name, "fp32") if isinstance(given, dict) else given
        found.append(PlannedTable.of(table, capacity_rows_of(table, shards), values, shards))
    return found


def capacity_rows_of(table: Table, shards: int = 1) -> int | None:
    """The rows that a table keeps in RAM, over all shards; None: as many as there are ids.

    Of a table with a disk, the index of the file and the write buffer of each shard take a part of the capacity.
    """
    if table.capacity is None:
        return None
    part = share_of(table, 0, shards) if shards > 1 else table
    rows_in_ram = part if part.disk is None else plan_tiers(part).in_memory
    return shards * table_spec(rows_in_ram, None, keep_evicted=part.disk is not None)[0].capacity_rows


def measure_trainer(config: RunConfig, data: Data, local_batch: int) -> MeasuredTrainer:
    """Train on the first batches in this process for some seconds, with rows in its memory."""
    batches = [batch for _, batch in islice(Loader(data.train, local_batch), BATCHES)]
    plain = {"segment": None, "cache": None} | ({"disk": None, "path": None} if "disk" in Table.model_fields else {})
    run = config.run.model_copy(
        update={"engine": Local(), "workers": 1, "mode": Sync(), "global_batch": local_batch, "local_batch": None}
    )
    tables = {name: table.model_copy(update=plain) for name, table in config.tables.items()}
    alone = config.model_copy(update={"run": run, "tables": tables})
    with closing(trainer_of(alone, data.schema)) as trainer:
        parameters = sum(each.numel() for each in trainer.model.parameters())
        _train(trainer, batches[:WARM_BATCHES])
        samples, start = 0, time.perf_counter()
        for place in range(min(WARM_BATCHES, len(batches) - 1), len(batches), TOGETHER):
            part = batches[place : place + TOGETHER]
            _train(trainer, part)
            samples += sum(map(len, part))
            if time.perf_counter() - start > MEASURED_S:
                break
        return MeasuredTrainer(samples / (time.perf_counter() - start), parameters)


def _train(trainer: Trainer, batches: Sequence[Batch]) -> None:
    for _ in trainer.fit(batches):
        pass
