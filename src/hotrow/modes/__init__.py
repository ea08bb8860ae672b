"""Training modes: pure disciplines that decide when a worker may start a batch, and when gradients are applied with
what weight.

A mode of your own is a `Mode` whose `start(facts)` returns a `Discipline`: `on(event)` changes its fields and returns
effects. Events and effects are below; docs/modes.md has an example.
"""

from hotrow.modes.asynchronous import Async
from hotrow.modes.backup_workers import BackupWorkers
from hotrow.modes.base import (
    Apply,
    Discipline,
    Drain,
    Drop,
    Effect,
    Ended,
    Event,
    GradientPart,
    Grant,
    Grants,
    Group,
    Joined,
    LookAhead,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
    part,
)
from hotrow.modes.bounded_staleness import BoundedStaleness
from hotrow.modes.bulk_sync import BulkSync
from hotrow.modes.gba import GBA
from hotrow.modes.hybrid import Hybrid
from hotrow.modes.k_step import KStep
from hotrow.modes.mode import Mode
from hotrow.modes.synchronous import Sync
from hotrow.modes.table import MODES, AnyMode, mode_of

__all__ = [
    "GBA",
    "MODES",
    "AnyMode",
    "Apply",
    "Async",
    "BackupWorkers",
    "BoundedStaleness",
    "BulkSync",
    "Discipline",
    "Drain",
    "Drop",
    "Effect",
    "Ended",
    "Event",
    "GradientPart",
    "Grant",
    "Grants",
    "Group",
    "Hybrid",
    "Joined",
    "KStep",
    "LookAhead",
    "Lost",
    "Mode",
    "Park",
    "Pushed",
    "Ready",
    "Resume",
    "RunFacts",
    "Sync",
    "mode_of",
    "part",
]
