"""The task, the cluster and the two sets of hyper-parameters that the comparisons by AUC share.

Scaled down from GBA's Table 5.1 to what one core trains in minutes: 32 workers of 64 samples instead of 100 of 12,800.
Set S was tuned for Sync's global batch, set A for Async's local one, each by the mean AUC over five days of another
seed.
"""

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, Mode, Sync
from hotrow.optim.sparse import Adagrad
from hotrow.reproduce.task import PaperHyper, TrainingTask
from hotrow.sim.config import ClusterConfig
from hotrow.sim.speeds import LogNormal, Speeds, Stragglers

WORKERS, LOCAL_BATCH = 32, 64
GLOBAL_BATCH = WORKERS * LOCAL_BATCH
SET_S = PaperHyper(Adagrad(lr=0.05), "Adam", {"lr": 3e-3})
SET_A = PaperHyper(Adagrad(lr=0.03), "Adagrad", {"lr": 0.01})

# Every batch takes its own time, every machine is a little different, and one in twenty is slow for a while.
SHARED = Speeds(
    sample_s=1e-4,
    machines=LogNormal(sigma=0.15),
    batches=LogNormal(sigma=0.15),
    stragglers=(Stragglers(share=0.05, factor=3.0, every_s=1.0),),
)
TASK = TrainingTask(days=8, train_rows=128 * GLOBAL_BATCH)

# The paper's private parameters, scaled from 100 workers to 32.
MODES: dict[str, Mode] = {
    "sync": Sync(),
    "gba": GBA(tolerance=4),
    "backup_workers": BackupWorkers(backups=8),
    "bounded_staleness": BoundedStaleness(bound=2),
    "bulk_sync": BulkSync(bulk=6),
    "hybrid": Hybrid(),
    "async": Async(),
}


def cluster(workers: int = WORKERS, local_batch: int = LOCAL_BATCH, global_batch: int | None = None) -> ClusterConfig:
    """The shared cluster."""
    return ClusterConfig(workers=workers, local_batch=local_batch, global_batch=global_batch, speeds=SHARED)
