"""The sketch of a trainer: which outputs have scores, and what a collection takes."""

import numpy as np
import pytest
import torch

from hotrow.data.batch import Batch
from hotrow.worker.losses import Task
from hotrow.worker.scores import ScoreCollector, first_scores


def batch_of(labels: list[list[float]], weights: list[float] | None = None) -> Batch:
    return Batch(
        (),
        np.zeros((len(labels), 0), np.float32),
        np.array(labels, np.float32),
        weights=None if weights is None else np.array(weights, np.float32),
    )


@pytest.mark.parametrize(
    ("output", "labels", "task", "expected"),
    [
        (torch.tensor([1.0, 2.0]), [[0.0], [1.0]], "classification", [1.0, 2.0]),
        (torch.tensor([[1.0, 5.0], [2.0, 5.0]]), [[0.0, 1.0], [1.0, 1.0]], "classification", [1.0, 2.0]),
        (torch.tensor([[1.0, 5.0], [2.0, 5.0]]), [[0.0], [1.0]], "classification", None),  # scores of classes
        (torch.tensor([1.0, 2.0]), [[0.0], [1.0]], "regression", None),
    ],
)
def test_scores_are_those_of_the_first_label(
    output: torch.Tensor, labels: list[list[float]], task: Task, expected: list[float] | None
) -> None:
    found = first_scores(output, batch_of(labels), task)
    assert (None if found is None else found[0].tolist()) == expected


def test_a_collection_takes_what_was_added_since_the_one_before() -> None:
    collector = ScoreCollector("classification")
    collector.add(torch.tensor([1.0, 2.0]), batch_of([[0.0], [1.0]]))
    first = collector.take(1)
    assert (len(first), first.auc()) == (2, 1.0)
    collector.add(torch.tensor([3.0]), batch_of([[1.0]], weights=[0.5]))
    assert len(collector.take(2)) == 1
    assert len(collector.take(3)) == 0


def test_a_repeated_request_gets_the_same_sketch_and_takes_nothing() -> None:
    collector = ScoreCollector("classification")
    collector.add(torch.tensor([1.0]), batch_of([[1.0]]))
    first = collector.take(7)
    collector.add(torch.tensor([2.0]), batch_of([[1.0]]))
    assert collector.take(7) is first
    assert len(first) == 1
    assert len(collector.take(8)) == 1
