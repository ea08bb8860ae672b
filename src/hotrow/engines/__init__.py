"""Who performs the effects of a mode: threads of this process, or the calling one alone."""

from hotrow.engines.coordinator import Stepped, TrainedBatch
from hotrow.engines.crew import Finished
from hotrow.engines.local import LocalEngine
from hotrow.engines.pool import Pool

__all__ = ["Finished", "LocalEngine", "Pool", "Stepped", "TrainedBatch"]
