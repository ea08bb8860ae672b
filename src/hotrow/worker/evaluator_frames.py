"""Evaluators of trainers on the wire, and all of them merged."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hotrow.errors import InputError
from hotrow.metrics.batch_order import Dealt, merged_in_order
from hotrow.metrics.error_sketch import ErrorSketch
from hotrow.metrics.sketch import ScoreSketch
from hotrow.transport.batches import FrameReader
from hotrow.transport.error_sketches import pack_errors, read_errors
from hotrow.transport.messages import EvaluationScores
from hotrow.transport.sketches import pack_sketch, read_sketch
from hotrow.worker.evaluators import ClassEvaluator, Evaluator, LabelEvaluator, NumberEvaluator

Frames = list[NDArray[np.generic]]


def pack_evaluator(evaluator: Evaluator | None) -> tuple[EvaluationScores, Frames]:
    """The header and the frames of an evaluator with sketches; None: there was no batch."""
    match evaluator:
        case LabelEvaluator(columns=columns):
            packed = [pack_sketch(each) for each in columns if isinstance(each, ScoreSketch)]
            header = EvaluationScores("labels", evaluator.rows, labels=tuple(head for head, _ in packed))
            return header, [frame for _, frames in packed for frame in frames]
        case NumberEvaluator(columns=columns):
            errors = [pack_errors(each) for each in columns if isinstance(each, ErrorSketch)]
            header = EvaluationScores("numbers", evaluator.rows, numbers=tuple(head for head, _ in errors))
            return header, [frame for _, frames in errors for frame in frames]
        case ClassEvaluator(rows, weight, right, loss):
            return EvaluationScores("classes", rows, classes=(weight, right, loss)), []
    return EvaluationScores("none"), []


def unpack_evaluator(header: EvaluationScores, frames: Sequence[memoryview]) -> Evaluator | None:
    """The evaluator of a header; InputError where the frames do not fit it."""
    reader = FrameReader(frames)
    found: Evaluator | None = None
    if header.labels:
        found = LabelEvaluator([read_sketch(each, reader) for each in header.labels])
    elif header.numbers:
        found = NumberEvaluator([read_errors(each, reader) for each in header.numbers])
    elif header.kind == "classes":
        found = ClassEvaluator(header.rows, *header.classes)
    reader.check_end()
    return found


def merged_evaluators(parts: Sequence[Evaluator], dealt: Sequence[Dealt]) -> Evaluator:
    """What one evaluator would have found; `dealt`: the batches of each, in the order in which they were added."""
    if len({(type(each), len(getattr(each, "columns", ()))) for each in parts}) > 1:
        raise InputError("trainers gave metrics of different kinds: does the model's output depend on the batch?")
    labels = [part.columns for part in parts if isinstance(part, LabelEvaluator)]
    if labels:
        scored = [[each for each in column if isinstance(each, ScoreSketch)] for column in zip(*labels, strict=True)]
        return LabelEvaluator([merged_in_order(column, dealt, ScoreSketch()) for column in scored])
    numbers = [part.columns for part in parts if isinstance(part, NumberEvaluator)]
    if numbers:
        errors = [[each for each in column if isinstance(each, ErrorSketch)] for column in zip(*numbers, strict=True)]
        return NumberEvaluator([merged_in_order(column, dealt, ErrorSketch()) for column in errors])
    first, *others = parts
    return first.plus(*others)
