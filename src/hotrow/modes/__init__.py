"""Training modes: pure disciplines that say when a worker may start a batch, and when gradients count for how much."""

from hotrow.modes.asynchronous import Async
from hotrow.modes.backup_workers import BackupWorkers
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
    "Async",
    "BackupWorkers",
    "BoundedStaleness",
    "BulkSync",
    "Hybrid",
    "KStep",
    "Mode",
    "Sync",
    "mode_of",
]
