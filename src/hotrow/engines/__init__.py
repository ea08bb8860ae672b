"""Who performs the effects of a mode: threads of this process, or the calling one alone."""

from hotrow.engines.coordinator import Stepped, TrainedBatch
from hotrow.engines.crew import Finished
from hotrow.engines.engine import Engine
from hotrow.engines.local import LocalSite
from hotrow.engines.pool import Pool

__all__ = ["Engine", "Finished", "LocalSite", "Pool", "Stepped", "TrainedBatch"]
