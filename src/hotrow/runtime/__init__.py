"""Who performs the effects of a mode: threads of this process, or the calling one alone."""

from hotrow.runtime.active_mode import StepResult, TrainedBatch
from hotrow.runtime.executors import BatchResult
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.local import LocalBackend
from hotrow.runtime.loop import TrainingLoop

__all__ = ["BatchResult", "LeaseQueue", "LocalBackend", "StepResult", "TrainedBatch", "TrainingLoop"]
