"""Bars: plain lines now and then where nobody watches, one moving line where somebody does; never standard output."""

import io
from dataclasses import replace
from datetime import date

import pytest
from rich.console import Console

from hotrow.cli import formatting, report_lines
from hotrow.cli.bars import QUIET_S, Bar, waiting
from hotrow.cli.train_bar import TrainBar
from hotrow.data.source import Malformed, Trouble
from hotrow.trainer import Best, EpochEnded, Evaluated, Progress, Remark, Switched, TrainingEnded


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(samples: int, epoch: int = 0, auc: float | None = 0.75, staleness: float | None = None) -> Progress:
    speed = {"samples_per_s": 1000.0, "lr_scale": 1.0, "reading_share": 0.0}
    return Progress(samples, step=1, epoch=epoch, loss=0.5, auc=auc, staleness=staleness, **speed)


def shown(
    total: int | None, epochs: int, *steps: object, terminal: bool = False, width: int = 200, before: int = 0
) -> str:
    """What is printed; a number lets time pass."""
    text, clock = io.StringIO(), Clock()
    console = Console(file=text, force_terminal=terminal, width=width)
    with TrainBar(total, epochs, before=before, console=console, clock=clock) as bar:
        for step in steps:
            if isinstance(step, int | float):
                clock.now += step
            else:
                bar.report(step)  # type: ignore[arg-type]
        bar._bar.refresh()
    return text.getvalue()


def test_plain_lines_come_every_few_seconds_and_not_more_often() -> None:
    text = shown(
        9000, 1, 2, progress(1000), 2, progress(2000), 2, progress(3000), 2, progress(4000), QUIET_S, progress(5000)
    )
    assert text.splitlines() == [
        "3,000 of 9,000 samples  1,000/s  loss 0.5000  AUC 0.7500",
        "5,000 of 9,000 samples  1,000/s  loss 0.5000  AUC 0.7500  11 s left",
    ]
    assert "\r" not in text
    assert "\x1b" not in text


def test_until_the_first_report_a_bar_says_what_it_waits_for() -> None:
    assert "waiting for the first step" in shown(9000, 1, terminal=True)
    assert shown(9000, 1) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_work_without_parts_to_count_says_what_it_is(terminal: bool) -> None:
    text = io.StringIO()
    with waiting("starting [2] shards", Console(file=text, force_terminal=terminal, width=200)):
        pass
    assert "starting [2] shards" in text.getvalue()
    assert ("\x1b" in text.getvalue()) is terminal


def test_without_a_total_there_is_no_time_left_until_an_epoch_has_told_it() -> None:
    first = [QUIET_S, progress(500), QUIET_S, progress(700), QUIET_S, progress(900)]
    text = shown(None, 3, *first, EpochEnded(0, 1000), QUIET_S, progress(1500, epoch=1, auc=None))
    assert text.splitlines()[-2:] == [
        "900 samples  1,000/s  epoch 1/3  loss 0.5000  AUC 0.7500",
        "1,500 of 3,000 samples  1,000/s  epoch 2/3  loss 0.5000  22 s left",
    ]


def test_the_time_left_is_not_told_before_the_speed_is_stable() -> None:
    slow_start = [60, progress(10), 2, progress(2010)]  # the first steps of a run take far longer than all others
    early = shown(100_000, 1, *slow_start, 6, progress(8010))
    assert "left" not in early, "10 s and 3 further reports make an estimate"
    later = shown(100_000, 1, *slow_start, 6, progress(8010), 6, progress(14_010)).splitlines()[-1]
    assert later.endswith("1 min 26 s left"), "at the mean speed since the first report"


def test_a_resumed_run_does_not_take_the_rest_of_an_epoch_for_a_whole_one() -> None:
    text = shown(None, 3, EpochEnded(0, 1000), QUIET_S, progress(1500, epoch=1), before=700)
    assert text.startswith("1,500 samples  1,000/s")


def test_calibration_is_shown_where_there_is_room_and_an_auc_with_the_error_of_its_sketch() -> None:
    report = replace(progress(3000), calibration=1.0203, auc_error=3.1e-5)
    assert report_lines.quality(report) == ["loss 0.5000", "AUC 0.7500 ±3e-05", "calibration 1.0203"]
    assert "calibration" not in shown(9000, 1, report, terminal=True, width=120)
    assert "AUC 0.7500 ±3e-05  calibration 1.0203" in shown(9000, 1, report, terminal=True, width=160)
    found = Evaluated("test", 1, 1, 0, rows=9, metrics={"auc": 0.8, "logloss": 0.4, "auc_2": None}, auc_error=2e-5)
    assert report_lines.evaluation(found) == "test  AUC 0.8000 ±2e-05  logloss 0.4000  AUC of label 2 unknown  9 rows"


def test_more_than_the_total_is_no_negative_time() -> None:
    assert formatting.state("rows", 11, 10, 5.0) == "11 rows  5/s"


