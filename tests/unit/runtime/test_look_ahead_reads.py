"""No row is read before the step that changes it: an outside checker of look-ahead."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow.client.local import LocalTables
from hotrow.client.split_step import StepKeys
from hotrow.data import Batch
from hotrow.store import LookupPlan, RamTier
from hotrow.worker.core import Learner
from unit.runtime.ahead_training import STEPS, TABLES, Shape, batches_of, run, shapes


class Ledger:
    """An outside checker: notes every read and write of rows, and looks at them when a batch is computed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.moment = 0
        self.read: dict[tuple[int, int], int] = {}  # (plan, key) -> moment
        self.written: dict[tuple[int, int], int] = {}  # (table, key) -> moment
        self.owed: dict[int, set[int]] = {}  # table -> keys of an update that waits
        self.read_early = self.read_late = self.applied_later = 0
        looks, reads, applies, waits = RamTier.find_or_init, RamTier.read_rows, RamTier.apply, RamTier.apply_later

        def find_or_init(tier: RamTier, plan: LookupPlan, *given: Any, **more: Any) -> LookupPlan:
            self.note(self.read, plan, plan.keys)
            return looks(tier, plan, *given, **more)

        def read_rows(tier: RamTier, plan: LookupPlan, *given: Any, only: NDArray[np.bool_], **more: Any) -> LookupPlan:
            self.note(self.read, plan, plan.keys[only])
            self.read_late += int(only.sum())
            self.read_early += int((~only).sum())
            return reads(tier, plan, *given, only=only, **more)

        def apply(tier: RamTier, plan: LookupPlan, *given: Any, only: Any = None, **more: Any) -> Any:
            keys = plan.keys if only is None else plan.keys[only]
            self.note(self.written, tier, keys)
            self.owed.get(id(tier), set()).difference_update(keys.tolist())
            return applies(tier, plan, *given, only=only, **more)

        def apply_later(tier: RamTier, plan: LookupPlan, *given: Any, only: Any, **more: Any) -> None:
            waits(tier, plan, *given, only=only, **more)
            self.owed[id(tier)] = set(plan.keys[only].tolist())
            self.applied_later += int(only.sum())

        for name, wrapped in (
            ("find_or_init", find_or_init),
            ("read_rows", read_rows),
            ("apply", apply),
            ("apply_later", apply_later),
        ):
            patch.setattr(RamTier, name, wrapped)
        learns = Learner.learn

        def learn(learner: Learner, batch: Batch, handle: Any, client: LocalTables) -> Any:
            for table, plan in handle.plans.items():
                self.check(client.tiers[table], plan)
            return learns(learner, batch, handle, client)

        patch.setattr(Learner, "learn", learn)

    def note(self, ledger: dict[tuple[int, int], int], who: object, keys: NDArray[np.uint64]) -> None:
        self.moment += 1
        ledger.update({(id(who), key): self.moment for key in keys.tolist()})

    def check(self, tier: RamTier, plan: LookupPlan) -> None:
        keys = plan.keys.tolist()
        assert not self.owed.get(id(tier), set()) & set(keys), "a row of this batch waits for its update"
        for key in keys:
            assert self.read[id(plan), key] > self.written.get((id(tier), key), 0), f"row {key} changed after its read"


@shapes
@pytest.mark.parametrize("name", ["sgd", "all"])
def test_no_row_is_read_before_the_step_that_changes_it(
    name: str, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    run(1, batches_of(STEPS, shape=shape), shape, **TABLES[name])
    assert min(ledger.read_early, ledger.read_late, ledger.applied_later) > 0
    assert not any(ledger.owed.values()), "an update was never performed"


def test_the_checker_notices_a_row_that_is_read_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(monkeypatch)
    real = StepKeys.need
    monkeypatch.setattr(StepKeys, "need", lambda self, *given: real(self, *given) & False)
    with pytest.raises(AssertionError, match="changed after its read"):
        run(1, batches_of(STEPS))
