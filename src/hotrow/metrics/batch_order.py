"""Sketches of batches that were dealt to several places, merged as if one place had seen all batches in order.

The last bits of a sum depend on the order of what is added. Where every sketch still holds its samples, they are put
back into the order of the batches, so the figures have the bits of an evaluation in one process.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from hotrow.metrics.arrays import Array
from hotrow.metrics.error_sketch import ErrorSketch, joined_number_pairs
from hotrow.metrics.sketch import ScoreSketch, joined_pairs

Sketch = TypeVar("Sketch", ScoreSketch, ErrorSketch)
Dealt: TypeAlias = Sequence[tuple[int, int]]  # number and samples of each batch, as one place got them
Columns: TypeAlias = tuple[Array, Array, Array | None]  # labels, scores or predictions, weights


def merged_in_order(sketches: Sequence[Sketch], dealt: Sequence[Dealt], empty: Sketch) -> Sketch:
    """All sketches in `empty`, which is returned; `dealt` has the batches of each."""
    if not all(each.exact for each in sketches):
        for sketch in sketches:
            empty.merge(sketch)
        return empty
    pieces = [piece for sketch, batches in zip(sketches, dealt, strict=True) for piece in _cut(sketch, batches)]
    for _, (labels, values, weights) in sorted(pieces, key=lambda piece: piece[0]):
        empty.add(labels, values, weights)
    return empty


def _cut(sketch: ScoreSketch | ErrorSketch, batches: Dealt) -> Iterable[tuple[int, Columns]]:
    """The number of each batch, with its part of the arrays."""
    arrays: Columns
    if isinstance(sketch, ScoreSketch):
        scored = joined_pairs(sketch.pairs)
        arrays = scored.labels, scored.scores, scored.weights
    else:
        numbers = joined_number_pairs(sketch.pairs)
        arrays = numbers.labels, numbers.predictions, numbers.weights
    start = 0
    for number, samples in batches:
        labels, values, weights = arrays
        mine = slice(start, start + samples)
        yield number, (labels[mine], values[mine], None if weights is None else weights[mine])
        start += samples
