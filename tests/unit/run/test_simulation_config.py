"""A simulation's file: what stands where, what goes with what, and a sentence for everything that does not."""

from pathlib import Path
from typing import Any

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import GBA, BulkSync, Sync
from hotrow.sim.study.config import SimulationConfig, check_whole
from hotrow.sim.study.file import load_simulation, preset_names, preset_text, preset_title
from hotrow.switching import Auto
from simulations import TRAINED, UNEVEN, changed, config

WITHOUT_CLUSTER = {"modes": {"sync": {}}, "run": {"samples": 10}}


def test_a_label_that_is_a_modes_name_is_that_mode_and_its_settings_stand_beside_what_is_its_own() -> None:
    made = config(
        modes={"gba": {"tolerance": 7, "workers": 2, "local_batch": 20}, "big": {"name": "bulk_sync", "bulk": 3}}
    )
    assert list(made.modes) == ["sync", "gba", "big"]
    assert (made.modes["sync"].mode, made.modes["gba"].mode) == (Sync(), GBA(tolerance=7))
    assert (made.modes["gba"].workers, made.modes["gba"].local_batch) == (2, 20)
    assert made.modes["big"].mode == BulkSync(bulk=3)
    assert config(modes={"auto": {"gain": 0.5}}).modes["auto"].mode == Auto(gain=0.5)


def test_every_mode_finds_the_cluster_with_its_own_workers_batch_and_speed_and_the_same_global_batch() -> None:
    speeds = {**UNEVEN["cluster"]["speeds"], "batch_s": 2.0}
    made = config(cluster={"speeds": speeds}, modes={"gba": {"workers": 8, "local_batch": 5, "speed": 4.0}})
    plain, own = made.cluster_of("sync"), made.cluster_of("gba")
    assert plain == made.cluster.model_copy(update={"global_batch": 40})
    assert (own.workers, own.local_batch, own.global_batch) == (8, 5, 40)
    assert (own.speeds.sample_s, own.speeds.batch_s) == (0.025, 0.5)
    assert own.speeds.stragglers == made.cluster.speeds.stragglers


def test_a_switch_to_a_label_takes_its_workers_and_batch_and_a_switch_to_a_mode_leaves_them() -> None:
    made = config(
        modes={
            "gba": {"local_batch": 20},
            "sync": {"switches": [{"mode": "gba", "at_s": 1}, {"mode": "async", "at_s": 2}]},
        }
    )
    first, second = map(made.target_of, made.modes["sync"].switches)
    assert (first.mode, first.workers, first.local_batch) == (GBA(), 4, 20)
    assert (second.mode.name, second.workers, second.local_batch) == ("async", None, None)


def test_calibrate_is_taken_out_of_the_cluster_and_kept() -> None:
    made = config(cluster={"speeds": {"calibrate": True}, "network": {"calibrate": True, "bandwidth": "1GB"}})
    assert made.measured == ("speeds", "network")
    assert made.cluster.network.bandwidth == "1GB"
    assert config(cluster={"speeds": {"calibrate": False}}).measured == ()


def test_hyper_parameters_are_those_named_or_the_only_ones_or_the_defaults() -> None:
    two = {"one": {"rows": {"name": "sgd", "lr": 1.0}}, "two": {"rows": {"name": "sgd", "lr": 2.0}}}
    made = config(TRAINED, hyper=two, modes={"sync": {"hyper": "two"}})
    assert made.hyper_of("sync") == made.hyper["two"]
    assert config(TRAINED).hyper_of("sync").dense.optimizer.name == "sgd"
    assert SimulationConfig(**{**TRAINED, "hyper": {}}).hyper_of("sync").rows is None


