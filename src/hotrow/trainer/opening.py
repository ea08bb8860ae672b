"""A training loop on the backend of a trainer's engine, and the rows that its segments hold already."""

from dataclasses import replace

from hotrow.client.base import TableCollection
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime import TrainingLoop
from hotrow.runtime.open_backend import OpenBackend, open_backend
from hotrow.runtime.settings import Local, Ray
from hotrow.runtime.state import RunState
from hotrow.trainer.reports import FoundRows
from hotrow.worker.spec import TrainingSpec


def open_training(
    engine: Local | Ray, spec: TrainingSpec, state: RunState, mode: Mode, facts: RunFacts
) -> tuple[OpenBackend, TrainingLoop, FoundRows | None]:
    """Samples continue from those that segments know of. The caller closes the backend."""
    opened = open_backend(engine, spec, state, workers_most=facts.workers)
    if (pool := opened.backend.worker_pool) is not None:
        facts = replace(facts, workers=len(pool.names))
    try:
        state.samples = opened.backend.attached_samples()
        loop = TrainingLoop(opened.backend, state, mode=mode, facts=facts)
        return opened, loop, _rows_in_segments(opened.tables, state.samples)
    except BaseException:
        opened.close()
        raise


def _rows_in_segments(tables: TableCollection, samples: int) -> FoundRows | None:
    tiers = {name: tier for name, tier in tables.tiers.items() if tier.table.segment is not None}
    rows = {name: count for name, tier in tiers.items() if (count := len(tier))}
    return FoundRows(rows, samples) if rows else None
