"""`hotrow train`: results on standard output alone, figures in a file, and a way to go on after whatever stopped it."""

import json
import os
import re
import signal
import tomllib
from contextlib import nullcontext
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from hotrow import checkpoint
from hotrow.cli.train import command, starting
from hotrow.run import load_config
from hotrow.run.recorder import RunRecorder
from hotrow.runtime.settings import Local, Ray
from hotrow.trainer import Report
from small_run import CONFIG, clicks, write_csv, write_data
from unit.cli.conftest import Command


def test_standard_output_holds_the_result_and_the_page_alone(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("train", write_data(tmp_path))
    assert done.exit_code == 0, done.stderr
    *lines, page = done.stdout.splitlines()
    figures = {line.rsplit(None, 1)[0].strip(): line.rsplit(None, 1)[1] for line in lines}
    assert list(figures) == ["test AUC", "test logloss", "samples", "samples/s", "rows of table default"]
    assert 0.8 < float(figures["test AUC"]) < 1
    assert figures["samples"] == "6,000"
    assert figures["rows of table default"] == "70"
    assert page == "runs/small/report.html"
    assert Path(page).read_text().startswith("<!doctype html>")
    assert "run runs/small\n" in done.stderr
    assert "test  AUC 0." in done.stderr


def test_a_trained_run_learns_on_from_new_files(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path)
    write_csv(tmp_path / "april.csv", clicks(500, seed=3)[0])
    assert hotrow("train", config, "--set", "run.epochs=1").exit_code == 0
    refused = hotrow("train", config, "--resume", "--set", "data.train=april.csv")
    assert refused.exit_code == 2
    assert "with --from runs/small in place of --resume" in refused.stderr
    done = hotrow("train", config, "--from", "small", "--set", "data.train=april.csv", "--set", "run.epochs=1")
    assert done.exit_code == 0, done.stderr
    assert "run runs/small-2, from runs/small (3,000 samples)\n" in done.stderr
    assert re.search(r"^samples +3,500$", done.stdout, re.MULTILINE), done.stdout  # as wide as the fastest rate


def test_a_finished_run_that_is_resumed_says_so_and_shows_no_speed(hotrow: Command, tmp_path: Path) -> None:
    stops = "early_stopping = { patience = 1, least = 0.5 }"  # no gain is large enough: it stops after two epochs
    config = write_data(tmp_path, CONFIG.replace("[model]", 'valid = "test.csv"\n[model]').replace("epochs = 2", stops))
    hotrow("train", config, "--set", "run.epochs=4")
    done = hotrow("train", config, "--set", "run.epochs=9", "--resume")
    assert done.exit_code == 0, done.stderr
    assert "note: the run is finished: early stopping ended it after epoch 2; to train more, raise" in done.stderr
    assert re.search(r"^samples +6,000$", done.stdout, re.MULTILINE), done.stdout
    assert "samples/s" not in done.stdout


def test_figures_that_cannot_be_written_to_a_file_are_printed(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("train", write_data(tmp_path), "--json", "/dev/full", "--set", "run.epochs=1")
    assert done.exit_code == 2
    assert "/dev/full: the figures" in done.stderr
    assert "test AUC" in done.stdout
    assert "report.html" in done.stdout


def test_the_figures_go_to_a_file_with_null_where_nothing_was_measured(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("train", write_data(tmp_path), "--json", "figures.json", "--set", "run.epochs=1")
    figures = json.loads(Path("figures.json").read_text())
    assert done.exit_code == 0, done.stderr
    assert 0.8 < figures["test_auc"] < 1
    assert 0.2 < figures["test_logloss"] < 0.69
    assert figures["samples_per_s"] > 0
    assert figures["samples"] == 3000
    assert figures["valid_auc"] is None
    assert figures["stopped"] == "data ended"
    assert figures["report"] == "runs/small/report.html"


def test_changes_are_kept_with_the_run_and_a_name_that_is_taken_gets_a_number(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path)
    for expected in ("runs/small/report.html", "runs/small-2/report.html"):
        done = hotrow("train", config, "--set", "run.epochs=1", "--set", "run.seed=5")
        assert done.stdout.splitlines()[-1] == expected
    saved = tomllib.loads(Path("runs/small-2/config.toml").read_text())
    assert (saved["run"]["epochs"], saved["run"]["seed"]) == (1, 5)


def test_an_epoch_more_is_trained_by_resume_and_by_nothing_else(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path)
    hotrow("train", config, "--set", "run.epochs=1")
    more = hotrow("train", config, "--resume", "--json", "more.json")
    assert more.exit_code == 0, more.stderr
    assert json.loads(Path("more.json").read_text())["samples"] == 6000
    whole = hotrow("train", config, "--json", "whole.json", "--set", "run.name=whole")
    assert whole.exit_code == 0
    assert [json.loads(Path(name).read_text())["test_logloss"] for name in ("more.json", "whole.json")] == [
        pytest.approx(json.loads(Path("whole.json").read_text())["test_logloss"], abs=1e-6)
    ] * 2


def test_resume_without_a_checkpoint_is_told(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("train", write_data(tmp_path), "--resume")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "hotrow: --resume: there is no checkpoint in runs/small: name another run with --set run."
    )


def interrupt_after(reports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real signal, while the run takes one of its reports."""
    take, seen = RunRecorder.take, []

    def interrupted(recorder: RunRecorder, report: Report) -> None:
        seen.append(report)
        if len(seen) == reports:
            os.kill(os.getpid(), signal.SIGINT)
        take(recorder, report)

    monkeypatch.setattr(RunRecorder, "take", interrupted)


def test_ctrl_c_saves_writes_the_page_and_says_how_to_go_on(
    hotrow: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_data(tmp_path)
    with monkeypatch.context() as patched:
        interrupt_after(2, patched)  # at the end of the first epoch
        done = hotrow("train", config, "--json", "cut.json", "--set", "run.seed=1")
    assert done.exit_code == 130
    assert done.stdout.splitlines()[-1] == "runs/small/report.html"
    assert Path("runs/small/report.html").exists()
    figures = json.loads(Path("cut.json").read_text())
    assert (figures["stopped"], figures["samples"], figures["test_auc"]) == (
        "interrupted",
        3128,
        None,
    )  # the next step was whole
    assert "interrupted: saving what is trained\n" in done.stderr
    told = done.stderr.splitlines()[-1]
    assert told == f"resume with: hotrow train {config} --set run.seed=1 --resume"
    again = hotrow(*told.split()[3:], "--json", "rest.json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(Path("rest.json").read_text())["samples"] == 6000


def test_the_command_to_go_on_names_the_folder_that_the_run_got() -> None:
    told = command(Path("my run.toml"), ["run.epochs=3", "run.name=a"], "a", "a-2", ["--resume"])
    assert told == "hotrow train 'my run.toml' --set run.epochs=3 --set run.name=a-2 --resume"
    assert command(Path("a.toml"), [], "a", "a", ["--day", "next"]) == "hotrow train a.toml --day next"


def test_a_fault_in_the_middle_of_the_data_keeps_what_was_trained(hotrow: Command, tmp_path: Path) -> None:
    text = CONFIG.replace('"train.csv"', '["train.csv", "broken.csv"]').replace("standard", "log1p")
    config = write_data(tmp_path, text)
    write_csv(tmp_path / "broken.csv", [["maybe", "u", "i", "1"]] * 500)
    done = hotrow("train", config)
    assert done.exit_code == 2
    assert "stopped: all that was trained is saved, resume with: hotrow train" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hotrow: ")
    assert "label column 'clicked?' holds text ('maybe')" in done.stderr.splitlines()[-1]
    assert Path("runs/small/checkpoint").is_dir()


FAULTS = {
    "no file": (("none.toml",), "none.toml: there is no such file; `hotrow new DIR` writes one to start from"),
    "an unknown field": (("small.toml", "--set", "run.epoch=1"), "run.epoch=1: there is no such setting; did you mean"),
    "a wrong number": (("small.toml", "--set", "run.global_batch=0"), "run.global_batch=0: Input should be greater"),
    "an unknown model": (("small.toml", "--set", "model=deepmf"), "model='deepmf': there is no such model (did you"),
    "a setting of no model": (("small.toml", "--set", "model.hidden=[3]"), "lr.hidden=[3]: there is no such setting"),
    "a missing column": (("small.toml", "--set", "data.ids=['user']"), "no column 'user' (did you mean user id?); its"),
    "a missing data file": (("small.toml", "--set", "data.test=no.csv"), "no.csv: there is no such file"),
    "an unknown optimizer": (("small.toml", "--set", "dense.optimizer=adma"), "dense.optimizer.name='adma': there is"),
    "an unknown mode": (("small.toml", "--set", "run.mode=gbba"), "there is none of this name (did you mean gba?): "),
    "uneven workers": (("small.toml", "--set", "run.workers=3"), "workers=3: do not divide global_batch=128 evenly"),
    "shards without a cluster": (("small.toml", "--shards", "2"), "--shards 2: is for a cluster, and the engine"),
    "trainers in one process": (("small.toml", "--engine", "local", "--trainers", "2"), "--trainers 2: is for a"),
    "an unknown engine": (("small.toml", "--engine", "rya"), "run.engine={'name': 'rya'}: there is none of this name"),
    "workers beside trainers": (("small.toml", "--engine", "ray", "--trainers", "2", "--set", "run.workers=4"),
                                "workers=4: on ray the trainers are the workers, and there are 2"),
    "a table of nobody": (("small.toml", "--set", "tables.users.dim=3"), "tables.users: no feature names this table"),
    "no folder for figures": (("small.toml", "--json", "no/a.json"), "--json no/a.json: the folder no does not exist"),
    "early stopping by nothing": (("small.toml", "--set", "run.early_stopping={}"), "there is nothing to judge by"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "told"), FAULTS.values(), ids=FAULTS)
def test_faults_are_one_sentence_and_code_2(
    arguments: tuple[str, ...], told: str, hotrow: Command, tmp_path: Path
) -> None:
    write_data(tmp_path)
    done = hotrow("train", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("hotrow: ")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_cluster_is_waited_for_is_told_before_it_is_there() -> None:
    assert isinstance(starting(Local()), nullcontext)
    for settings, told in (
        (Ray(trainers=2, shards=1), "starting 1 shard and 2 trainers on a Ray of its own\n"),
        (Ray(address="auto"), "starting 1 shard and 1 trainer on the Ray at auto\n"),
    ):
        console = Console(file=StringIO(), width=40)
        with starting(settings, console):
            assert console.file.getvalue() == told  # type: ignore[attr-defined]


def test_a_key_of_the_engine_starts_at_the_folder_of_the_config(tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG + '[run.engine]\nname = "ray"\nkey = "mine.key"\n')
    engine = load_config(config).run.engine
    assert isinstance(engine, Ray)
    assert engine.key == tmp_path / "mine.key"


def test_the_options_of_the_engine_are_kept_with_the_run(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path, CONFIG + '[run.engine]\nname = "ray"\nshards = 2\n')
    assert hotrow("train", config, "--engine", "local", "--set", "run.epochs=1").exit_code == 0
    assert tomllib.loads(Path("runs/small/config.toml").read_text())["run"]["engine"] == Local().model_dump()
    started = json.loads(Path("runs/small/events.jsonl").read_text().splitlines()[0])
    assert (started["engine"], started["roles"]) == ("local", None)


def test_bad_toml_is_told_with_its_line(hotrow: Command) -> None:
    Path("bad.toml").write_text("[data]\ntrain = 'a.csv'\nlabel = oops\n")
    assert "bad.toml: invalid TOML: Invalid value (at line 3, column 9)" in hotrow("train", "bad.toml").stderr


def test_nothing_is_made_where_the_data_cannot_be_read(hotrow: Command, tmp_path: Path) -> None:
    config = write_data(tmp_path)
    write_csv(tmp_path / "test.csv", clicks(5, seed=0)[0], labels=False)
    assert hotrow("train", config).exit_code == 2
    assert not Path("runs").exists()


def test_an_own_model_lies_beside_its_config(hotrow: Command, tmp_path: Path) -> None:
    write_data(tmp_path, CONFIG.replace('"lr"', '"own.py:Mine"'))
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\n\n"
        "class Mine(nn.Module):\n"
        "    def __init__(self, shape):\n"
        "        super().__init__()\n"
        "        self.top = nn.Linear(shape.flat + shape.numbers, 1)\n\n"
        "    def forward(self, x):\n"
        "        return self.top(__import__('torch').cat([x.flat, x.numbers], 1)).squeeze(1)\n"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)
    assert hotrow("train", "../small.toml").exit_code == 0
    again = hotrow("evaluate", "--trust")
    assert again.exit_code == 0, again.stderr


def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_checkpoint_before(
    hotrow: Command, tmp_path: Path
) -> None:
    config = write_data(tmp_path, CONFIG.replace("epochs = 2", "epochs = 1"))
    assert hotrow("train", config).exit_code == 0
    saved = checkpoint.peek(Path("runs/small/checkpoint")).counters
    given = ("--resume", "--set", "run.epochs=3", "--set", "dense.optimizer={name='adam', lr=1e38}")
    done = hotrow("train", config, *given)
    assert done.exit_code == 2
    steps = rf"step {saved['step'] + 2}: the loss of batch 1 of epoch 1 is (nan|inf)"
    remedy = r"lower the learning rates, set dense\.clip, or look for extreme numbers in its rows"
    assert re.search(rf"^hotrow: {steps}: {remedy}; run\.not_finite='continue' trains on$", done.stderr, re.M), (
        done.stderr
    )
    assert "stopped: what was trained is not finite, resume from the last checkpoint with: hotrow train" in done.stderr
    assert checkpoint.peek(Path("runs/small/checkpoint")).counters == saved
    went_on = hotrow("train", config, *given, "--set", "run.not_finite=continue")
    assert went_on.exit_code == 0, went_on.stderr