MODES_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"gba": {"tolerance": -1}}, "modes.gba.tolerance=-1: Input should be greater than or equal to 0"),
    ({"gba": {"worker": 2}}, "modes.gba.worker=2: there is no such setting; did you mean workers?"),
    ({"gba": {"tolerence": 2}}, "modes.gba.tolerence=2: there is no such setting; did you mean tolerance?"),
    ({"gba": {"speed": 0}}, "modes.gba.speed=0: Input should be greater than 0"),
    ({"mine": {}}, "modes.mine.name is missing: mine is not the name of a mode, give one of sync, async"),
    ({"mine": {"name": "gab"}}, "modes.mine.name='gab': there is no such mode: there are sync, async"),
    ({"gba": {"local_batch": 30}}, "local_batch=30: gba puts whole local batches together"),
    ({"gba": {"workers": 2, "name": "backup_workers", "backups": 2}}, "backups=2: must be below the 2 workers"),
    ({"gba": {"local_batch": 50}}, "global_batch=40: is below local_batch=50"),
    ({"gba": {"hyper": "x"}}, "modes.gba.hyper='x': there is no such set; there are: none"),
    ({"gba": {"switches": [{"mode": "sync"}]}}, "switches.0.at_samples=None: give either at_s or"),
    ({"gba": {"switches": [{"mode": "sync", "at_s": 1, "at_samples": 1}]}}, "give either at_s or at_samples"),
    ({"gba": {"switches": [{"mode": "snyc", "at_s": 1}]}}, "modes.gba.switches.0.mode='snyc': is neither one of the"),
    ({"auto": {}, "gba": {"switches": [{"mode": "auto", "at_s": 1}]}}, "auto is not a mode to switch to"),
    ({"auto": {"switches": [{"mode": "gba", "at_s": 1}]}}, "auto decides when to switch"),
    ({"gba": {"speed": 2, "switches": [{"mode": "sync", "at_s": 1}]}}, "its workers are of another speed"),
    ({"gba": {"switches": [{"mode": "sync", "at_s": 2}, {"mode": "gba", "at_s": 1}]}}, "put them in the order of at_s"),
    ({"bulk_sync": {"local_batch": 30, "switches": [{"mode": "hybrid", "at_s": 2}]}}, "hybrid puts whole local"),
    ({"gba": 3}, "modes.gba=3: give one of hotrow's settings for it"),
]  # fmt: skip


