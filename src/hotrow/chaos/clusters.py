"""The clusters that are exposed to faults, and the modes that take turns on them."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from hotrow.chaos.counting import CountingModel, counting_table
from hotrow.config import Cache, Segment, Table
from hotrow.data.synthetic import SyntheticConfig
from hotrow.models.registry import build
from hotrow.modes import GBA, Async, Hybrid, KStep, Mode, Sync
from hotrow.nn.inputs import InputShape
from hotrow.optim import KStepAdam
from hotrow.optim.sparse import Adagrad
from hotrow.runtime.settings import Ray, Resources
from hotrow.trainer import Trainer

SHARDS = 2
PARTS = 4  # local batches of a global one
COUNTED_BATCH, LEARNED_BATCH = 64, 128  # local ones
DIM = 8
SMALL = Resources(cpus=0.1)
CPUS = 4  # that Ray offers: room for the roles of a cluster, and for those that take the place of killed ones

# A late gradient weighs nothing in GBA, and rows in Hybrid are scaled: neither is a loss, and both would look like one.
COUNTED_MODES: tuple[Mode, ...] = (GBA(tolerance=2**31), Async(), Sync(), Hybrid(scale="local"))
LEARNED_MODES: tuple[Mode, ...] = (GBA(), Async(), Sync(), Hybrid())
REPLICATED = KStep(k=5, warmup=0)
CACHED_MODES: tuple[Mode, ...] = (Hybrid(scale="local"), Async())
CACHE = Cache(capacity=512, staleness=3)  # of each trainer, which sees about a third of all ids: some are evicted
REPEATS = 8  # of an id, where rows are cached


def segment_run() -> str:
    """The name that segments of this process begin with."""
    return f"chaos-{os.getpid()}"


def counting_trainer(*, pooled: bool, replicated: bool = False, cached: bool = False) -> Trainer:
    """Counts samples and steps; `replicated`: with the optimizer that KStep needs, which counts no steps.

    `cached`: trainers keep rows.
    """

    def dense(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return KStepAdam(parameters, lr=0.01) if replicated else torch.optim.SGD(parameters, lr=1.0)

    table = counting_table(COUNTED_BATCH, f"{segment_run()}-counting", CACHE if cached else None)
    begins_in = {"mode": CACHED_MODES[0]} if cached else {}  # the default mode refuses a cache
    return _trainer(
        CountingModel(), table, dense, COUNTED_BATCH, pooled=pooled, embedding_average="present", **begins_in
    )


def learning_trainer(stream: SyntheticConfig, *, pooled: bool, seed: int) -> Trainer:
    """A DeepFM on a synthetic stream. With faster rates the order of asynchronous updates moves the AUC by 0.002."""
    torch.manual_seed(seed)
    fields = {f"id_{place}": DIM for place in range(1, stream.features + 1)}
    model = build("deepfm", InputShape(stream.numbers, fields), {"hidden": [16]})
    table = Table(dim=DIM, optimizer=Adagrad(lr=0.02), segment=Segment(run=f"{segment_run()}-learning"))
    return _trainer(model, table, lambda given: KStepAdam(given, lr=0.002), LEARNED_BATCH, pooled=pooled)


def _trainer(
    model: nn.Module, table: Table, dense: Callable[..., Any], batch: int, *, pooled: bool, **more: Any
) -> Trainer:
    roles: Mapping[str, Any] = dict.fromkeys(("trainer", "shard", "embedding_worker", "loader"), SMALL)
    engine = Ray(
        trainers=3,
        shards=SHARDS,
        embedding_workers=2 if pooled else 0,
        loaders=2,
        replace_lost=4096,
        **roles,
    )
    return Trainer(
        model,
        table,
        optimizer=dense,
        engine=engine,
        global_batch=PARTS * batch,
        local_batch=batch,
        threads=1,
        report_every_s=0.5,
        **more,
    )
