"""Sketches on the wire: their counts as headers, their arrays as frames."""

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from hotrow.metrics.quantiles import WeightedPoints
from hotrow.metrics.sketch import Pairs, ScoreSketch, ScoreSums, joined_pairs
from hotrow.transport.batches import FrameReader
from hotrow.transport.messages import CollectedScores, ScorePoints


def pack_sketch(sketch: ScoreSketch) -> tuple[CollectedScores, list[NDArray[np.generic]]]:
    """The header and the frames of a sketch, which is made compact."""
    sketch.compact()
    pairs = joined_pairs(sketch.pairs)
    frames: list[NDArray[np.generic]] = [pairs.labels.astype(np.uint8), pairs.scores]
    frames += [] if pairs.weights is None else [pairs.weights]
    classes = None
    if not sketch.exact:
        positives, negatives = sketch.positives[0], sketch.negatives[0]
        classes = _head(positives), _head(negatives)
        frames += [positives.scores, positives.masses, negatives.scores, negatives.masses]
    return CollectedScores(
        sketch.samples,
        sketch.not_finite,
        sketch.nan,
        len(pairs),
        pairs.weights is not None,
        astuple(sketch.sums),
        classes,
    ), frames


def unpack_sketch(header: CollectedScores, frames: Sequence[memoryview]) -> ScoreSketch:
    """The sketch of a header; InputError where the frames do not fit it."""
    reader = FrameReader(frames)
    sketch = read_sketch(header, reader)
    reader.check_end()
    return sketch


def read_sketch(header: CollectedScores, reader: FrameReader) -> ScoreSketch:
    """The sketch of a header, from the next frames."""
    sketch = ScoreSketch()
    labels = reader.flags("labels", header.pairs)
    scores = reader.floats("scores", header.pairs, 1)[:, 0]
    weights = reader.floats("weights", header.pairs, 1)[:, 0] if header.weights else None
    if header.pairs:
        sketch.pairs = [Pairs(labels, scores, weights)]
    if header.classes is not None:
        sketch.positives, sketch.negatives = ([_points(head, reader)] for head in header.classes)
    sketch.sums = ScoreSums(*header.sums)
    sketch.samples, sketch.not_finite, sketch.nan = header.samples, header.not_finite, header.nan
    return sketch


def _head(points: WeightedPoints) -> ScorePoints:
    return ScorePoints(len(points.scores), points.error, points.level)


def _points(head: ScorePoints, reader: FrameReader) -> WeightedPoints:
    scores = reader.floats("points", head.count, 1)[:, 0]
    return WeightedPoints(scores, reader.doubles("masses", head.count), head.error, head.level)
