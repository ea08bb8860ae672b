"""A mode of a user's own, as examples/own_mode.py has it, keeps the rules of all modes and runs wherever they do."""

import random
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hotrow.modes
from hotrow import ConfigError
from hotrow.modes import Apply, Drop, Mode, RunFacts
from hotrow.sim import Checkers, ClusterConfig, Crash, Faults, Messages, SimCluster, Speeds, Stragglers
from unit.modes.tiny_cluster import cluster_of

ROOT = Path(__file__).parents[3]
EVENTS = ("Joined", "Ready", "Pushed", "Lost", "Ended", "Drain", "Resume")
EFFECTS = ("Grant", "Apply", "Drop", "Park", "GradientPart")
PUBLIC = (*EVENTS, *EFFECTS, "RunFacts", "Discipline", "Mode", "Event", "Effect", "Grants", "part")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("own_mode", ROOT / "examples" / "own_mode.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def own_mode(example: ModuleType, bound: int) -> Mode:
    made: Mode = example.DropStale(bound=bound)
    return made


@pytest.mark.parametrize("name", PUBLIC)
def test_what_a_mode_is_written_with_is_public(name: str) -> None:
    assert name in hotrow.modes.__all__
    assert name in ("Event", "Effect") or getattr(hotrow.modes, name).__doc__


def test_the_documentation_shows_the_example() -> None:
    text = (ROOT / "docs" / "modes.md").read_text()
    section = text[text.index("## Write your own") :]
    shown = section[section.index("```python\n") + 10 : section.index("\n```\n")]
    assert shown in (ROOT / "examples" / "own_mode.py").read_text()


@pytest.mark.parametrize("seed", range(5))
def test_it_keeps_the_rules_of_all_modes(example: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    cluster = cluster_of(own_mode(example, bound=1), workers=4, batches=40)
    for worker in range(4):
        cluster.join(worker)
    for _ in range(150):
        worker = chance.randrange(4)
        cluster.ask(worker)
        if chance.random() < 0.6:
            cluster.push(chance.randrange(4))
        if chance.random() < 0.05:
            cluster.lose(worker)
            cluster.join(worker)
        if chance.random() < 0.05:
            cluster.drain()
            cluster.resume()
    cluster.finish()


def test_it_runs_in_the_simulator_under_faults(example: ModuleType) -> None:
    config = ClusterConfig(
        workers=5,
        local_batch=8,
        speeds=Speeds(batch_s=1.0, sample_s=0.0, stragglers=(Stragglers(workers=(4,), factor=4.0),)),
        faults=Faults(
            crashes=(Crash(worker=2, at_s=5.5, restart_after_s=6.0),), messages=Messages(duplicate=0.2, timeout_s=0.5)
        ),
    )
    cluster = SimCluster(own_mode(example, bound=3), config, data=803, seed=1)
    cluster.rest(at_s=15.0)
    found = cluster.run().statistics
    assert found.samples_applied + found.samples_dropped["late"] == 803
    assert found.dropped["late"] > 0
    assert found.duplicates > 0
    assert max(found.data.counts) == 3


def test_it_runs_in_a_trainer(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.train(rows=2_000)
    assert "batches applied" in capsys.readouterr().out


def test_a_bound_of_its_own_is_inclusive(example: ModuleType) -> None:
    mode = own_mode(example, bound=1).start(RunFacts(workers=3, local_batch=4, global_batch=12))
    grants: list[Any] = [mode.on(hotrow.modes.Ready(worker))[0] for worker in range(3)]
    effects = [
        mode.on(hotrow.modes.Pushed("both", each.worker, each.grant, each.token, each.token, 4))[0] for each in grants
    ]
    assert [type(each) for each in effects] == [Apply, Apply, Drop]


def test_checkers_say_that_they_do_not_know_it(example: ModuleType) -> None:
    config = ClusterConfig(workers=2, local_batch=4)
    with pytest.raises(ConfigError, match="mode='drop_stale': checkers know"):
        SimCluster(own_mode(example, 1), config, data=8, watchers=[Checkers()])
