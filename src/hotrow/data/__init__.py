"""Where samples come from: sources and their leases, formats, splits, made-up streams."""

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.loader import Lease, Loader
from hotrow.data.schema import Ids, Label, Number, Schema, Time
from hotrow.data.source import ArrowSource, Source

__all__ = [
    "ArrowSource",
    "Batch",
    "FeatureBlock",
    "Ids",
    "Label",
    "Lease",
    "Loader",
    "Number",
    "Schema",
    "Source",
    "Time",
]
