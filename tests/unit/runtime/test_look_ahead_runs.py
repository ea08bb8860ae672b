"""What else touches the tables in a fit with look-ahead, how it ends, what "auto" takes and what is refused."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.data import Batch
from hotrow.errors import ConfigError
from hotrow.runtime import look_ahead
from hotrow.trainer import Progress, Remark, Report, Trainer, TrainingEnded
from unit.runtime.ahead_training import (
    ONE,
    REPLICAS,
    SAMPLES,
    THREE,
    Shape,
    arrays_of,
    batches_of,
    outcome_of,
    run,
    several,
    shapes,
    trainer_of,
)


def touch_nothing(trainer: Trainer, batch: Batch) -> None:
    pass


def predict(trainer: Trainer, batch: Batch) -> None:
    trainer.predict_batch(batch)


def evaluate(trainer: Trainer, batch: Batch) -> None:
    trainer.evaluate([batch])


def count(trainer: Trainer, batch: Batch) -> None:
    trainer.tables.tiers["ones"].stats()


@pytest.mark.parametrize("shape", [ONE, REPLICAS], ids=["one batch", "replicas"])
@pytest.mark.parametrize("touch", [touch_nothing, predict, evaluate, count])
def test_whoever_looks_between_two_steps_finds_them_applied(
    touch: Callable[[Trainer, Batch], None], shape: Shape
) -> None:
    batches = batches_of(12, shape=shape)
    outcomes, seen = [], []
    for ahead in (0, 1):
        trainer = trainer_of(ahead, shape=shape)
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


def steps_of(reports: Iterator[Report], count: int) -> list[Report]:
    """The reports up to that of the last of so many steps."""
    found: list[Report] = []
    while sum(isinstance(report, Progress) for report in found) < count:
        found.append(next(reports))
    return found


@shapes
def test_a_save_in_the_middle_holds_whole_steps(shape: Shape, tmp_path: Any) -> None:
    batches = batches_of(12, shape=shape)
    trainer = trainer_of(1, shape=shape)
    reports = trainer.fit(batches)
    steps_of(reports, 5)
    trainer.save(tmp_path / "c")
    saved, list_before = arrays_of(trainer), trainer.samples
    assert list_before == 6 * SAMPLES  # the step that was looked up is trained, too
    expected = run(0, batches[: 6 * shape.parts], shape)
    for name in ("ones.values", "bags.state", "layers.0.weight"):
        np.testing.assert_array_equal(saved[name], expected.arrays[name])
    list(reports)
    loaded = trainer_of(0, shape=shape)
    loaded.load(tmp_path / "c")
    for name, column in arrays_of(loaded).items():
        if not name.endswith("counts"):
            np.testing.assert_array_equal(column, saved[name], err_msg=name)


@shapes
def test_an_end_by_samples_trains_no_step_more(shape: Shape) -> None:
    for ahead in (0, 1):
        trainer = trainer_of(ahead, shape=shape)
        *_, end = trainer.fit(batches_of(12, shape=shape), most_samples=5 * SAMPLES - 1)
        assert isinstance(end, TrainingEnded)
        assert end.samples == 5 * SAMPLES


@pytest.mark.parametrize("shape", [ONE, THREE], ids=["one batch", "three batches"])
def test_predictions_before_training_see_all_steps_before(shape: Shape) -> None:
    results = []
    for ahead in (0, 1):
        reports = list(trainer_of(ahead, shape=shape).fit(batches_of(12, shape=shape), progressive=True))
        results.append([report.metrics for report in reports if hasattr(report, "metrics")])
        remarks = [report.sentence for report in reports if isinstance(report, Remark)]
        assert any("look_ahead=1 has no effect" in remark for remark in remarks) == bool(ahead)
    assert results[0] == results[1] != []


@shapes
def test_switching_between_both_while_training_keeps_the_bits(shape: Shape) -> None:
    batches = batches_of(24, shape=shape)
    in_line, trainer = run(0, batches, shape), trainer_of("auto", shape=shape)
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


@several
def test_a_change_of_the_mode_between_two_steps_leaves_nothing_behind(shape: Shape) -> None:
    batches, outcomes = batches_of(12, shape=shape), []
    for ahead in (0, 1):
        trainer = trainer_of(ahead, shape=shape)
        reports = trainer.fit(batches[: 6 * shape.parts])
        found = steps_of(reports, 6 - ahead)  # with look-ahead the next step is trained before a change
        trainer.switch(hr.GBA())
        assert not any(tier.deferred.waits() for tier in trainer.tables.tiers.values())  # type: ignore[attr-defined]
        found += reports
        trainer.switch(shape.mode(ahead))
        found += trainer.fit(batches[6 * shape.parts :])
        outcomes.append(outcome_of(trainer, found))
        trainer.close()
    assert outcomes[1].differs(outcomes[0]) is None


@shapes
def test_an_expiry_of_less_than_two_global_batches_is_refused(shape: Shape) -> None:
    with pytest.raises(ConfigError, match=f"table 'ones' could expire .* expiry of {2 * SAMPLES} samples or more"):
        trainer_of(1, shape=shape, expiry=2 * SAMPLES - 1)
    trainer = trainer_of("auto", shape=shape, expiry=2 * SAMPLES - 1)
    assert trainer._loop.backend.look_ahead_choice(trainer.mode, trainer.facts) is None
    trainer.close()


def decisions(reports: Iterable[Report]) -> list[str]:
    remarks = [report.sentence for report in reports if isinstance(report, Remark)]
    return [sentence for sentence in remarks if sentence.startswith("look_ahead 'auto' takes")]


@shapes
def test_auto_measures_both_says_what_it_took_and_keeps_the_bits(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ahead, "STRETCH_STEPS", (2, 2))
    batches = batches_of(40, shape=shape)
    in_line, trainer = run(0, batches, shape), trainer_of("auto", shape=shape)
    reports = list(trainer.fit(batches))
    assert len(decisions(reports)) == 1
    assert outcome_of(trainer, reports).differs(in_line) is None
    assert not decisions(trainer.fit(batches[: 9 * shape.parts]))  # it is decided
