"""One training job: the loop over events and effects, its backends, and the state it advances."""

from hotrow.runtime.executors import BatchResult
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.local import LocalBackend
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.training_performer import StepResult, TrainedBatch

__all__ = ["BatchResult", "LeaseQueue", "LocalBackend", "StepResult", "TrainedBatch", "TrainingLoop"]
