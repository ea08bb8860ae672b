"""A sketch of a regression on the wire: its counts and sums as a header, its arrays as frames."""

from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from hotrow.metrics.binned import BinnedMeans
from hotrow.metrics.error_sketch import ErrorSketch, ErrorSums, NumberPairs, joined_number_pairs
from hotrow.transport.batches import FrameReader
from hotrow.transport.messages import CollectedErrors


def pack_errors(sketch: ErrorSketch) -> tuple[CollectedErrors, list[NDArray[np.generic]]]:
    """The header and the frames of a sketch, which is made compact."""
    sketch.compact()
    pairs, bins = joined_number_pairs(sketch.pairs), sketch.bins
    frames: list[NDArray[np.generic]] = [pairs.labels, pairs.predictions]
    frames += [] if pairs.weights is None else [pairs.weights]
    frames += [] if bins is None else [bins.weights, bins.predicted, bins.observed, bins.counts]
    header = CollectedErrors(
        sketch.samples,
        len(pairs),
        pairs.weights is not None,
        astuple(sketch.sums),
        None if bins is None else len(bins),
        bins is not None and bins.nan,
    )
    return header, frames


def read_errors(header: CollectedErrors, reader: FrameReader) -> ErrorSketch:
    """The sketch of a header, from the next frames; InputError where they do not fit it."""
    sketch = ErrorSketch()
    labels = reader.floats("labels", header.pairs, 1)[:, 0]
    predictions = reader.floats("predictions", header.pairs, 1)[:, 0]
    weights = reader.floats("weights", header.pairs, 1)[:, 0] if header.weights else None
    if header.pairs:
        sketch.pairs = [NumberPairs(labels, predictions, weights)]
    if header.bins is not None:
        sums = [reader.doubles("bins", header.bins) for _ in range(4)]
        sketch.bins = BinnedMeans(sums[0], sums[1], sums[2], sums[3], header.nan)
    sketch.sums, sketch.samples = ErrorSums(*header.sums), header.samples
    return sketch
