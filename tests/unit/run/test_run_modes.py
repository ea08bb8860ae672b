"""Modes from a config to what a run leaves: settings, sentences, events, counts, and a resume with its batches."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow import checkpoint
from hotrow.modes import MODES
from hotrow.obs.events import read_events
from hotrow.optim import SwapOptimizer
from hotrow.run import Run, load_config
from hotrow.run.build import dense_optimizer
from hotrow.run.config import Named, RunConfig, as_toml
from hotrow.trainer import Progress, Remark, Report, Switched
from small_run import CONFIG, free_port, write_data
from unit.runtime.local_server import server_of


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("modes"), CONFIG.replace("epochs = 2", "epochs = 1"))


def loaded(config_file: Path, folder: Path, *changes: str) -> RunConfig:
    return load_config(config_file, (f"run.folder={folder}", *changes))


def finish(config: RunConfig, **how: Any) -> tuple[Run, list[Report]]:
    with Run(config, **how) as run:
        return run, list(run)


def metric(run: Run, name: str, **labels: str) -> float | None:
    """What was served last."""
    assert run._recorder.files._metrics is not None
    return run._recorder.files._metrics._registry.get_sample_value(f"hotrow_{name}", labels)


def events(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(run.folder / "events.jsonl").events if event["kind"] == kind]


SETTINGS = {
    **{name: (name, name) for name in (*MODES, "auto")},
    "a table": ("{name='gba', tolerance=2}", "gba"),
    "a curve": ("{name='gba', decay={name='power', reference=3}}", "gba"),
    "a policy": ("{name='async', staleness={decay={name='inverse'}, groups='dense'}}", "async"),
    "advice": ("{name='auto', advise=true}", "auto"),
}


@pytest.mark.parametrize(("setting", "name"), SETTINGS.values(), ids=SETTINGS)
def test_a_mode_is_a_name_or_a_table_and_stays_the_same_when_saved(
    setting: str, name: str, config_file: Path, tmp_path: Path
) -> None:
    changes = (f"run.mode={setting}", "run.workers=4", "run.local_batch=32", "run.embedding_average=present")
    config = loaded(config_file, tmp_path, *changes, "dense.swap={period=1000, decay=0.9}")
    assert config.run.mode.name == name
    (tmp_path / "again.toml").write_text(as_toml(config))
    again = load_config(tmp_path / "again.toml")
    assert again.run.mode == config.run.mode
    assert (again.run.workers, again.run.local_batch, again.run.embedding_average) == (4, 32, "present")
    assert again.dense.swap == hr.Swap(period=1000, decay=0.9)


FAULTS = {
    "no such mode": ("run.mode=gbba", "run.mode=.*: there is none .*did you mean gba.*: must be one of 'sync', .*auto"),
    "no such setting": ("run.mode={name='gba', tol=1}", "run.mode.gba.tol=1: there is no such setting; there are:"),
    "below its bound": ("run.mode={name='gba', tolerance=-1}", "run.mode.gba.tolerance=-1: Input should be"),
    "a number": ("run.mode=3", "run.mode=3: give one of hotrow's settings for it"),
    "nobody": ("run.workers=0", "run.workers=0: Input should be greater than or equal to 1"),
    "an average": ("run.embedding_average=mean", "run.embedding_average='mean': Input should be 'batch' or 'present'"),
    "workers": ("run.workers=3", "workers=3: do not divide global_batch=128 evenly: take 2, or give local_batch"),
    "too large": ("run.local_batch=129", "local_batch=129: must be from 1 to 128"),
    "no divisor": ("run.local_batch=48", "local_batch=48: sync puts whole local batches together .* take 32 or 64"),
    "backups": ("run.mode=backup_workers", "backups=1: is for several workers"),
    "an optimizer": ("run.mode=k_step", "mode 'k_step' trains dense parameters with hotrow.optim.KStepAdam, not with"),
    "swap": ("dense={optimizer='sgd', swap={period=9, decay=0.5}}", "dense.swap: optimizer=SGD: it has no second"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "told"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_is_a_sentence_before_a_folder_is_made(
    change: str, told: str, config_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(hr.ConfigError, match=told):
        Run(loaded(config_file, tmp_path / "runs", change))
    assert not (tmp_path / "runs").exists()


def test_the_trainer_gets_what_the_config_says(config_file: Path, tmp_path: Path) -> None:
    changes = ("run.mode={name='gba', tolerance=2}", "run.workers=2", "run.local_batch=32")
    with Run(loaded(config_file, tmp_path, *changes, "run.embedding_average=present")) as run:
        trainer = run.trainer
        assert trainer.mode == hr.GBA(tolerance=2)
        assert (trainer.facts.workers, trainer.facts.local_batch, trainer.facts.global_batch) == (2, 32, 128)
        assert server_of(trainer).average == "present"


def test_k_step_adam_and_swap_are_dense_optimizers_like_others() -> None:
    parameters = [nn.Parameter(torch.zeros(1))]
    made = dense_optimizer(Named(name="KStepAdam", settings={"beta1": 0.5}), parameters)
    assert isinstance(made, hr.KStepAdam)
    assert made.param_groups[0]["beta1"] == 0.5
    swap = hr.Swap(period=100, decay=0.5)
    wrapped = dense_optimizer(Named(name="adagrad"), parameters, swap)
    assert isinstance(wrapped, SwapOptimizer)
    assert (type(wrapped.optimizer).__name__, wrapped.swap) == ("Adagrad", swap)
    for named, told in (
        (Named(name="kstepadam", settings={"lr": -1}), r"dense.optimizer: KStepAdam.lr=-1: must be 0 or more"),
        (Named(name="kstepadam", settings={"rate": 1}), r"dense.optimizer.rate=1: KStepAdam has no such setting"),
    ):
        with pytest.raises(hr.ConfigError, match=told):
            dense_optimizer(named, parameters)


def test_swap_of_the_dense_optimizer_goes_on_over_a_resume(config_file: Path, tmp_path: Path) -> None:
    swap = ("dense={optimizer='adagrad', swap={period=500, decay=0.5}}", "run.epochs=2")
    whole, _ = finish(loaded(config_file, tmp_path / "whole", *swap))
    finish(loaded(config_file, tmp_path / "cut", *swap, "run.epochs=1"))
    again, _ = finish(loaded(config_file, tmp_path / "cut", *swap), resume=True)
    plain, _ = finish(loaded(config_file, tmp_path / "plain", "dense.optimizer=adagrad", "run.epochs=2"))
    assert again.summary["test_logloss"] == whole.summary["test_logloss"]
    assert again.summary["test_logloss"] != plain.summary["test_logloss"]


@pytest.fixture(scope="module")
def asynchronous(config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Report]]:
    changes = ("run.mode=async", "run.workers=2", f"run.metrics_port={free_port()}")
    config = loaded(config_file, tmp_path_factory.mktemp("runs"), *changes)
    run = Run(config)
    run.trainer._report_every_s = 0
    with run:
        return run, list(run)


def test_a_run_writes_down_its_mode_and_what_is_to_be_known_of_it(asynchronous: tuple[Run, list[Report]]) -> None:
    run, reports = asynchronous
    (begun,) = events(run, "mode")
    figures = ("before", "mode", "chosen", "workers", "local_batch", "global_batch", "samples", "step")
    assert [begun[name] for name in figures] == [None, "async", "async", 2, 64, 128, 0, 0]
    (remark,) = events(run, "remark")
    assert (remark["mode"], remark["samples"]) == ("async", 0)
    assert "64 samples a step, the global batch is 128" in remark["sentence"]
    assert isinstance(reports[0], Remark)


def test_statistics_are_in_the_log_the_summary_and_the_metrics(asynchronous: tuple[Run, list[Report]]) -> None:
    run, _ = asynchronous
    told = run.summary["statistics"]
    assert run.summary["mode"] == "async"
    assert (told["granted"], told["applied"], told["samples_applied"]) == (47, 47, 3000)  # 46 of 64 and one of 56
    assert told["gradient"]["total"] == 47
    assert told["short_steps"] == run.summary["counts"]["short_steps"] == 1
    assert json.loads(json.dumps(told)) == told
    last = events(run, "statistics")[-1]
    assert {name: last[name] for name in told} == told
    assert metric(run, "mode_staleness", of="gradient") == told["gradient"]["mean"]
    assert metric(run, "mode_staleness_largest", of="ids") == told["ids"]["largest"]
    assert [metric(run, f"mode_{name}") for name in ("granted", "dropped", "short_steps")] == [47, 0, 1]
    assert metric(run, "mode_switches_total") is None
    assert metric(run, "mode_staleness", of="rows") is None  # nothing was applied on its own


def test_progress_tells_the_mean_staleness_so_far(asynchronous: tuple[Run, list[Report]]) -> None:
    run, reports = asynchronous
    told = [report.staleness for report in reports if isinstance(report, Progress)]
    assert told[-1] == run.summary["statistics"]["gradient"]["mean"]
    assert [event["staleness"] for event in events(run, "progress")] == told


def test_a_switch_in_a_run_is_kept_and_counted(config_file: Path, tmp_path: Path) -> None:
    run = Run(loaded(config_file, tmp_path, "run.workers=2", f"run.metrics_port={free_port()}"))
    run.trainer._report_every_s = 0
    with run:
        for report in run:
            if isinstance(report, Progress) and report.step == 3:
                run.trainer.switch("gba")
            assert not isinstance(report, Switched) or report.mode == "gba"
    first, second = events(run, "mode")
    assert (first["mode"], second["before"], second["mode"], second["sentence"]) == ("sync", "sync", "gba", None)
    assert metric(run, "mode_switches_total") == 1
    assert run.summary["mode"] == "gba"
    assert checkpoint.peek(run.folder / "checkpoint").counters["mode"] == "gba"
    assert run.page is not None
    assert "Modes as the run went" in run.page.read_text()


RESUMES = {
    "more workers": (
        ("run.workers=4",),
        r"local_batch=32 \(global_batch=128, workers=4\): the position .* batches of 64 samples: set local_batch=64",
    ),
    "another global batch": (
        ("run.workers=2", "run.global_batch=96"),
        r"local_batch=48 \(global_batch=96, workers=2\): .* set global_batch and workers back",
    ),
}


@pytest.mark.parametrize(("changes", "told"), RESUMES.values(), ids=RESUMES)
def test_a_resume_with_other_local_batches_is_told_by_the_names_of_the_settings(
    changes: tuple[str, ...], told: str, config_file: Path, tmp_path: Path
) -> None:
    finish(loaded(config_file, tmp_path, "run.workers=2"))
    with pytest.raises(hr.ConfigError, match=told):
        finish(loaded(config_file, tmp_path, "run.epochs=2", *changes), resume=True)


def test_a_resume_may_change_mode_and_workers_with_the_local_batch_by_name(config_file: Path, tmp_path: Path) -> None:
    finish(loaded(config_file, tmp_path, "run.workers=2"))
    changes = ("run.epochs=2", "run.workers=1", "run.local_batch=64", "run.mode=gba")
    run, _ = finish(loaded(config_file, tmp_path, *changes), resume=True)
    assert run.summary["samples"] == 6000
    assert [event["mode"] for event in events(run, "mode")] == ["sync", "gba"]
    assert [event["samples"] for event in events(run, "mode")] == [0, 3000]
