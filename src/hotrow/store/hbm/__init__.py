"""Tables in GPU memory (docs/gpu.md). Imports nothing but torch, Triton and `hotrow.kernels`.

`HbmTier` is one table on one GPU, `HbmPartitions` one table on several, and `WorkingSet` puts either above a tier in
memory or on disk.
"""

from hotrow.store.hbm.partitions import HbmPartitions
from hotrow.store.hbm.rows import HbmPlan, HbmRows, HbmStats
from hotrow.store.hbm.spec import HbmSpec
from hotrow.store.hbm.tier import HbmTier
from hotrow.store.hbm.working_set import WorkingSet

__all__ = ["HbmPartitions", "HbmPlan", "HbmRows", "HbmSpec", "HbmStats", "HbmTier", "WorkingSet"]
