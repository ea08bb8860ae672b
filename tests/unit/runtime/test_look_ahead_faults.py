"""Nothing is lost or forgotten when something fails in a fit with look-ahead."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.errors import InputError
from hotrow.store import LookupPlan, RamTier
from hotrow.trainer import TrainingEnded
from unit.runtime.ahead_training import (
    ONE,
    SAMPLES,
    SHAPES,
    THREE,
    TWO_WORKERS,
    Net,
    Shape,
    arrays_of,
    batches_of,
    run,
    shapes,
    trainer_of,
)


class FailingOnce(Net):
    """Raises in one forward pass."""

    def __init__(self, at: int, fault: BaseException) -> None:
        super().__init__()
        self.at, self.fault, self.passes = at, fault, 0

    def forward(self, x: Any) -> torch.Tensor:
        self.passes += 1
        if self.passes == self.at:
            raise self.fault
        return super().forward(x)


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("shape", [ONE, THREE], ids=["one batch", "three batches"])
def test_an_interrupted_batch_is_computed_again_and_nothing_is_lost(shape: Shape, batch: int) -> None:
    batches = batches_of(12, shape=shape)
    trainer = trainer_of(1, lambda: FailingOnce(5 * shape.parts + 1 + batch % shape.parts, KeyboardInterrupt()), shape)
    with pytest.raises(KeyboardInterrupt):
        list(trainer.fit(batches))
    trainer.check_consistent()
    assert trainer.samples == 7 * SAMPLES  # the interrupted one, and the one that was looked up
    expected = run(0, batches[: 7 * shape.parts], shape)
    for name, column in arrays_of(trainer).items():
        np.testing.assert_array_equal(column, expected.arrays[name], err_msg=name)


@pytest.mark.parametrize("shape", [ONE, THREE], ids=["one batch", "three batches"])
def test_a_model_that_fails_leaves_whole_steps(shape: Shape) -> None:
    batches = batches_of(12, shape=shape)
    trainer = trainer_of(1, lambda: FailingOnce(6 * shape.parts, ValueError("no")), shape)
    with pytest.raises(ValueError, match="no"):
        list(trainer.fit(batches))
    trainer.check_consistent()
    assert trainer.samples == 5 * SAMPLES
    expected, found = run(0, batches[: 5 * shape.parts], shape), arrays_of(trainer)
    known = np.isin(found["ones.keys"], expected.arrays["ones.keys"])  # others were made for batches not trained
    np.testing.assert_array_equal(found["ones.values"][known], expected.arrays["ones.values"])


@pytest.mark.parametrize("shape", [ONE, THREE, TWO_WORKERS], ids=[*SHAPES][:3])
def test_a_lookup_that_fails_in_the_background_fails_its_own_batch(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = RamTier.find_or_init, []

    def find_or_init(self: RamTier, *given: Any, **more: Any) -> LookupPlan:
        calls.append(1)
        if len(calls) == 8 * shape.parts + 1:  # two tables: in the fifth step, while the fourth is computed
            raise InputError("no room")
        return real(self, *given, **more)

    monkeypatch.setattr(RamTier, "find_or_init", find_or_init)
    batches = batches_of(12, shape=shape)
    trainer = trainer_of(1, shape=shape)
    with pytest.raises(InputError, match="no room"):
        list(trainer.fit(batches))
    assert trainer.samples == 4 * SAMPLES
    trainer.check_consistent()
    monkeypatch.undo()
    expected, found = run(0, batches[: 4 * shape.parts], shape), arrays_of(trainer)
    np.testing.assert_array_equal(found["bags.values"], expected.arrays["bags.values"])


@shapes
def test_an_update_that_fails_in_the_background_is_not_forgotten(
    shape: Shape, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    real = RamTier.apply
    trainer = trainer_of(1, shape=shape)
    reports = trainer.fit(batches_of(12, shape=shape))
    list(islice(reports, 4))

    def apply(self: RamTier, plan: LookupPlan, *given: Any, **more: Any) -> Any:
        if self.deferred._performs is not None:
            raise MemoryError
        return real(self, plan, *given, **more)

    monkeypatch.setattr(RamTier, "apply", apply)
    with pytest.raises(MemoryError):
        list(reports)
    monkeypatch.undo()
    with pytest.raises(InputError, match="rows and dense parameters are of different steps"):
        trainer.save(tmp_path / "c")
    fresh = trainer_of(1, shape=shape)
    fresh.save(tmp_path / "fresh")
    trainer.load(tmp_path / "fresh")
    trainer.check_consistent()


class Exploding(Net):
    """Odds that are not a number, in batches whose first row says so."""

    def forward(self, x: Any) -> torch.Tensor:
        odds = super().forward(x)
        return odds * float("nan") if x.flat[0, 0] > 0.2 else odds


@shapes
def test_rows_with_a_gradient_that_is_not_finite_are_counted_alike(shape: Shape) -> None:
    batches, refused = batches_of(10, shape=shape), []
    for ahead in (0, 1):
        *_, end = trainer_of(ahead, Exploding, shape, optimizer=hr.SGD(lr=0.1)).fit(batches)
        assert isinstance(end, TrainingEnded)
        refused.append(end.counts["refused_gradients"])
    assert refused[0] == refused[1] > 0
