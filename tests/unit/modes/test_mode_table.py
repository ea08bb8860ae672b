"""The table of modes says what the modes do."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import GBA, MODES, Hybrid, KStep, Sync, mode_of
from hotrow.modes.base import Apply, Drain, Joined, Ready, RunFacts
from hotrow.staleness import Cutoff, Staleness
from unit.modes.tiny_cluster import cluster_of, facts_of

FACTS = RunFacts(workers=5, local_batch=16, global_batch=64)
PARAMETERS = {"bulk_sync": {"bulk": 3}, "backup_workers": {"backups": 2}}


@pytest.mark.parametrize("name", MODES)
def test_the_parameters_of_an_entry_are_the_fields_of_its_spec(name: str) -> None:
    entry = MODES[name]
    spec = entry.spec()
    assert spec.name == name
    assert {"name", *entry.parameters} == set(type(spec).model_fields)


@pytest.mark.parametrize("name", MODES)
def test_the_samples_of_a_step_are_what_the_entry_says(name: str) -> None:
    entry = MODES[name]
    spec = entry.spec(**PARAMETERS.get(name, {}))
    b = next(iter(PARAMETERS.get(name, {"none": 0}).values()))
    said = {"G": 64, "B": 16, "b B": 16 * b, "(N - b) B": (5 - b) * 16, "B per worker, merged": 16}
    assert spec.samples_per_step(FACTS) == said[entry.samples_per_step]


@pytest.mark.parametrize("name", [name for name in MODES if name != "k_step"])
def test_the_samples_of_a_step_are_what_a_whole_one_holds(name: str) -> None:
    spec = MODES[name].spec(**PARAMETERS.get(name, {}))
    cluster = cluster_of(spec, workers=5, parts=4, batches=24)
    for worker in range(5):
        cluster.join(worker)
    cluster.finish()
    assert cluster.steps[0].samples == spec.samples_per_step(facts_of(workers=5, parts=4))


@pytest.mark.parametrize("name", [name for name in MODES if MODES[name].embedding == "same"])
def test_modes_with_the_same_for_both_apply_both_at_once(name: str) -> None:
    cluster = cluster_of(MODES[name].spec(**PARAMETERS.get(name, {})), workers=3, batches=12)
    cluster.finish()
    assert {effect.group for effect in cluster.effects if isinstance(effect, Apply)} == {"both"}


def test_a_mode_by_its_name_or_its_settings() -> None:
    assert mode_of("sync") == Sync()
    assert mode_of(GBA(tolerance=2)) == GBA(tolerance=2)
    assert mode_of({"name": "hybrid", "max_in_flight": 2}) == Hybrid(max_in_flight=2)
    policy = {"decay": {"name": "cutoff", "tolerance": 3}}
    assert mode_of({"name": "async", "staleness": policy}).late == Staleness(decay=Cutoff(tolerance=3))


@pytest.mark.parametrize("name", MODES)
def test_a_mode_comes_back_from_its_settings(name: str) -> None:
    spec = MODES[name].spec(**PARAMETERS.get(name, {}))
    assert mode_of(spec.model_dump()) == spec


@pytest.mark.parametrize("wrong", ["gbaa", {"tolerance": 3}, {"name": "auto"}, ""])
def test_a_mode_that_is_none_is_refused_with_those_that_are(wrong: str | dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"mode=.*there are sync, async, .*, k_step"):
        mode_of(wrong)


def test_settings_of_another_mode_are_refused() -> None:
    with pytest.raises(ConfigError, match="bulk"):
        mode_of({"name": "gba", "bulk": 3})


def test_where_dense_parameters_are_changed() -> None:
    told = {name: entry.spec().dense for name, entry in MODES.items()}
    assert told.pop("sync") == told.pop("hybrid") == "all-reduce"
    assert told.pop("k_step") == "local"
    assert set(told.values()) == {"server"}


def test_only_hybrid_has_several_batches_in_flight() -> None:
    assert {name for name, entry in MODES.items() if entry.spec().most_in_flight > 1} == {"hybrid"}
    assert Hybrid(max_in_flight=1).most_in_flight == 1


def test_a_discipline_knows_nothing_of_another() -> None:
    facts = facts_of(workers=2, parts=2)
    first, second = KStep(k=2).start(facts), KStep(k=2).start(facts)
    first.on(Joined(0))
    first.on(Ready(0))
    assert first != second
    assert second.on(Drain()) == []