@pytest.mark.parametrize(("modes", "sentence"), MODES_FAULTS, ids=[sentence[:40] for _, sentence in MODES_FAULTS])
def test_modes_that_cannot_be_are_told_in_a_sentence(modes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        config(modes=modes)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({**UNEVEN, "modes": {}}, "modes={}: there is nothing to compare"),
        (WITHOUT_CLUSTER, "cluster is missing: give it a value"),
        (changed(UNEVEN, run={"work": "sleep"}), "run.work='sleep': Input should be 'count' or 'train'"),
        (changed(UNEVEN, run={"row_bytes": -1}), "run.row_bytes=-1"),
        (changed(TRAINED, run={"row_bytes": 8}), "run.row_bytes=8: with work='train' the bytes are counted"),
        (changed(UNEVEN, cluster={"speeds": {"calibrate": 1}}), "cluster.speeds.calibrate=1: must be true or false"),
        (
            changed(UNEVEN, cluster={"speeds": {"calibrate": True, "sample_s": 1.0}}),
            "cluster.speeds.sample_s=1.0: calibrate=true measures it",
        ),
        (changed(TRAINED, tables={"default": {"dim": 0}}), "tables.default.dim=0"),
        (changed(TRAINED, data={"rows": "many"}), "data.rows='many': must be a whole number"),
        (changed(TRAINED, hyper={"two": {}}), "modes.sync.hyper is missing: name one of one, two"),
        (changed(UNEVEN, picture={"workers": 0}), "picture.workers=0"),
    ],
)
def test_other_sections_that_cannot_be_are_told_too(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        SimulationConfig(**document)
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (config(run={"samples": None}), "run.samples is missing: give the number of samples"),
        (config(cluster={"speeds": {"calibrate": True}}), "work='count' computes none"),
        (SimulationConfig(**{**TRAINED, "data": None}), "data: is missing, and work='train' needs it"),
        (SimulationConfig(**{**TRAINED, "model": None}), "model: is missing, and work='train' needs it"),
        (SimulationConfig(**{**TRAINED, "tables": {}}), "tables: is missing, and work='train' needs it"),
    ],
)
def test_what_a_simulation_lacks_is_told_before_it_starts(made: SimulationConfig, sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        check_whole(made)
    assert sentence in str(told.value)


def test_hours_without_an_end_of_data_are_enough() -> None:
    made = config(run={"samples": None, "seconds": 10})
    assert check_whole(made) is made


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_simulation(name: str) -> None:
    made = load_simulation(name)
    assert len(made.modes) >= 3
    assert 20 < len(preset_title(name)) < 120
    assert preset_text(name).startswith(f"# {preset_title(name)}\n#\n# ")


PAPER = {  # of Table 5.1: workers and local batch of Sync, of Async and of GBA, b1, b2, b3, learning rates
    "gba-criteo": ((32, 40_000), (100, 5_000), (100, 12_800), 2, 20, 25, 0.006, 0.0011),
    "gba-alimama": ((32, 3_000), (128, 1_000), (128, 750), 2, 20, 32, 0.008, 0.0015),
    "gba-private": ((64, 6_400), (400, 1_024), (400, 1_024), 2, 50, 100, 0.001, 0.0006),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_presets_hold_the_papers_settings(name: str) -> None:
    made = load_simulation(name)
    sync, asynchronous, gba, bound, bulk, backups, async_lr, sync_lr = PAPER[name]
    for label, (workers, local_batch) in {"sync": sync, "async": asynchronous, "gba": gba}.items():
        facts = made.cluster_of(label).facts
        assert (facts.workers, facts.local_batch) == (workers, local_batch)
        assert facts.global_batch == sync[0] * sync[1]
    for label in ("hop-bs", "bsp", "hop-bw"):
        facts = made.cluster_of(label).facts
        assert (facts.workers, facts.local_batch) == (asynchronous[0], sync[1])
    numbers = [getattr(made.modes[label].mode, own) for label, own in (("hop-bs", "bound"), ("bsp", "bulk"))]
    assert [*numbers, getattr(made.modes["hop-bw"].mode, "backups")] == [bound, bulk, backups]  # noqa: B009
    assert made.modes["gba"].mode == GBA(tolerance=4)
    for label, mode in made.modes.items():
        hyper, lr, optimizer = made.hyper_of(label), *((async_lr, "adagrad") if label == "async" else (sync_lr, "adam"))
        assert (hyper.dense.optimizer.name, hyper.dense.optimizer.settings) == (optimizer, {"lr": lr}), mode
        assert hyper.rows is not None
        assert (hyper.rows.name, hyper.rows.lr) == (optimizer, lr)


def test_a_file_is_read_with_changes_and_its_paths_start_at_its_folder(tmp_path: Path) -> None:
    text = '[cluster]\nworkers = 2\nlocal_batch = 4\n[modes.gba]\n[run]\nsamples = 8\n[data]\ntrain = "clicks.csv"\n'
    text += 'label = "y"\nids = ["u"]\n[model]\nname = "own.py:Mine"\n'
    path = tmp_path / "mine.toml"
    path.write_text(text)
    made = load_simulation(str(path), ["run.seed=3", "modes.gba.tolerance=9"])
    assert (made.run.seed, made.modes["gba"].mode) == (3, GBA(tolerance=9))
    assert made.data is not None
    assert made.model is not None
    assert getattr(made.data, "train") == (str(tmp_path / "clicks.csv"),)  # noqa: B009
    assert made.model.name == f"{tmp_path / 'own.py'}:Mine"


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("modes = [")
    with pytest.raises(ConfigError, match="invalid TOML"):
        load_simulation(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="invalid TOML"):
        load_simulation(str(path))
    path.write_text("[modes.gba]\n[cluster]\nworkers = 0\nlocal_batch = 1\n")
    with pytest.raises(ConfigError, match=r"mine.toml: cluster.workers=0"):
        load_simulation(str(path))
    with pytest.raises(ConfigError, match="no preset of this name: did you mean gba-criteo"):
        load_simulation("gba-crite")
    with pytest.raises(ConfigError, match="the presets are day, demo, gba-alimama"):
        preset_text("zzz")


def test_a_cache_is_refused_in_a_mode_that_applies_gradients_together() -> None:
    tables = {"default": {"dim": 4, "cache": {"capacity": 10}}}
    with pytest.raises(ConfigError, match=r"tables\.default\.cache: mode .* take mode 'hybrid' or 'async'"):
        config(TRAINED, tables=tables)
