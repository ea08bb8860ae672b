"""Histograms against numpy, and what a run counts against a slow recount of everything that its disciplines said."""

import json
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from hotrow.errors import InputError
from hotrow.modes import GBA, Async, BackupWorkers, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import (
    Apply,
    Discipline,
    Drain,
    Drop,
    Effect,
    Event,
    GradientPart,
    Grant,
    Group,
    Joined,
    Lost,
    Park,
    Pushed,
    Ready,
    RunFacts,
)
from hotrow.staleness import Cutoff, Histogram, IdCounts, Inverse, Staleness, Statistics

VALUES = st.lists(st.integers(0, 50) | st.integers(0, 10**9), max_size=60)


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value)
    return made


@given(VALUES.filter(bool), st.sampled_from([0, 0.01, 0.25, 0.5, 0.9, 0.99, 1]))
def test_figures_of_a_histogram_are_those_of_its_values(values: list[int], share: float) -> None:
    made = histogram(values)
    assert made.total == len(values)
    assert made.mean == pytest.approx(np.mean(values), rel=1e-12)
    assert made.variance == pytest.approx(np.var(np.array(values, np.float64)), rel=1e-9, abs=1e-6)
    assert made.largest == max(values)
    assert made.quantile(share) == np.quantile(values, share, method="inverted_cdf")


def test_a_quantile_takes_the_share_as_it_is_written() -> None:
    made = histogram(list(range(1, 101)))
    assert 0.07 * 100 > 7  # as floats multiply
    assert made.quantile(0.07) == 7
    assert made.quantile(0.0701) == 8


def test_the_variance_of_large_close_numbers_does_not_cancel() -> None:
    assert histogram([10**15, 10**15 + 2]).variance == 1


def test_an_empty_histogram_has_no_figures() -> None:
    made = Histogram()
    assert (made.total, made.mean, made.variance, made.largest, made.quantile(0.5)) == (0, None, None, None, None)


@given(VALUES, VALUES)
def test_merged_histograms_are_one_of_all_values(first: list[int], second: list[int]) -> None:
    made, other = histogram(first), histogram(second)
    made.merge(other)
    assert made == histogram(first + second)
    assert other == histogram(second)


@given(VALUES)
def test_a_histogram_survives_json(values: list[int]) -> None:
    made = histogram(values)
    assert Histogram.of(json.loads(json.dumps(made.document(), allow_nan=False))) == made


def test_counting_nothing_leaves_no_trace() -> None:
    made = Histogram()
    made.add(3, 0)
    assert made == Histogram()


@pytest.mark.parametrize(("value", "count"), [(-1, 1), (1, -1)])
def test_what_cannot_be_counted_is_refused(value: int, count: int) -> None:
    with pytest.raises(InputError, match="must be 0 or more"):
        Histogram().add(value, count)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InputError, match=r"share=.*from 0 to 1"):
        Histogram().quantile(share)


DAMAGED: list[dict[str, Any]] = [
    {},
    {"values": [1], "counts": [1, 2]},
    {"values": [1, 1], "counts": [1, 2]},
    {"values": [-1], "counts": [1]},
    {"values": [1], "counts": [0]},
    {"values": [1.5], "counts": [1]},
]


@pytest.mark.parametrize("document", DAMAGED)
def test_a_damaged_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Histogram.of(document)


