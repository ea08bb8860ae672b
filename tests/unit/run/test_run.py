"""A run leaves its folder whole, goes on from it, and trains day after day."""

import json
import socket
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from torch import nn

import hotrow as hr
from hotrow.obs.events import read_events
from hotrow.run import Run, load_config
from hotrow.run.build import dense_optimizer, tables_of
from hotrow.run.config import Named, as_toml
from hotrow.run.skew import histogram, skew_points
from hotrow.trainer import Evaluated, Progress, Report
from small_run import free_port

SYNTHETIC = """
[data]
format = "synthetic"
rows = 6_000
test_rows = 1_000
ids = 2_000
features = 4
numbers = 2
{more}

[model]
name = "lr"

[tables.default]
dim = 1
optimizer = {{ name = "adagrad", lr = 0.1 }}

[run]
folder = "{runs}"
global_batch = 256
torch_threads = 1
threads = 1
"""


def config_file(folder: Path, more: str = "") -> Path:
    path = folder / "small.toml"
    path.write_text(SYNTHETIC.format(more=more, runs=folder / "runs"))
    return path


def finish(path: Path, *changes: str, **how: object) -> tuple[Run, list[Report]]:
    with Run(load_config(path, changes), **how) as run:  # type: ignore[arg-type]
        reports = list(run)
    return run, reports


def interrupt_at_step(run: Run, step: int) -> None:
    run.trainer._report_every_s = 0
    with run:
        for report in run:
            if isinstance(report, Progress) and report.step == step:
                raise KeyboardInterrupt


def events(run: Run, kind: str) -> list[dict[str, object]]:
    found = read_events(run.folder / "events.jsonl")
    assert found.unreadable == 0
    return [event for event in found.events if event["kind"] == kind]


def test_a_run_leaves_everything_that_was_promised(tmp_path: Path) -> None:
    run, _ = finish(config_file(tmp_path))
    names = {path.name for path in run.folder.iterdir()}
    assert names == {
        "config.toml", "schema.json", "machine.json", "events.jsonl", "evaluation.json", "tables.json", "tensorboard",
        "checkpoint", "report.html",
    }  # fmt: skip
    assert run.page == run.folder / "report.html"
    assert run.summary["samples"] == 6000
    assert run.summary["test_auc"] < run.summary["best_auc"]
    assert run.summary["test_auc"] > 0.6
    (start,) = events(run, "start")
    assert (start["model"], start["tables"], start["samples_expected"]) == ("lr", ["default"], 6000)
    (end,) = events(run, "end")
    assert end["stopped"] == "data ended"
    table = json.loads((run.folder / "tables.json").read_text())["default"]
    assert table["rows"] == run.summary["rows"]["default"]
    assert sum(rows for *_, rows in table["updates"]) == table["rows"]


def test_the_kept_config_gives_the_same_run_again(tmp_path: Path) -> None:
    first, _ = finish(config_file(tmp_path), "run.seed=4")
    kept = load_config(first.folder / "config.toml", ["run.name=again"])
    assert as_toml(kept).replace("again", "small") == (first.folder / "config.toml").read_text()
    with Run(kept) as second:
        list(second)
    assert second.summary["test_auc"] == first.summary["test_auc"]


def test_a_second_run_does_not_write_over_the_first(tmp_path: Path) -> None:
    path = config_file(tmp_path)
    folders = [finish(path)[0].folder.name for _ in range(3)]
    assert folders == ["small", "small-2", "small-3"]


def test_an_interrupted_run_is_saved_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = config_file(tmp_path)
    whole, _ = finish(path, "run.name=whole")
    cut = Run(load_config(path))
    with pytest.raises(KeyboardInterrupt):
        interrupt_at_step(cut, 10)
    assert cut.summary["stopped"] == "interrupted"
    assert cut.summary["samples"] == 2560
    assert cut.page is not None
    assert cut.page.is_file()
    again, _ = finish(path, resume=True)
    assert again.folder == cut.folder
    assert again.summary["samples"] == 6000
    assert again.summary["test_auc"] == whole.summary["test_auc"]
    assert [event["resumed"] for event in events(again, "start")] == [False, True]


def test_resume_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    with pytest.raises(hr.ConfigError, match=r"--resume: there is no checkpoint in .*small"):
        Run(load_config(config_file(tmp_path)), resume=True)
    assert not (tmp_path / "runs").exists(), "a run that cannot start leaves nothing"


