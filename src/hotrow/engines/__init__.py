"""Who performs the effects of a mode: threads of this process, or the calling one alone."""

from hotrow.engines.coordinator import Stepped, TrainedBatch
from hotrow.engines.local import LocalEngine
from hotrow.engines.pool import Pool

__all__ = ["LocalEngine", "Pool", "Stepped", "TrainedBatch"]
