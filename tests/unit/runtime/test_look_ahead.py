"""A step of look-ahead gives the same bits as in line, whatever a table does and a step is made of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hotrow.client.local import LocalTables
from hotrow.client.split_step import SplitStep, StepKeys
from hotrow.data import Batch
from hotrow.runtime.step_lookups import StepLookups
from hotrow.store import LookupPlan, RamTier
from unit.runtime.ahead_training import (
    ONE,
    REPLICAS,
    SHAPES,
    STEPS,
    TABLES,
    THREE,
    TWO_WORKERS,
    Net,
    Shape,
    batches_of,
    outcome_of,
    run,
    several,
    trainer_of,
)

Patch = Callable[[pytest.MonkeyPatch], None]


BRIEF = {  # the others are marked `slow`
    "three batches": ("adam", "swap", "lru of less than two batches", "lfu", "refuse", "at least", "expiry", "all"),
    "two workers": ("sgd", "all"),
    "replicas": ("adam", "all"),
}


def matrix() -> list[Any]:
    """Every table with every shape."""
    return [
        pytest.param(
            name, shape, id=f"{name}-{kind}", marks=[] if name in BRIEF.get(kind, TABLES) else [pytest.mark.slow]
        )
        for kind, shape in SHAPES.items()
        for name in TABLES
    ]


@pytest.mark.parametrize(("name", "shape"), matrix())
def test_a_step_ahead_gives_the_bits_of_in_line(name: str, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(STEPS, shape=shape)
    in_line = run(0, batches, shape, **TABLES[name])
    shared = noted_shares(monkeypatch)
    ahead = run(1, batches, shape, **TABLES[name])
    assert ahead.differs(in_line) is None
    whole_steps = len(batches) // shape.parts  # a short step is not granted ahead
    assert len(shared) == 2 * shape.parts * (whole_steps - 1), "it did not look ahead at every step"
    assert sum(shared) > 0


def noted_shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """By batch and table: the keys that were on the critical path."""
    noted: list[int] = []
    real = StepKeys.need

    def need(self: StepKeys, plan: LookupPlan, threads: int) -> NDArray[np.bool_]:
        found = real(self, plan, threads)
        noted.append(int(found.sum()))
        return found

    monkeypatch.setattr(StepKeys, "need", need)
    return noted


# Each of these forgets one rule


def reads_all_early(patch: pytest.MonkeyPatch) -> None:
    real = StepKeys.need
    patch.setattr(StepKeys, "need", lambda self, *given: real(self, *given) & False)


def leaves_all_to_later(patch: pytest.MonkeyPatch) -> None:
    real = StepKeys.need

    def need(self: StepKeys, plan: LookupPlan, threads: int) -> NDArray[np.bool_]:
        found = real(self, plan, threads)
        self.needed &= False
        return found

    patch.setattr(StepKeys, "need", need)


def knows_the_last_batch_of_a_step_only(patch: pytest.MonkeyPatch) -> None:
    real = SplitStep.__init__
    patch.setattr(SplitStep, "__init__", lambda self, tiers, batches, *more: real(self, tiers, batches[-1:], *more))


def updates_first_for_the_last_batch_only(patch: pytest.MonkeyPatch) -> None:
    real = StepKeys.need

    def need(self: StepKeys, plan: LookupPlan, threads: int) -> NDArray[np.bool_]:
        self.needed &= False
        return real(self, plan, threads)

    patch.setattr(StepKeys, "need", need)


def reads_rows_that_a_later_batch_made(patch: pytest.MonkeyPatch) -> None:
    real = RamTier.read_rows
    patch.setattr(RamTier, "read_rows", lambda self, *given, as_found=False, **more: real(self, *given, **more))


def finds_rows_of_a_step_when_it_is_applied(patch: pytest.MonkeyPatch) -> None:
    real = RamTier.apply

    def apply(self: RamTier, plan: LookupPlan, *given: Any, as_found: bool = False, **more: Any) -> Any:
        return real(self, self.find(plan) if as_found and not self.deferred._performs else plan, *given, **more)

    patch.setattr(RamTier, "apply", apply)


def pins_the_open_step_only(patch: pytest.MonkeyPatch) -> None:
    real = StepLookups._begin

    def begin(self: StepLookups, granted: Any) -> Any:
        ahead = granted.grant.token > self.step
        patch.setattr(StepLookups, "_in_use", (lambda *_: {}) if ahead else in_use)
        return real(self, granted)

    in_use = StepLookups._in_use
    patch.setattr(StepLookups, "_begin", begin)


def updates_rows_made_since(patch: pytest.MonkeyPatch) -> None:
    real = RamTier.apply
    patch.setattr(RamTier, "apply", lambda self, *given, as_found=False, **more: real(self, *given, **more))


def pins_nothing(patch: pytest.MonkeyPatch) -> None:
    real = RamTier.find_or_init
    patch.setattr(RamTier, "find_or_init", lambda self, *given, pinned=(), **more: real(self, *given, **more))


def forgets_samples_of_the_open_batch(patch: pytest.MonkeyPatch) -> None:
    real = LocalTables._begin

    def begin(self: LocalTables, batch: Batch, learn: bool, in_use: Any, now: int) -> Any:
        return real(self, batch, learn, in_use, self.samples)

    patch.setattr(LocalTables, "_begin", begin)


@pytest.mark.parametrize(
    ("broken", "name", "shape"),
    [
        (reads_all_early, "sgd", ONE),
        (leaves_all_to_later, "sgd", ONE),
        (updates_rows_made_since, "at least", ONE),
        (pins_nothing, "lru of less than two batches", ONE),
        (forgets_samples_of_the_open_batch, "expiry", ONE),
        (forgets_samples_of_the_open_batch, "swap", ONE),
        (reads_all_early, "sgd", TWO_WORKERS),
        (knows_the_last_batch_of_a_step_only, "sgd", THREE),
        (updates_first_for_the_last_batch_only, "sgd", THREE),
        (updates_first_for_the_last_batch_only, "sgd", REPLICAS),
        (reads_rows_that_a_later_batch_made, "at least", THREE),
        (finds_rows_of_a_step_when_it_is_applied, "at least", THREE),
        (pins_the_open_step_only, "lru of less than two batches", THREE),
    ],
)
def test_the_comparison_notices_a_broken_look_ahead(
    broken: Patch, name: str, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of(STEPS, shape=shape)
    in_line = run(0, batches, shape, **TABLES[name])
    broken(monkeypatch)
    assert run(1, batches, shape, **TABLES[name]).differs(in_line) is not None


class Choosy(Net):
    """Uses one table only where the first element of the first row is positive."""

    def forward(self, x: Any) -> torch.Tensor:
        ones, bags = (block.flatten(1) for block in x._blocks.values())
        if ones[0, 0] > 0:
            bags = torch.zeros_like(bags)
        odds: torch.Tensor = self.layers(torch.cat([ones, bags], 1)).squeeze(1)
        return odds


@pytest.mark.parametrize(("name", "average"), [("at least", "batch"), ("adam", "present")])
@several
def test_a_table_that_some_batches_of_a_step_do_not_use_gives_the_same_bits(
    name: str, average: Any, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, widened = replace(shape, average=average), []
    real = StepKeys.of_all_batches

    def noted(*given: Any) -> Any:
        update, concerned = real(*given)
        widened.append(concerned is not None)
        return update, concerned

    monkeypatch.setattr(StepKeys, "of_all_batches", noted)
    batches, outcomes = batches_of(STEPS, shape=shape), []
    for ahead in (0, 1):
        trainer = trainer_of(ahead, Choosy, shape, **TABLES[name])
        outcome = outcome_of(trainer, trainer.fit(batches))
        del outcome.arrays["bags counts"]  # an update of one batch alone counts a key without a row as not admitted
        outcomes.append(outcome)
        trainer.close()
    assert outcomes[1].differs(outcomes[0]) is None
    assert len(set(widened)) == 2, "no step had gradients of some batches only"