def test_checkpoints_come_by_samples(tmp_path: Path) -> None:
    path = config_file(tmp_path)
    with Run(load_config(path, ["run.checkpoint_every=1000"])) as run:
        run.trainer._report_every_s = 0
        for _ in run:
            run._recorder._take_saved(wait=True)  # the next one may be due before it is written
    assert [event["samples"] for event in events(run, "checkpoint")] == [1024, 2048, 3072, 4096, 5120, 6000]


def test_day_after_day_each_day_is_tested_before_it_is_trained(tmp_path: Path) -> None:
    run, reports = finish(config_file(tmp_path, "days = 4\ndrift = 0.2"))
    days = [report for report in reports if isinstance(report, Evaluated) and report.day is not None]
    assert [report.day for report in days] == ["2024-01-02", "2024-01-03", "2024-01-04"]
    assert [report.rows for report in days] == [1500, 1500, 1500]
    assert [report.samples for report in days] == [1500, 3000, 4500]
    together = next(r for r in reports if isinstance(r, Evaluated) and r.day is None)
    assert together.rows == 4500
    losses = [report.metrics["logloss"] for report in days]
    assert together.metrics["logloss"] == pytest.approx(np.mean(losses), abs=1e-6)  # type: ignore[arg-type]
    assert run.summary["samples"] == 4500


def test_replay_trains_so_much_of_the_past_beside_each_day(tmp_path: Path) -> None:
    run, _ = finish(config_file(tmp_path, "days = 4"), "run.replay=2", "run.global_batch=250")
    assert run.summary["samples"] == 4500 + 2 * 3000  # the first day has no past


def test_one_day_at_a_time_is_the_whole_stretch(tmp_path: Path) -> None:
    path = config_file(tmp_path, "days = 5")
    nights = [finish(path, day="next")[0] for _ in range(3)]
    assert [night.folder.name for night in nights] == ["small", "small", "small"]
    assert [night.summary["samples"] for night in nights] == [1200, 2400, 3600]
    named, _ = finish(path, day="2024-01-04")
    assert named.summary["samples"] == 4800
    whole, _ = finish(path, "run.name=whole")
    tested = [event["metrics"] for event in events(whole, "evaluation") if event["day"] is not None]
    found = [event["metrics"] for event in events(named, "evaluation")]
    assert found == tested, "night after night is the same as all at once"
    last, _ = finish(path, day="next")  # there is no day after it: it is tested on before it is trained on
    assert last.summary["samples"] == 6000
    assert last.summary["test_logloss"] == tested[-1]["logloss"]  # type: ignore[index]
    with pytest.raises(hr.ConfigError, match="2024-01-05 is trained and there is no later day"):
        finish(path, day="next")
    with pytest.raises(hr.ConfigError, match="--day 2024-01-03: is trained already"):
        finish(path, day="2024-01-03")
    with pytest.raises(
        hr.ConfigError, match="--day tuesday: there is no such day; days run from 2024-01-02 to 2024-01-05, and"
    ):
        finish(path, day="tuesday")


