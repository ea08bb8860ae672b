"""The story a log tells: resumed runs go on where they were, fresh ones begin anew, odd records do no harm."""

from typing import Any

import pytest

from hotrow.obs.events import Events
from hotrow.obs.report import formatting
from hotrow.obs.report.headline import quality_of, speed_of
from hotrow.obs.report.run import RunRecord, columns, number, tell, text


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": 1.0, "kind": kind, **fields}


def told(*events: dict[str, Any]) -> RunRecord:
    return tell(Events(list(events), unreadable=0))


def samples(records: list[dict[str, Any]]) -> list[int]:
    return [record["samples"] for record in records]


def test_events_are_sorted_by_kind_and_trouble_is_counted() -> None:
    run = tell(
        Events(
            [
                event("start", run="monday"),
                event("progress", samples=1, nonfinite=["loss"]),
                event("malformed", line=3),
                event("warning", text="slow"),
                event("checkpoint", samples=1, path="checkpoint"),
                event("something new"),
                event("end", samples=2),
            ],
            unreadable=4,
        )
    )
    assert (run.name, run.samples, run.nonfinite, run.unreadable) == ("monday", 2, 1, 4)
    assert [len(kept) for kept in (run.progress, run.malformed, run.warnings, run.checkpoints)] == [1, 1, 1, 1]


def test_a_fresh_start_forgets_the_run_before() -> None:
    run = told(event("start", run="a"), event("progress", samples=9), event("end"), event("start", run="b"))
    assert (run.name, run.progress, run.end, run.resumed) == ("b", [], None, 0)


def test_a_resumed_run_takes_back_what_is_trained_again() -> None:
    run = told(
        event("start", run="a", resumed=False),
        *(event("progress", samples=count) for count in (100, 200, 300)),
        event("evaluation", split="valid", samples=300),
        event("end", samples=300, stopped="interrupted"),
        event("start", run="a", resumed=True),
        event("progress", samples=250),
        event("evaluation", split="valid", samples=250),
    )
    assert samples(run.progress) == [100, 200, 250]
    assert samples(run.evaluations) == [250]
    assert run.end is None
    assert run.resumed == 1


def test_evaluations_at_the_same_samples_all_stay() -> None:
    run = told(*(event("evaluation", split=split, samples=7) for split in ("valid", "test")))
    assert samples(run.evaluations) == [7, 7]


def test_a_log_whose_first_start_is_lost_is_still_told() -> None:
    run = told(event("progress", samples=5), event("start", run="a", resumed=True))
    assert (run.name, samples(run.progress)) == ("a", [5])


@pytest.mark.parametrize("value", [None, "3", True, float("inf"), 1e301, 10**400, [1], {"a": 1}])
def test_what_is_no_usable_number_is_none(value: object) -> None:
    assert number({"a": {"b": value}}, "a", "b") is None


def test_numbers_are_found_inside_records_and_lists() -> None:
    assert number({"a": [{"b": 3}]}, "a", 0, "b") == 3
    assert number({"a": [1]}, "a", 1) is None
    assert number([1, 2], "a") is None
    assert number(None, "a") is None
    assert text({"a": "x", "b": ""}, "a") == "x"
    assert text({"a": "x", "b": ""}, "b") is None


def test_columns_leave_out_rows_that_lack_a_number() -> None:
    rows = [{"x": 1, "m": {"y": 2}}, {"x": 3}, {"x": None, "m": {"y": 4}}, 7, {"x": 5, "m": {"y": 6}}]
    assert columns(rows, "x", ("m", "y")) == ([1, 5], [2, 6])
    assert columns([[1, 2, 3], [4, 5]], 0, 1, 2) == ([1], [2], [3])
    assert columns("no list", 0, 1) == ([], [])


def evaluation(split: str, auc: float | None, rows: int, day: int | None = None) -> dict[str, Any]:
    return event("evaluation", split=split, rows=rows, day=day, samples=1, metrics={"auc": auc, "logloss": 0.5})


def test_the_headline_takes_the_last_test_before_any_validation() -> None:
    run = told(evaluation("test", 0.7, 10), evaluation("test", 0.8, 10), evaluation("valid", 0.9, 10))
    quality = quality_of(run)
    assert quality is not None
    assert (quality.split, quality.figures["auc"], quality.days) == ("test", 0.8, 0)


def test_the_headline_of_tested_days_is_their_mean_by_samples() -> None:
    days = [
        evaluation("test", 0.6, 100, day=1),
        evaluation("test", 0.8, 300, day=2),
        evaluation("test", None, 9, day=3),
    ]
    quality = quality_of(told(*days))
    assert quality is not None
    assert quality.figures["auc"] == pytest.approx(0.75)
    assert quality.days == 3


def test_without_evaluation_there_is_no_quality() -> None:
    assert quality_of(told(event("start"))) is None


def test_speed_is_the_run_s_own_at_its_end_and_a_mean_before() -> None:
    reports = [event("progress", samples=1, samples_per_s=rate) for rate in (100, 200)]
    assert speed_of(told(*reports)) == 150
    assert speed_of(told(*reports, event("end", samples_per_s=120))) == 120
    assert speed_of(told()) is None


@pytest.mark.parametrize(
    ("spoken", "expected"),
    [
        (formatting.count(1234567), "1,234,567"),
        (formatting.count(None), formatting.NOTHING),
        (formatting.short(9_999), "9,999"),
        (formatting.short(10_000), "10.0 k"),
        (formatting.short(1_000_000), "1.00 M"),
        (formatting.short(2.5e9), "2.50 G"),
        (formatting.figure(0.98765), "0.9877"),
        (formatting.size(1023), "1,023 B"),
        (formatting.size(1024), "1.0 KiB"),
        (formatting.size(8 * 2**30), "8.0 GiB"),
        (formatting.size(2**70), "1,048,576.0 PiB"),
        (formatting.duration(9.94), "9.9 s"),
        (formatting.duration(10), "10 s"),
        (formatting.duration(60), "1 min"),
        (formatting.duration(723), "12 min 3 s"),
        (formatting.duration(3661), "1 h 1 min"),
        (formatting.duration(90_000), "1 d 1 h"),
        (formatting.date(1_763_208_000), "15 November 2025, 12:00 UTC"),
        (formatting.date(1e18), "date unknown"),
        (formatting.date(None), "date unknown"),
        (formatting.plural(1, "day"), "1 day"),
        (formatting.plural(2, "day"), "2 days"),
        (formatting.short_tick(1023), "1023"),
        (formatting.short_tick(1024), "1k"),
    ],
)
def test_numbers_are_said_as_a_person_reads_them(spoken: str, expected: str) -> None:
    assert spoken == expected
