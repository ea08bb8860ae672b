"""Parts of a data set: to train, to validate and to test on, once or day after day."""

from hotrow.data.splits.days import Day, day_by_day, days_of, file_days
from hotrow.data.splits.ranges import Fraction, RowRange, TimeRange
from hotrow.data.splits.settings import (
    DaysSplit,
    FractionSplit,
    NextDay,
    Period,
    RowsSplit,
    SplitConfig,
    Splits,
    TimeSplit,
    split,
)

__all__ = [
    "Day",
    "DaysSplit",
    "Fraction",
    "FractionSplit",
    "NextDay",
    "Period",
    "RowRange",
    "RowsSplit",
    "SplitConfig",
    "Splits",
    "TimeRange",
    "TimeSplit",
    "day_by_day",
    "days_of",
    "file_days",
    "split",
]
