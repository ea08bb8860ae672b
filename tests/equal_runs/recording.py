"""Runs whose losses, parameters and events are written down."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

import hotrow as hr
from hotrow.modes import Mode
from hotrow.modes.base import Discipline, Effect, Event, RunFacts
from hotrow.sim.trace import effect_text, event_text
from hotrow.trainer import Trainer
from hotrow.trainer.reports import Progress
from integration.on_ray.small_cluster import batches, dense_state, losses, trainer_of, whole_rows
from simulations import TRAINED, config, outcomes

LOCAL_BATCH = 8
MODES_OF_ONE: Sequence[tuple[str, Any]] = [
    ("sync", hr.Sync()),
    ("async", hr.Async()),
    ("bulk_sync", hr.BulkSync(bulk=2)),
    ("bounded_staleness", hr.BoundedStaleness(bound=1)),
    ("backup_workers", hr.BackupWorkers(backups=0)),
    ("gba", hr.GBA(tolerance=2)),
    ("hybrid", hr.Hybrid(max_in_flight=2)),
    ("k_step", hr.KStep(k=3, warmup=200)),
    ("auto", "auto"),
]
# Whatever order pushes come in: the step is that of one large batch, or each worker's own.
FIXED_BY_THE_MODE = {"sync", "k_step"}


def record(*, with_ray: bool) -> dict[str, Any]:
    """All runs by name."""
    torch.set_num_threads(1)
    runs: dict[str, Any] = {}
    for name, mode in MODES_OF_ONE:
        runs[f"one worker, {name}"] = trained(mode, "bits", workers=1, local_batch=LOCAL_BATCH)
        several = "losses" if name in FIXED_BY_THE_MODE else "samples"
        runs[f"four workers, {name}"] = trained(mode, several, workers=4, local_batch=LOCAL_BATCH, global_batch=32)
        runs[f"simulator, {name}"] = simulated(name, mode)
    runs["one worker, all modes in turn"] = trained(
        hr.Sync(), "bits", workers=1, local_batch=LOCAL_BATCH, switches=[mode for _, mode in MODES_OF_ONE[1:]]
    )
    if with_ray:
        runs |= on_ray()
    return runs


def on_ray() -> dict[str, Any]:
    runs: dict[str, Any] = {}
    for name, mode in MODES_OF_ONE:
        engine = hr.Ray(trainers=2, shards=2)
        several = "losses" if name in FIXED_BY_THE_MODE else "samples"
        runs[f"cluster, {name}"] = trained(mode, several, engine=engine, local_batch=LOCAL_BATCH)
    through = hr.Ray(trainers=2, shards=2, embedding_workers=1)
    runs["cluster with an embedding worker, sync"] = trained(
        hr.Sync(), "losses", engine=through, local_batch=LOCAL_BATCH
    )
    return runs


def trained(mode: Any, equal: str, *, switches: Sequence[Any] = (), **settings: Any) -> dict[str, Any]:
    """One fit, with a change of the mode after every 8 steps where there are some."""
    dense = hr.KStepAdam if equal == "bits" or _name(mode) == "k_step" else None
    with written_down() as trace:
        trainer = trainer_of(mode=mode, dense=dense, **settings)
        try:
            return {"equal": equal, **_fitted(trainer, list(switches)), "trace": trace}
        finally:
            trainer.close()


def _fitted(trainer: Trainer, switches: list[Any]) -> dict[str, Any]:
    told = []
    count = 100 if not switches else 20 * (len(switches) + 1)
    for report in trainer.fit(batches(count, LOCAL_BATCH)):
        told += losses([report])
        if switches and isinstance(report, Progress) and report.step % 8 == 7:
            trainer.switch(switches.pop(0))
    rows = hashlib.sha256()
    for key, row in sorted(whole_rows(trainer).items()):
        rows.update(key.to_bytes(8, "little") + row.tobytes())
    dense = hashlib.sha256(b"".join(each.tobytes() for each in dense_state(trainer)))
    return {
        "losses": told,
        "samples": trainer.samples,
        "steps": trainer.step,
        "rows": rows.hexdigest(),
        "dense": dense.hexdigest(),
        "metrics": {},
    }


def simulated(name: str, mode: Any) -> dict[str, Any]:
    """Four uneven workers in virtual time, with real gradients."""
    own = {} if mode == "auto" else mode.model_dump(exclude_defaults=True, exclude={"name"})
    slow = {
        "workers": 4,
        "local_batch": 16,
        "speeds": {"sample_s": 0.01, "stragglers": [{"workers": [0], "factor": 3.0}]},
    }
    document = {**TRAINED, "modes": {name: own}, "cluster": slow}
    if name == "k_step":
        dense = {"optimizer": {"name": "kstepadam", "lr": 0.01}}
        document["hyper"] = {"one": {"dense": dense, "rows": {"name": "sgd", "lr": 0.2}}}
    with written_down() as trace:
        (outcome,) = outcomes(config(document)).values()
    return {
        "equal": "bits",
        "losses": [],
        "samples": outcome.result.samples_applied,
        "steps": outcome.result.steps,
        "rows": dict(outcome.rows),
        "dense": "",
        "metrics": dict(outcome.metrics or {}),
        "trace": trace,
    }


class Written:
    """A discipline whose events and effects are written down."""

    def __init__(self, discipline: Discipline, lines: list[str]) -> None:
        self._discipline, self._lines = discipline, lines

    def on(self, event: Event) -> list[Effect]:
        effects = self._discipline.on(event)
        self._lines.append(" | ".join([event_text(event), *map(effect_text, effects)]))
        return effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._discipline, name)


@contextmanager
def written_down() -> Iterator[list[str]]:
    """All that modes are told and say meanwhile, in this process."""
    lines: list[str] = []

    def patched(kind: type[Mode]) -> Any:
        start = kind.start

        def started(mode: Mode, facts: RunFacts) -> Any:
            lines.append(f"{mode!r} starts with {facts}")
            return Written(start(mode, facts), lines)

        return mock.patch.object(kind, "start", started)

    patches = [patched(kind) for kind in Mode.__subclasses__()]
    for each in patches:
        each.start()
    try:
        yield lines
    finally:
        for each in patches:
            each.stop()


def _name(mode: Any) -> str:
    return str(getattr(mode, "name", mode))