def test_night_after_night_no_day_is_lost_while_the_data_grow(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def write(days: int) -> None:
        lines = ["y,user,when"]
        for day in range(1, days + 1):
            lines += [f"{user % 2},{user},2024-03-{day:02d}T10:00:00" for user in rng.integers(0, 50, 100)]
        (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")

    data = '[data]\ntrain = "clicks.csv"\nlabel = "y"\nids = ["user"]\ntime = "when"\n'
    split = 'split = { by = "days", last = 3 }\n'
    path = tmp_path / "nightly.toml"
    path.write_text(data + split + "[model]" + SYNTHETIC.partition("[model]")[2].format(runs=tmp_path / "runs"))
    write(7)
    first, _ = finish(path, day="next")
    assert first.summary["samples"] == 400  # all before the last three days
    for night, there in enumerate((8, 9, 9, 9, 9), 1):
        write(there)
        later, _ = finish(path, day="next")
        assert later.summary["samples"] == 400 + 100 * night
        assert later._days.trained[-1] == f"2024-03-{4 + night:02d}"
    assert [event["day"] for event in events(later, "evaluation")] == [
        f"2024-03-{day:02d}" for day in (5, 6, 7, 8, 9, 9)
    ]
    with pytest.raises(hr.ConfigError, match="2024-03-09 is trained and there is no later day"):
        finish(path, day="next")


def test_a_day_that_was_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    path = config_file(tmp_path, "days = 3")
    finish(path, day="next")
    cut = Run(load_config(path), day="next")
    with pytest.raises(KeyboardInterrupt):
        interrupt_at_step(cut, 11)  # eight steps of the first day, three of the second
    assert cut.summary["samples"] == 2000 + 3 * 256
    rest, _ = finish(path, day="next")
    assert rest.summary["samples"] == 4000
    finish(path, "run.name=straight", day="next")
    straight, _ = finish(path, "run.name=straight", day="next")
    assert rest.summary["test_logloss"] == straight.summary["test_logloss"]


def test_a_run_over_days_that_was_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    path = config_file(tmp_path, "days = 4")
    whole, _ = finish(path, "run.name=whole")
    cut = Run(load_config(path))
    with pytest.raises(KeyboardInterrupt):
        interrupt_at_step(cut, 9)  # six steps a day
    rest, _ = finish(path, resume=True)
    assert rest.summary["samples"] == whole.summary["samples"] == 4500
    last = [[event for event in events(run, "evaluation") if event["day"]][-1]["metrics"] for run in (whole, rest)]
    assert last[0] == last[1]
    (told,) = events(rest, "warning")
    assert "leave out 2024-01-02 to 2024-01-02" in str(told["text"])


def test_a_resume_that_is_refused_leaves_the_checkpoint_as_it_was(tmp_path: Path) -> None:
    path = config_file(tmp_path)
    finish(path)
    with pytest.raises(hr.ConfigError, match="batch"):
        finish(path, "run.global_batch=128", resume=True)
    again, _ = finish(path, resume=True)
    assert again.summary["samples"] == 6000, "nothing was left to train"


def test_settings_that_mean_nothing_day_by_day_are_refused(tmp_path: Path) -> None:
    path = config_file(tmp_path, "days = 3")
    for change in ("run.epochs=2", "run.progressive=true", "run.early_stopping={}", "data.valid_rows=10"):
        with pytest.raises(hr.ConfigError, match="has no meaning day by day"):
            finish(path, change)
    plain = config_file(tmp_path)
    with pytest.raises(hr.ConfigError, match=r"run.replay=1: is for runs day by day"):
        finish(plain, "run.replay=1")
    with pytest.raises(hr.ConfigError, match=r"run.early_stopping: there is nothing to judge by"):
        finish(plain, "run.early_stopping={}")
    assert not (tmp_path / "runs").exists()


def test_a_day_of_data_without_days_is_told(tmp_path: Path) -> None:
    with pytest.raises(hr.ConfigError, match="is not read day by day"):
        finish(config_file(tmp_path), day="next")


def rows_of(folder: Path, name: str, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    price, user = rng.normal(mean, 2.0, 500), rng.integers(0, 9, 500)
    lines = [f"{int(p + u > mean + 4)},{u},{p:.4f}" for p, u in zip(price, user, strict=True)]
    (folder / name).write_text("\n".join(["y,user,price", *lines]) + "\n")


def test_a_run_that_goes_on_scales_numbers_as_before_and_keeps_its_columns(tmp_path: Path) -> None:
    rows_of(tmp_path, "day1.csv", mean=5.0, seed=1)
    rows_of(tmp_path, "day2.csv", mean=50.0, seed=2)
    data = """
        [data]
        train = "day1.csv"
        label = "y"
        ids = ["user"]
        numbers = [{ column = "price", transform = "standard" }]
    """
    path = tmp_path / "days.toml"
    path.write_text(data + "[model]" + SYNTHETIC.partition("[model]")[2].format(runs=tmp_path / "runs"))
    first, _ = finish(path)
    again, _ = finish(path, "run.epochs=2", resume=True)
    assert again.data.schema.numbers == first.data.schema.numbers
    onward, _ = finish(path, "data.train=day2.csv", start_from=first.folder)
    assert onward.data.schema.numbers == first.data.schema.numbers
    with pytest.raises(hr.ConfigError, match=r"data: feature 'item': it was trained with no such feature, now it is"):
        finish(path, "data.ids=['user', 'item']", resume=True)
    with pytest.raises(hr.ConfigError, match=r"data: feature 'price \(number\)': it was .*standard.*log1p"):
        finish(path, "data.numbers=[{column='price', transform='log1p'}]", resume=True)


def test_dense_optimizers_go_by_their_name_in_torch() -> None:
    parameters = [nn.Parameter(torch.zeros(1))]
    made = dense_optimizer(Named(name="adamw", settings={"lr": 0.2, "weight_decay": 0.1}), parameters)
    assert type(made).__name__ == "AdamW"
    assert made.param_groups[0]["lr"] == 0.2
    for named, sentence in (
        (
            Named(name="adamm"),
            "dense.optimizer.name='adamm': there is no such optimizer .did you mean adam... there are ",
        ),
        (
            Named(name="adam", settings={"rate": 1}),
            r"dense.optimizer.rate=1: Adam has no such setting, it has lr, betas",
        ),
        (Named(name="adam", settings={"lr": -1}), "dense.optimizer: Adam refuses"),
    ):
        with pytest.raises(hr.ConfigError, match=sentence):
            dense_optimizer(named, parameters)


def test_tables_that_are_not_set_are_like_the_default() -> None:
    schema = hr.data.Schema(label="y", ids=["a", {"column": "b", "table": "items"}])
    given = {"default": hr.Table(dim=4)}
    assert [(t.name, t.dim) for t in tables_of(schema, given).values()] == [("default", 4), ("items", 4)]
    with pytest.raises(hr.ConfigError, match=r"tables.users: no feature names this table, they name default, items"):
        tables_of(schema, {**given, "users": hr.Table(dim=4)})
    with pytest.raises(hr.ConfigError, match=r"tables\.default is missing"):
        tables_of(schema, {"items": hr.Table(dim=4)})


def test_skew_and_histogram_of_updates() -> None:
    counts = np.array([0, 1, 1, 3, 8, 100])
    assert skew_points(counts) == [[1, 100], [2, 8], [3, 3], [4, 1], [6, 0]]  # even on a logarithmic axis
    found = histogram(counts)
    assert found[:4] == [[0, 0, 1], [1, 1, 2], [2, 3, 1], [4, 7, 0]]
    assert found[-1][0] <= 100 <= found[-1][1]
    assert sum(rows for *_, rows in found) == 6


def test_metrics_are_served_on_their_port_while_a_run_goes_on(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with Run(load_config(config_file(tmp_path), [f"run.metrics_port={port}"])) as run:
        for report in run:
            if isinstance(report, Evaluated):
                with urlopen(url) as answer:
                    told = answer.read().decode()
    assert "\nhotrow_train_samples_total 6000.0\n" in told
    assert '\nhotrow_evaluation_rows{split="test"} 1000.0\n' in told
    assert '\nhotrow_table_rows{table="default"} ' in told
    with pytest.raises(URLError):
        urlopen(url)


def test_a_port_that_is_taken_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(hr.ConfigError, match=rf"run.metrics_port={port}: cannot be served .* name another port"):
            Run(load_config(config_file(tmp_path), [f"run.metrics_port={port}"]))
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("port", ["-1", "65536", "9464.5", '"http"'])
def test_what_is_no_port_is_refused_in_a_sentence(tmp_path: Path, port: str) -> None:
    with pytest.raises(hr.ConfigError, match=r"run\.metrics_port"):
        load_config(config_file(tmp_path), [f"run.metrics_port={port}"])


@pytest.mark.parametrize("policy", ["refuse", "lru"])
def test_a_full_table_that_refuses_is_warned_of_once_and_counted(policy: str, tmp_path: Path) -> None:
    full = ("tables.default.capacity=500", f"tables.default.eviction={policy}", "run.epochs=2")
    run, _ = finish(config_file(tmp_path), *full)
    told = [event["text"] for event in events(run, "warning") if "makes no row for new ids" in str(event["text"])]
    if policy == "lru":
        assert not told
        assert "lookups_without_row" not in run.summary
        return
    (text,) = told
    assert str(text).startswith("table 'default': is full with ")
    assert str(text).endswith("so far): raise tables.default.capacity")
    table = json.loads((run.folder / "tables.json").read_text())["default"]
    assert run.summary["lookups_without_row"] == {"default": table["turned_away"]}
    assert run.summary["lookups_without_row"]["default"] > 1000
