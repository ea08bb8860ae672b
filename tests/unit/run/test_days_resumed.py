"""A run over days that is continued trains each day once, tests on days it has not seen, and says what it skips."""

from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.run import Run, load_config
from hotrow.trainer import Evaluated, Remark, Report

CONFIG = """
[data]
train = "clicks.csv"
label = "y"
ids = ["user"]
time = "when"
split = {{ by = "days", {split} }}

[model]
name = "lr"

[tables.default]
dim = 1

[run]
folder = "{runs}"
global_batch = 50
torch_threads = 1
threads = 1
tensorboard = false
"""


def write_days(folder: Path, days: range) -> None:
    rng = np.random.default_rng(0)
    users = {day: rng.integers(0, 50, 100) for day in range(1, 20)}
    lines = [f"{user % 2},{user},2024-03-{day:02d}T10:00:00" for day in days for user in users[day]]
    (folder / "clicks.csv").write_text("\n".join(["y,user,when", *lines]) + "\n")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_days(tmp_path, range(1, 8))
    path = tmp_path / "nightly.toml"
    path.write_text(CONFIG.format(split="first = 2024-03-04", runs=tmp_path / "runs"))
    return path


def finish(config: Path, *changes: str, **how: object) -> tuple[Run, list[Report]]:
    with Run(load_config(config, changes), **how) as run:  # type: ignore[arg-type]
        reports = list(run)
    return run, reports


def interrupt_at(run: Run, samples: int) -> None:
    with run:
        for _ in run:
            if run.trainer.samples == samples:
                raise KeyboardInterrupt


def days_in(reports: list[Report]) -> list[str]:
    return [report.day for report in reports if isinstance(report, Evaluated) and report.day is not None]


def notes(reports: list[Report]) -> list[str]:
    return [report.sentence for report in reports if isinstance(report, Remark)]


def test_resume_after_a_single_day_trains_all_later_days_once(config: Path) -> None:
    first, _ = finish(config, day="next")
    assert first.summary["samples"] == 300
    rest, reports = finish(config, resume=True)
    assert rest.summary["samples"] == 600
    assert days_in(reports) == ["2024-03-05", "2024-03-06", "2024-03-07"]
    whole, all_reports = finish(config, "run.name=whole")
    last, same = ([r for r in each if isinstance(r, Evaluated) and r.day][-1] for each in (reports, all_reports))
    assert last.metrics == same.metrics
    assert whole.summary["samples"] == 600
    assert any("leave out 2024-03-04 to 2024-03-04" in note for note in notes(reports))


def test_resume_trains_the_days_that_the_data_have_gained(config: Path) -> None:
    config.write_text(config.read_text().replace("first = 2024-03-04", "last = 4"))
    finish(config)
    write_days(config.parent, range(1, 10))
    more, reports = finish(config, resume=True)
    assert days_in(reports) == ["2024-03-08", "2024-03-09"]
    assert more.summary["samples"] == 800
    (note,) = notes(reports)  # a file that grows day by day is no trouble
    assert note == "the run was resumed: the figures over all days leave out 2024-03-04 to 2024-03-07"


def test_a_resume_without_a_new_day_says_so_and_tests_nothing(config: Path) -> None:
    finish(config)
    again, reports = finish(config, resume=True)
    assert again.summary["samples"] == 600
    assert days_in(reports) == []
    assert "test_auc" not in again.summary
    (note,) = notes(reports)
    assert note.startswith("the run is finished: it was tested on 2024-03-07, the last day in the data")
    night, _ = finish(config, day="next")  # the day that was tested alone is trained
    assert night.summary["samples"] == 700
    _, reports = finish(config, resume=True)
    assert notes(reports)[0].startswith("the run is finished")


def test_a_day_that_skips_others_says_which_and_next_does_not_go_back(config: Path) -> None:
    finish(config, day="next")
    _, reports = finish(config, day="2024-03-06")
    assert notes(reports) == [
        "--day 2024-03-06: 2 days (2024-03-04 to 2024-03-05) are skipped, and --day next continues after 2024-03-06"
    ]
    back, reports = finish(config, day="2024-03-05")  # the day after it is trained: no test for it
    assert days_in(reports) == ["2024-03-05"]
    assert back.summary["samples"] == 500
    _, reports = finish(config, day="next")
    assert days_in(reports) == ["2024-03-07"]
    _, reports = finish(config, "run.name=other", day="2024-03-05")
    assert notes(reports) == [
        "--day 2024-03-05: all rows before 2024-03-05 are skipped, and --day next continues after 2024-03-05"
    ]


def test_a_resume_whose_data_begin_later_says_that_rows_are_left_out(config: Path) -> None:
    finish(config, day="next")
    write_days(config.parent, range(5, 10))
    config.write_text(config.read_text().replace("first = 2024-03-04", "last = 1"))
    _, reports = finish(config, resume=True)
    assert (
        "2024-03-04, the last day of the run so far, is not in the data: training continues with" in notes(reports)[1]
    )


def test_an_interrupt_in_the_test_of_a_day_does_not_train_it_twice(config: Path) -> None:
    run = Run(load_config(config))
    evaluate = run.trainer.evaluate

    def interrupted(*given: object, **more: object) -> Evaluated:
        if more["day"] == "2024-03-05":
            raise KeyboardInterrupt
        return evaluate(*given, **more)  # type: ignore[arg-type]

    run.trainer.evaluate = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), run:
        list(run)
    assert run.summary["samples"] == 400
    rest, reports = finish(config, resume=True)
    assert rest.summary["samples"] == 600
    assert days_in(reports) == ["2024-03-05", "2024-03-06", "2024-03-07"]


def test_a_last_day_that_was_interrupted_is_continued_by_day_next(config: Path) -> None:
    finish(config)
    cut = Run(load_config(config, ["run.checkpoint_every=50"]), day="next")
    cut.trainer._report_every_s = 0
    with pytest.raises(KeyboardInterrupt):
        interrupt_at(cut, 650)
    with pytest.raises(hr.ConfigError, match=r"interrupted in 2024-03-07, which is the last day .* --day next"):
        finish(config, resume=True)
    rest, _ = finish(config, day="next")
    assert rest.summary["samples"] == 700