def test_evaluations_and_the_end_are_kept_as_they_come() -> None:
    valid = Evaluated("valid", 1000, 1, 1, rows=200, metrics={"auc": 0.8, "logloss": None, "auc_2": 0.6})
    day = Evaluated(
        "test", 1000, 1, 0, rows=5, metrics={"grouped_auc": 0.7, "groups_used": 3.0}, day=str(date(2024, 3, 1))
    )
    best = Best("auc", 0.81234, epoch=0)
    counts = {"malformed_lines": 3, "missing_ids": 0, "refused_gradients": 12_000}
    text = shown(None, 2, valid, day, TrainingEnded(1000, 1, 1.0, 1000.0, "early stopping", best, counts))
    assert text.splitlines() == [
        "valid  epoch 2  AUC 0.8000  logloss unknown  AUC of label 2 0.6000  200 rows",
        "test  day 2024-03-01  grouped AUC 0.7000  5 rows",
        "early stopping: back to the state of epoch 1, with the best valid AUC, 0.8123",
        "counted: 3 malformed lines, 12,000 refused gradients",
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("auc", 0.81234, "AUC 0.8123"),
        ("auc_2", None, "AUC of label 2 unknown"),
        ("normalised_entropy", 1.0, "normalised entropy 1.0000"),
        ("groups_left_out", 1234.0, "groups left out 1,234"),
    ],
)
def test_metrics_have_words_and_digits(name: str, value: float | None, text: str) -> None:
    assert f"{formatting.metric_name(name)} {formatting.metric_value(name, value)}" == text


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"short_steps": 3}, ""),
        ({"short_steps": 4}, "counted: 4 short steps\n"),
        ({"malformed_lines": 1, "losses_not_finite": 1}, "counted: 1 malformed line, 1 loss not finite\n"),
        (
            {
                "cache_hits.user": 9,
                "cache_misses.user": 1,
                "cache_written.user": 4,
                "cache_bytes.user": 1,
                "cache_bytes_saved.user": 3,
            },
            "cache of table user: 90.0% of lookups were hits, 4 rows written back, 75.0% of the bytes saved\n",
        ),
        (
            {"cache_hits.user": 1, "cache_misses.user": 3, "cache_bytes.user": 5, "cache_bytes_saved.user": -1},
            "cache of table user: 25.0% of lookups were hits, 0 rows written back, 25.0% more bytes than without a "
            "cache: raise its capacity or staleness, or leave it out\n",
        ),
        ({"missing_ids": 2}, "counted: 2 missing ids (missing values count again in every epoch)\n"),
    ],
)
def test_the_last_step_of_an_epoch_may_be_short_without_a_word(counts: dict[str, int], text: str) -> None:
    assert shown(None, 1, TrainingEnded(1000, 1, 1.0, 1000.0, "epochs done", None, counts, epochs=3)) == text


def test_the_best_epoch_is_no_way_back_where_it_is_the_last() -> None:
    best = Best("auc", 0.8, epoch=2, restored=False)
    text = shown(None, 1, TrainingEnded(1000, 1, 1.0, 1000.0, "epochs done", best, {}))
    assert text == "epochs done: the best valid AUC, 0.8000, is that of epoch 3, the last\n"


def test_an_end_without_trouble_says_nothing() -> None:
    assert shown(None, 1, TrainingEnded(1000, 1, 1.0, 1000.0, "data ended", None, {"malformed_lines": 0})) == ""


@pytest.mark.parametrize(("width", "count"), [(80, "3 k of 9 k  "), (120, "3,000 of 9,000 samples  ")])
def test_a_terminal_gets_a_bar_that_fits(width: int, count: str) -> None:
    reports = [each for samples in (750, 1500, 2250, 3000) for each in (5, progress(samples))]
    text = shown(9000, 2, *reports, terminal=True, width=width)
    assert f"{count}1" in text
    assert "epoch 1/2  loss 0.5000  AUC 0.7500  40 s left" in text
    assert "…" not in text


def test_several_workers_tell_how_late_their_gradients_are_where_there_is_room() -> None:
    late = progress(3000, staleness=1.234)
    line = shown(9000, 1, QUIET_S, late)
    assert line == "3,000 of 9,000 samples  1,000/s  loss 0.5000  AUC 0.7500  1.23 steps late\n"
    assert "1.23 steps late" in shown(9000, 2, late, terminal=True, width=120)
    narrow = shown(9000, 2, late, terminal=True, width=80)
    assert "late" not in narrow
    assert "…" not in narrow


def test_the_mode_and_its_changes_are_lines_to_keep() -> None:
    text = shown(
        None, 1,
        Remark(0, 0, "async", "async applies 64 samples a step"),
        Switched(4096, 8, "async", "sync", None),
        Switched(8192, 16, "sync", "gba", "to GBA: 350 samples/s predicted, Sync 249 (+40 %)"),
    )  # fmt: skip
    assert text.splitlines() == [
        "note: async applies 64 samples a step",
        "after 4,096 samples switched from async to sync",
        "after 8,192 samples switched from sync to GBA: 350 samples/s predicted, Sync 249 (+40 %)",
    ]


def test_rows_are_counted_at_their_mean_speed() -> None:
    text, clock = io.StringIO(), Clock()
    with Bar("rows", console=Console(file=text, width=200), clock=clock) as bar:
        bar.rows(10)
        clock.now = 10.0
        bar.rows(500, 1000)
    assert text.getvalue() == "500 of 1,000 rows  50/s\n"


def test_brackets_in_a_text_are_no_markup() -> None:
    text = io.StringIO()
    with Bar("rows", console=Console(file=text, width=20)) as bar:
        bar.line("[red]a name[/red] in brackets that is longer than the line")
    assert text.getvalue() == "[red]a name[/red] in brackets that is longer than the line\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (999.6, "1 k"), (1000, "1 k"), (12_345, "12.3 k"), (2_500_000, "2.5 M"), (7e9, "7 G")],
)
def test_magnitudes_have_three_figures(number: float, text: str) -> None:
    assert formatting.magnitude(number) == text


def test_lines_that_were_left_out_are_told_with_the_first() -> None:
    trouble = Trouble()
    trouble.note("a.csv", 9, [Malformed("a.csv", 3, "is no number", "x,y"), Malformed("a.csv", 7, "is no number", "z")])
    assert (
        formatting.left_out(trouble) == "2 malformed lines were left out; the first: a.csv line 3: is no number ('x,y')"
    )