class Recorded:
    """A run of one discipline under a made-up order of events, with everything that was said."""

    def __init__(self, mode: Mode, seed: int, workers: int = 4) -> None:
        facts = RunFacts(workers=workers, local_batch=10, global_batch=10 * workers)
        self.discipline: Discipline = mode.start(facts)
        self.groups: tuple[Group, ...] = {"hybrid": ("embedding", "dense"), "k_step": ("embedding",)}.get(
            mode.name, ("both",)
        )  # type: ignore[assignment]
        self.statistics = Statistics()
        self.said: list[tuple[Event, list[Effect]]] = []
        self.out: list[Pushed] = []
        self.chance = random.Random(seed)
        for worker in range(workers):
            self.tell(Joined(worker))
        for worker in range(workers):
            self.tell(Ready(worker))

    def tell(self, event: Event) -> None:
        effects = self.discipline.on(event)
        self.statistics.take(event, effects)
        self.said.append((event, effects))
        for effect in effects:
            if isinstance(effect, Grant):
                samples = self.chance.choice((10, 10, 7))
                self.out += [
                    Pushed(group, effect.worker, effect.grant, effect.token, self.discipline.step, samples)
                    for group in self.groups
                ]

    def run(self, pushes: int) -> "Recorded":
        for _ in range(pushes):
            if not self.out:
                break
            push = self.out.pop(self.chance.choice((0, 0, len(self.out) // 2)))
            self.tell(push)
            if self.chance.random() < 0.05:
                self.tell(push)  # sent again
            if push.group == self.groups[-1]:
                self.tell(Ready(push.worker))
        self.tell(Lost(1))
        self.tell(Drain())
        self.statistics.update(self.discipline.counts)
        return self

    def effects(self, kind: type[Any]) -> list[Any]:
        return [effect for _, effects in self.said for effect in effects if isinstance(effect, kind)]


MODES = [
    Sync(),
    Async(staleness=Staleness(decay=Inverse())),
    GBA(tolerance=0),
    BackupWorkers(backups=2),
    Hybrid(max_in_flight=3),
    KStep(k=3),
]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: str(mode.name))
@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_a_slow_recount(mode: Mode, seed: int) -> None:
    run = Recorded(mode, seed).run(300)
    counted, applies = run.statistics, run.effects(Apply)
    dense = [(apply, part) for apply in applies if apply.group != "embedding" for part in apply.parts]
    rows = [(apply, part) for apply in applies if apply.group != "dense" for part in apply.parts]
    alone = [(apply, part) for apply in applies if apply.group == "embedding" for part in apply.parts]
    assert counted.granted == len(run.effects(Grant))
    assert counted.parked == len(run.effects(Park))
    assert counted.steps == sum(apply.group != "embedding" for apply in applies)
    assert (counted.applied, counted.applied_rows) == (len(dense), len(rows))
    assert counted.samples_applied == sum(part.samples for _, part in dense)
    assert counted.samples_applied_rows == sum(part.samples for _, part in rows)
    assert counted.decayed == sum(part.weight < 1 for _, part in dense)
    assert counted.zero_weight == sum(part.weight == 0 for _, part in dense)
    assert counted.dropped == Counter(drop.reason for drop in run.effects(Drop))
    assert counted.data == histogram([max(0, apply.step - part.token) for apply, part in dense])
    assert counted.gradient == histogram([apply.step - part.pulled_step for apply, part in dense])
    assert counted.rows == histogram([apply.step - part.pulled_step for apply, part in alone])
    known = run.discipline.counts
    assert counted.duplicates == known["duplicate_pushes"]
    assert counted.short_steps == known.get("short_steps", 0)
    assert counted.after_loss == known["pushes_after_loss"]


def test_the_modes_of_the_recount_make_everything_happen_that_is_counted() -> None:
    runs = [Recorded(mode, 0).run(300).statistics for mode in MODES]
    for name in ("granted", "parked", "steps", "decayed", "zero_weight", "duplicates", "short_steps"):
        assert any(getattr(counted, name) for counted in runs), name
    assert any(counted.dropped.get("late") for counted in runs)
    assert any(counted.dropped.get("lost") for counted in runs)
    assert any(counted.rows.largest for counted in runs)


def late(grant: int, samples: int) -> tuple[Pushed, Drop]:
    return Pushed("both", 0, grant, 0, 0, samples), Drop(grant, "late")


def test_samples_of_a_dropped_push_are_those_that_it_told() -> None:
    counted = Statistics()
    push, drop = late(grant=7, samples=64)
    counted.take(push, [drop])
    assert (counted.dropped, counted.samples_dropped, counted.drops_of_unknown_size) == ({"late": 1}, {"late": 64}, 0)


def test_samples_of_other_drops_are_looked_up_or_counted_as_unknown() -> None:
    counted = Statistics()
    push, _ = late(grant=7, samples=64)
    counted.take(push, [Drop(8, "rollback"), Drop(9, "rollback")], {8: 32})
    counted.take(Lost(1), [Drop(7, "lost")])
    assert counted.dropped == {"rollback": 2, "lost": 1}
    assert counted.samples_dropped == {"rollback": 32}
    assert counted.drops_of_unknown_size == 2


def test_a_part_from_the_future_is_refused() -> None:
    for group in ("both", "dense", "embedding"):
        with pytest.raises(InputError, match="grant=1: pulled at step 6 and applied at step 5"):
            Statistics().take(Drain(), [Apply(group, 5, (GradientPart(1, 5, 6, 10, 1.0),))])


def test_a_token_ahead_of_its_step_is_no_data_staleness() -> None:
    counted = Statistics()
    counted.take(Drain(), [Apply("both", 5, (GradientPart(1, 6, 5, 10, 1.0), GradientPart(2, 3, 2, 10, 1.0)))])
    assert counted.data.counts == {0: 1, 2: 1}
    assert counted.gradient.counts == {0: 1, 3: 1}


def test_a_weight_just_below_1_is_decayed_and_not_zero() -> None:
    counted = Statistics()
    weights = (1.0, 0.999, 0.0)
    counted.take(Drain(), [Apply("both", 0, tuple(GradientPart(1, 0, 0, 1, weight) for weight in weights))])
    assert (counted.decayed, counted.zero_weight) == (2, 1)


def test_counts_of_a_discipline_are_taken_over_once_however_often_it_tells_them() -> None:
    counted = Statistics()
    counted.update({"short_steps": 1, "duplicate_pushes": 2})
    counted.update({"short_steps": 1, "duplicate_pushes": 5})
    assert (counted.short_steps, counted.duplicates, counted.after_loss) == (1, 5, 0)


def test_counts_go_on_when_the_mode_changes() -> None:
    counted = Statistics()
    counted.update({"short_steps": 2}, last=True)
    counted.update({"short_steps": 2})
    assert counted.short_steps == 4


def test_counts_that_fall_were_never_told_to_be_the_last() -> None:
    counted = Statistics()
    counted.update({"short_steps": 2})
    with pytest.raises(InputError, match="short_steps=1: was more before"):
        counted.update({"short_steps": 1})


def test_staleness_of_ids_is_added_up_from_who_holds_the_rows() -> None:
    counted = Statistics()
    counted.add_ids(IdCounts(Histogram({0: 10, 3: 2}), decayed=2, zero_weight=1))
    counted.add_ids(IdCounts(Histogram({3: 1}), decayed=1))
    assert counted.ids.counts == {0: 10, 3: 3}
    assert (counted.ids_decayed, counted.ids_zero_weight) == (3, 1)


@pytest.mark.parametrize(
    ("policy", "decayed", "zero_weight"),
    [
        (None, 0, 0),
        (Staleness(decay=Cutoff(tolerance=2)), 7, 7),
        (Staleness(decay=Cutoff(tolerance=3)), 3, 3),
        (Staleness(decay=Inverse()), 12, 0),
        (Staleness(decay=Inverse(), groups="dense"), 0, 0),
    ],
)
def test_ids_that_a_policy_weighed_less_are_counted_by_how_late_they_were(
    policy: Staleness | None, decayed: int, zero_weight: int
) -> None:
    late = Histogram({0: 10, 1: 1, 2: 5, 3: 4, 9: 3})
    assert IdCounts.of(late, policy) == IdCounts(late, decayed, zero_weight)


def test_statistics_can_be_saved_compared_and_restored() -> None:
    counted = Recorded(GBA(tolerance=0), 1).run(50).statistics
    whole = TypeAdapter(Statistics)
    again = whole.validate_json(whole.dump_json(counted))
    assert again == counted
    again.take(Ready(0), [Grant(0, 99, 0)])
    assert again != counted


def test_the_document_is_plain_json_with_every_figure() -> None:
    counted = Recorded(Hybrid(max_in_flight=3), 1).run(100).statistics
    document = json.loads(json.dumps(counted.document(), allow_nan=False))
    assert document["applied"] == counted.applied
    assert document["dropped"] == counted.dropped
    assert Histogram.of(document["rows"]) == counted.rows
    assert document["gradient"]["mean"] == counted.gradient.mean
    state = {"parts", "samples", "at_work"}  # told by group, or of the discipline at work alone
    assert set(TypeAdapter(Statistics).json_schema()["properties"]) - state <= set(document)
