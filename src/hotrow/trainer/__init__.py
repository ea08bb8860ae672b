"""Training over data: loops, reports, evaluation, schedules."""

from hotrow.trainer.reports import Best, EpochEnded, Evaluated, Progress, Remark, Report, Switched, TrainingEnded
from hotrow.trainer.schedule import EarlyStopping, Schedule
from hotrow.trainer.trainer import Trainer

__all__ = [
    "Best",
    "EarlyStopping",
    "EpochEnded",
    "Evaluated",
    "Progress",
    "Remark",
    "Report",
    "Schedule",
    "Switched",
    "Trainer",
    "TrainingEnded",
]
