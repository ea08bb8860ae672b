"""Evaluators of parts of the data are together what one of all data is, whether they keep samples or sketches."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.worker.evaluator_frames import merged_evaluators, pack_evaluator, unpack_evaluator
from hotrow.worker.evaluators import AnyEvaluator, Evaluator
from hotrow.worker.losses import Task

KINDS: dict[str, tuple[Task, int, int]] = {  # task, labels, outputs
    "one label": ("classification", 1, 1),
    "two labels": ("classification", 2, 2),
    "numbers": ("regression", 2, 2),
    "classes": ("classification", 1, 3),
}


def made(kind: str, count: int, seed: int = 0) -> Iterator[tuple[Tensor, Batch]]:
    task, labels, outputs = KINDS[kind]
    chance = np.random.default_rng(seed)
    for size in chance.integers(5, 20, count):
        truth = chance.normal(size=(size, labels)) if task == "regression" else chance.integers(0, 2, (size, labels))
        batch = Batch((), np.zeros((size, 0), np.float32), truth.astype(np.float32), weights=None)
        yield torch.from_numpy(chance.normal(size=(size, outputs)).astype(np.float32)), batch


def added(kind: str, batches: Iterator[tuple[Tensor, Batch]], *, sketched: bool = False) -> AnyEvaluator:
    found = AnyEvaluator(KINDS[kind][0], sketched=sketched)
    for output, batch in batches:
        found.add(output, batch)
    return found


@pytest.mark.parametrize("sketched", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("kind", KINDS)
def test_days_together_are_one_evaluation_of_all(kind: str, sketched: tuple[bool, bool]) -> None:
    days = [added(kind, made(kind, 4, seed), sketched=each) for seed, each in enumerate(sketched)]
    alone = [day.metrics() for day in days]
    everything = AnyEvaluator(KINDS[kind][0])
    for day in days:
        everything.merge(day)
    whole = added(kind, (each for seed in range(2) for each in made(kind, 4, seed)))
    assert everything.metrics() == pytest.approx(whole.metrics(), rel=1e-12)
    assert everything.rows == whole.rows
    assert [day.metrics() for day in days] == alone, "they are not changed"
    everything.merge(AnyEvaluator())
    assert everything.rows == whole.rows


@pytest.mark.parametrize("kind", KINDS)
def test_evaluators_of_trainers_are_merged_behind_the_wire(kind: str) -> None:
    batches = list(made(kind, 9))
    places = [added(kind, iter(batches[place::3]), sketched=True) for place in range(3)]
    dealt = [[(number, len(batches[number][1])) for number in range(place, 9, 3)] for place in range(3)]
    received: list[Evaluator] = []
    for place in places:
        header, frames = pack_evaluator(place.chosen)
        back = unpack_evaluator(header, [memoryview(frame.tobytes()) for frame in frames])
        assert back is not None
        received.append(back)
    found, wanted = merged_evaluators(received, dealt), added(kind, iter(batches))
    assert found.rows == wanted.rows
    if kind == "classes":
        assert found.metrics() == pytest.approx(wanted.metrics(), rel=1e-12)
    else:
        assert found.metrics() == wanted.metrics()


def test_without_a_batch_there_is_nothing_to_merge() -> None:
    header, frames = pack_evaluator(None)
    assert unpack_evaluator(header, [memoryview(frame.tobytes()) for frame in frames]) is None


def test_evaluators_of_different_kinds_are_refused() -> None:
    one, other = added("one label", made("one label", 1)).chosen, added("classes", made("classes", 1)).chosen
    assert one is not None
    assert other is not None
    with pytest.raises(InputError, match="metrics of different kinds: does the model's output depend on the batch"):
        merged_evaluators([one, other], [[], []])
