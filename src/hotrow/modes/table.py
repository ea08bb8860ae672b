"""The table of all modes, as the documentation shows it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from hotrow.errors import ConfigError
from hotrow.modes.asynchronous import Async
from hotrow.modes.backup_workers import BackupWorkers
from hotrow.modes.bounded_staleness import BoundedStaleness
from hotrow.modes.bulk_sync import BulkSync
from hotrow.modes.gba import GBA
from hotrow.modes.hybrid import Hybrid
from hotrow.modes.k_step import KStep
from hotrow.modes.mode import Mode
from hotrow.modes.synchronous import Sync

AnyMode = Annotated[
    Sync | Async | BulkSync | BoundedStaleness | BackupWorkers | GBA | Hybrid | KStep, Field(discriminator="name")
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One mode: a discipline for both groups, or one for each."""

    spec: Callable[..., Mode]
    dense: str
    embedding: str
    samples_per_step: str
    promise: str
    paper: str
    parameters: tuple[str, ...]  # of its own


MODES: Mapping[str, Entry] = {
    "sync": Entry(
        Sync, "waits for all", "same", "G", "equals one worker with batch G", "GBA, section 3", ("look_ahead",)
    ),
    "async": Entry(Async, "each on arrival", "same", "B", "fastest", "ASGD; GBA, section 3", ("staleness",)),
    "bulk_sync": Entry(
        BulkSync,
        "b at a time, any version",
        "same",
        "b B",
        "workers never wait",
        "GBA, section 5 (BSP)",
        ("bulk", "staleness"),
    ),
    "bounded_staleness": Entry(
        BoundedStaleness,
        "on arrival; parks workers more than b batches ahead of the slowest",
        "same",
        "B",
        "the fastest is never far ahead",
        "GBA, section 5 (Hop-BS)",
        ("bound", "staleness"),
    ),
    "backup_workers": Entry(
        BackupWorkers,
        "the first N - b close the step, the others are dropped",
        "same",
        "(N - b) B",
        "no staleness",
        "GBA, section 5 (Hop-BW)",
        ("backups",),
    ),
    "gba": Entry(
        GBA,
        "G / B gradients close the step, late ones weigh 0",
        "same, weight per id",
        "G",
        "asynchronous speed, synchronous batch",
        "GBA, section 4",
        ("tolerance", "decay", "literal"),
    ),
    "hybrid": Entry(
        Hybrid,
        "all-reduce",
        "on arrival",
        "G",
        "dense like Sync, embeddings bounded",
        "PERSIA, section 3",
        ("max_in_flight", "scale", "staleness"),
    ),
    "k_step": Entry(
        KStep,
        "local, merged every k",
        "Sync",
        "B per worker, merged",
        "2/k of the dense traffic",
        "Baidu",
        ("k", "warmup", "look_ahead"),
    ),
}


def mode_of(value: Mode | str | Mapping[str, Any]) -> Mode:
    """Make a mode from itself, its name, or a dict with its name and settings.

    Example:
        >>> from hotrow.modes import mode_of
        >>> mode_of({"name": "gba", "tolerance": 2}).tolerance
        2
    """
    if isinstance(value, Mode):
        return value
    settings = {"name": value} if isinstance(value, str) else dict(value)
    entry = MODES.get(str(settings.get("name", "")))
    if entry is None:
        raise ConfigError(f"mode={value!r}: there is none of this name; there are {', '.join(MODES)}")
    return entry.spec(**settings)
