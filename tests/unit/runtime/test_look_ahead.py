"""A step of look-ahead: the same bits as in line, whatever a table does, and nothing lost when something fails."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import hotrow as hr
from hotrow.client import local
from hotrow.client.local import LocalTables
from hotrow.client.local_lookup import SharedKeys, shared_keys
from hotrow.data import Batch
from hotrow.errors import ConfigError, InputError
from hotrow.modes import KStep, Sync
from hotrow.runtime import look_ahead
from hotrow.store import LookupPlan, RamTier
from hotrow.trainer import Remark, Trainer, TrainingEnded
from hotrow.worker.core import Learner
from unit.runtime.ahead_training import SAMPLES, Net, arrays_of, batches_of, outcome_of, run, trainer_of

STEPS = 12
SWAP = hr.Swap(period=3 * SAMPLES, decay=0.5)
TABLES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": hr.SGD(lr=0.1)},
    "adagrad": {"optimizer": hr.Adagrad(lr=0.1)},
    "rowwise": {"optimizer": hr.RowwiseAdagrad(lr=0.1)},
    "decayed": {"optimizer": hr.DecayedAdagrad(lr=0.1, rate=0.9)},
    "adam": {"optimizer": hr.Adam(lr=0.1)},
    "adam by step": {"optimizer": hr.Adam(lr=0.1, correction="global")},
    "ftrl": {"optimizer": hr.FTRL(lr=0.1)},
    "swap": {"optimizer": hr.Adagrad(lr=0.1, initial=0.5, swap=SWAP)},
    "float16": {"type": "float16"},
    "bfloat16": {"type": "bfloat16"},
    "lru": {"capacity": 150},
    "lfu": {"capacity": 150, "eviction": "lfu"},
    "lru of less than two batches": {"capacity": 90},
    "refuse": {"capacity": 100, "eviction": "refuse"},
    "at least": {"admission": hr.AtLeast(count=3)},
    "chance": {"admission": hr.Chance(probability=0.3)},
    "expiry": {"expiry": 2 * SAMPLES},
    "all": {
        "optimizer": hr.Adam(lr=0.1, swap=SWAP),
        "type": "bfloat16",
        "capacity": 90,
        "eviction": "lfu",
        "admission": hr.AtLeast(count=2),
        "expiry": 4 * SAMPLES,
    },
}
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("name", TABLES)
def test_a_step_ahead_gives_the_bits_of_in_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(STEPS)
    in_line = run(0, batches, **TABLES[name])
    shared = noted_shares(monkeypatch)
    ahead = run(1, batches, **TABLES[name])
    assert ahead.differs(in_line) is None
    assert len(shared) == 2 * (STEPS - 1), "it did not look ahead at every step"
    assert sum(shared) > 0


def noted_shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """By step and table: the keys that were on the critical path."""
    noted: list[int] = []

    def shared(*given: Any) -> dict[str, SharedKeys]:
        found = shared_keys(*given)
        noted.extend(int(each.of_next.sum()) for each in found.values())
        return found

    monkeypatch.setattr(local, "shared_keys", shared)
    return noted


# Each of these forgets one rule


def reads_all_early(patch: pytest.MonkeyPatch) -> None:
    def shared(*given: Any) -> dict[str, SharedKeys]:
        return {name: SharedKeys(each.of_open, ~each.of_next & False) for name, each in shared_keys(*given).items()}

    patch.setattr(local, "shared_keys", shared)


def leaves_all_to_later(patch: pytest.MonkeyPatch) -> None:
    def shared(*given: Any) -> dict[str, SharedKeys]:
        return {name: SharedKeys(each.of_open & False, each.of_next) for name, each in shared_keys(*given).items()}

    patch.setattr(local, "shared_keys", shared)


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
    ("broken", "name"),
    [
        (reads_all_early, "sgd"),
        (leaves_all_to_later, "sgd"),
        (updates_rows_made_since, "at least"),
        (pins_nothing, "lru of less than two batches"),
        (forgets_samples_of_the_open_batch, "expiry"),
        (forgets_samples_of_the_open_batch, "swap"),
    ],
)
def test_the_comparison_notices_a_broken_look_ahead(broken: Patch, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(STEPS)
    in_line = run(0, batches, **TABLES[name])
    broken(monkeypatch)
    assert run(1, batches, **TABLES[name]).differs(in_line) is not None


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


@pytest.mark.parametrize("name", ["sgd", "lru", "all"])
def test_no_row_is_read_before_the_step_that_changes_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(monkeypatch)
    run(1, batches_of(STEPS), **TABLES[name])
    assert min(ledger.read_early, ledger.read_late, ledger.applied_later) > 0
    assert not any(ledger.owed.values()), "an update was never performed"


def test_the_checker_notices_a_row_that_is_read_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(monkeypatch)
    reads_all_early(monkeypatch)
    with pytest.raises(AssertionError, match="changed after its read"):
        run(1, batches_of(STEPS))


# What else touches the tables, in the middle of a fit


def touch_nothing(trainer: Trainer, batch: Batch) -> None:
    pass


def predict(trainer: Trainer, batch: Batch) -> None:
    trainer.predict_batch(batch)


def evaluate(trainer: Trainer, batch: Batch) -> None:
    trainer.evaluate([batch])


def count(trainer: Trainer, batch: Batch) -> None:
    trainer.tables.tiers["ones"].stats()


@pytest.mark.parametrize("touch", [touch_nothing, predict, evaluate, count])
def test_whoever_looks_between_two_steps_finds_them_applied(touch: Callable[[Trainer, Batch], None]) -> None:
    batches = batches_of(12)
    outcomes, seen = [], []
    for ahead in (0, 1):
        trainer = trainer_of(ahead)
        reports = []
        for report in trainer.fit(batches):
            reports.append(report)
            touch(trainer, batches[3])
            if touch is predict:
                seen.append(trainer.predict_batch(batches[5]).tolist())
            tiers = trainer.tables.tiers.values()
            assert touch is touch_nothing or not any(tier.deferred.waits() for tier in list(tiers)[:1])  # type: ignore[attr-defined]
        outcomes.append(outcome_of(trainer, reports))
        trainer.close()
    assert outcomes[1].differs(outcomes[0]) is None
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_a_save_in_the_middle_holds_whole_steps(tmp_path: Any) -> None:
    batches = batches_of(12)
    trainer = trainer_of(1)
    reports = trainer.fit(batches)
    list(islice(reports, 5))
    trainer.save(tmp_path / "c")
    saved, list_before = arrays_of(trainer), trainer.samples
    assert list_before == 6 * SAMPLES  # the step that was looked up is trained, too
    expected = run(0, batches_of(12)[:6])
    for name in ("ones.values", "bags.state", "layers.0.weight"):
        np.testing.assert_array_equal(saved[name], expected.arrays[name])
    list(reports)
    loaded = trainer_of(0)
    loaded.load(tmp_path / "c")
    for name, column in arrays_of(loaded).items():
        if not name.endswith("counts"):
            np.testing.assert_array_equal(column, saved[name], err_msg=name)


def test_an_end_by_samples_trains_no_step_more() -> None:
    for ahead in (0, 1):
        trainer = trainer_of(ahead)
        *_, end = trainer.fit(batches_of(12), most_samples=5 * SAMPLES - 1)
        assert isinstance(end, TrainingEnded)
        assert end.samples == 5 * SAMPLES


def test_predictions_before_training_see_all_steps_before() -> None:
    results = []
    for ahead in (0, 1):
        reports = list(trainer_of(ahead).fit(batches_of(12), progressive=True))
        results.append([report.metrics for report in reports if hasattr(report, "metrics")])
        remarks = [report.sentence for report in reports if isinstance(report, Remark)]
        assert any("look_ahead=1 has no effect" in remark for remark in remarks) == bool(ahead)
    assert results[0] == results[1] != []


def test_switching_between_both_while_training_keeps_the_bits() -> None:
    batches = batches_of(24)
    in_line, trainer = run(0, batches), trainer_of("auto")
    choice = trainer._loop.backend.look_ahead_choice(trainer.mode, trainer.facts)
    assert choice is not None
    choice.sentence = "decided"
    reports = []
    for number, report in enumerate(trainer.fit(batches)):
        reports.append(report)
        active = trainer._loop._active
        if active is not None and number % 5 == 0:
            active._look_ahead(number // 5 % 2)
    assert outcome_of(trainer, reports).differs(in_line) is None


# Faults


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


def test_an_interrupted_batch_is_computed_again_and_nothing_is_lost() -> None:
    batches = batches_of(12)
    trainer = trainer_of(1, lambda: FailingOnce(6, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        list(trainer.fit(batches))
    trainer.check_consistent()
    assert trainer.samples == 7 * SAMPLES  # the interrupted one, and the one that was looked up
    expected = run(0, batches[:7])
    for name, column in arrays_of(trainer).items():
        np.testing.assert_array_equal(column, expected.arrays[name], err_msg=name)


def test_a_model_that_fails_leaves_whole_steps() -> None:
    batches = batches_of(12)
    trainer = trainer_of(1, lambda: FailingOnce(6, ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        list(trainer.fit(batches))
    trainer.check_consistent()
    assert trainer.samples == 5 * SAMPLES
    expected, found = run(0, batches[:5]), arrays_of(trainer)
    known = np.isin(found["ones.keys"], expected.arrays["ones.keys"])  # others were made for batches not trained
    np.testing.assert_array_equal(found["ones.values"][known], expected.arrays["ones.values"])


def test_a_lookup_that_fails_in_the_background_fails_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = RamTier.find_or_init, []

    def find_or_init(self: RamTier, *given: Any, **more: Any) -> LookupPlan:
        calls.append(1)
        if len(calls) == 9:  # two tables: the fifth batch, while the fourth is computed
            raise InputError("no room")
        return real(self, *given, **more)

    monkeypatch.setattr(RamTier, "find_or_init", find_or_init)
    trainer = trainer_of(1)
    with pytest.raises(InputError, match="no room"):
        list(trainer.fit(batches_of(12)))
    assert trainer.samples == 4 * SAMPLES
    trainer.check_consistent()
    monkeypatch.undo()
    expected, found = run(0, batches_of(12)[:4]), arrays_of(trainer)
    np.testing.assert_array_equal(found["bags.values"], expected.arrays["bags.values"])


def test_an_update_that_fails_in_the_background_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    real = RamTier.apply
    trainer = trainer_of(1)
    reports = trainer.fit(batches_of(12))
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
    fresh = trainer_of(1)
    fresh.save(tmp_path / "fresh")
    trainer.load(tmp_path / "fresh")
    trainer.check_consistent()


def test_rows_with_a_gradient_that_is_not_finite_are_counted_alike() -> None:
    batches, refused = batches_of(10), []

    class Exploding(Net):
        passes = 0

        def forward(self, x: Any) -> torch.Tensor:
            Exploding.passes += 1
            odds = super().forward(x)
            return odds * float("nan") if Exploding.passes % 4 == 0 else odds

    for ahead in (0, 1):
        Exploding.passes = 0
        *_, end = trainer_of(ahead, Exploding, optimizer=hr.SGD(lr=0.1)).fit(batches)
        assert isinstance(end, TrainingEnded)
        refused.append(end.counts["refused_gradients"])
    assert refused[0] == refused[1] > 0


# What is refused


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"workers": 2}, "one worker and one local batch per step"),
        ({"local_batch": SAMPLES // 2}, "one worker and one local batch per step"),
    ],
)
def test_a_step_ahead_is_refused_where_one_process_cannot(settings: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=f"look_ahead=1: .*{told}"):
        Trainer(Net(), hr.Table(dim=4), mode=Sync(look_ahead=1), global_batch=SAMPLES, **settings)
    Trainer(Net(), hr.Table(dim=4), mode=Sync(), global_batch=SAMPLES, **settings).close()


def test_k_step_and_an_expiry_of_less_than_two_batches_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"look_ahead=1: .* mode 'sync'"):
        Trainer(Net(), hr.Table(dim=4), mode=KStep(look_ahead=1), optimizer=hr.KStepAdam, global_batch=SAMPLES)
    with pytest.raises(ConfigError, match=f"table 'ones' could expire .* expiry of {2 * SAMPLES} samples or more"):
        trainer_of(1, expiry=2 * SAMPLES - 1)
    trainer_of("auto", expiry=2 * SAMPLES - 1).close()


# Auto


def test_auto_measures_both_says_what_it_took_and_keeps_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ahead, "STRETCH_STEPS", (2, 2))
    batches = batches_of(40)
    in_line, trainer = run(0, batches), trainer_of("auto")
    reports = list(trainer.fit(batches))
    sentences = [report.sentence for report in reports if isinstance(report, Remark)]
    assert [sentence[:23] for sentence in sentences] == ["look_ahead 'auto' takes"]
    assert outcome_of(trainer, reports).differs(in_line) is None
    assert not any(isinstance(report, Remark) for report in trainer.fit(batches[:9]))  # it is decided
