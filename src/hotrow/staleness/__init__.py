"""How late gradients are, and what they still count. Pure.

`decay` holds the curves and the policy of a mode; `histogram`, `ids`, `weights` and `statistics` what every run counts,
decay or none. The modes import the first, and the last imports the events of the modes: `decay` has to come first here.
"""

from hotrow.staleness.decay import AnyDecay, Cutoff, Inverse, Linear, Power, Staleness
from hotrow.staleness.histogram import Histogram
from hotrow.staleness.ids import IdCounts
from hotrow.staleness.statistics import Statistics
from hotrow.staleness.weights import WeightCorrection

__all__ = [
    "AnyDecay",
    "Cutoff",
    "Histogram",
    "IdCounts",
    "Inverse",
    "Linear",
    "Power",
    "Staleness",
    "Statistics",
    "WeightCorrection",
]
