"""Numbers and times of columns of every type, and which rows hold neither."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.columns import Columns, checked
from hotrow.data.numbers import LARGEST, numbers
from hotrow.data.schema import Number, Schema, Time
from hotrow.data.times import LAST_SECOND, times
from hotrow.errors import InputError

NAN = float("nan")


def read_numbers(values: list[Any], kind: Any = None) -> tuple[list[float], list[int]]:
    """Values, and the rows that hold none."""
    found, bad = numbers(pa.array(values, kind), "x")
    return found.tolist(), [] if bad is None else np.flatnonzero(bad).tolist()


def read_times(values: list[Any], form: str = "auto", kind: Any = None) -> tuple[list[int], list[int]]:
    found, bad = times(pa.array(values, kind), Time(column="t", format=form))
    return found.tolist(), [] if bad is None else np.flatnonzero(bad).tolist()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", "-2.5", "1e3", ".5", "+7"], pa.string(), [1, -2.5, 1000, 0.5, 7]),
        (["1"], pa.large_string(), [1]),
        (["1"], pa.binary(), [1]),
        ([1, 0, 255], pa.uint8(), [1, 0, 255]),
        ([2**62], pa.int64(), [float(2**62)]),
        ([1.5], pa.float32(), [1.5]),
        ([1.5], pa.float16(), [1.5]),
        ([True, False], pa.bool_(), [1, 0]),
        ([Decimal("1.25")], pa.decimal128(5, 2), [1.25]),
        ([" 1", "2 ", "True", "false", "FALSE"], pa.string(), [1, 2, 1, 0, 0]),
    ],
)
def test_numbers_of_every_type(values: list[Any], kind: Any, expected: list[float]) -> None:
    assert read_numbers(values, kind) == (expected, [])


@pytest.mark.parametrize("values", [["1", None], ["1", ""], ["1", " "], [1, None], [1.0, NAN], ["1", "nan"]])
def test_nothing_and_nan_are_missing_and_no_fault(values: list[Any]) -> None:
    found, bad = read_numbers(values)
    assert found[0] == 1
    assert np.isnan(found[1])
    assert bad == []


def test_a_column_of_nulls_and_a_dictionary_are_numbers_too() -> None:
    assert np.isnan(read_numbers([None, None], pa.null())[0]).all()
    encoded = pa.array(["1", "x", None, "1"]).dictionary_encode()
    found, bad = numbers(encoded, "x")
    assert found[[0, 3]].tolist() == [1, 1]
    assert bad is not None
    assert bad.tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    "text", ["x", "1,5", "0x10", "1_0", "--1", "1 2", "inf", "-Infinity", "1e39", "½", "1e", "tru"]
)
def test_what_is_no_number_that_float32_holds_is_a_fault(text: str) -> None:
    assert read_numbers(["1", text, "2"])[1] == [1]


def test_the_largest_float32_is_a_number_and_the_next_is_none() -> None:
    beyond = float(np.nextafter(LARGEST, np.inf))
    assert read_numbers([LARGEST, -LARGEST, beyond, -beyond])[1] == [2, 3]


number_texts = st.floats(-1e30, 1e30).map(repr) | st.integers(-(10**20), 10**20).map(str)


@given(st.lists(number_texts | st.sampled_from(["x", "", "1.5.2", "-", "e5", "nan", "7 "]) | st.none(), max_size=40))
def test_searching_the_fault_gives_what_reading_each_text_alone_gives(texts: list[str | None]) -> None:
    found, bad = read_numbers(texts, pa.string())
    alone = [read_numbers([text], pa.string()) for text in texts]
    assert np.array_equal(found, [each[0] for each, _ in alone], equal_nan=True)
    assert bad == [row for row, (_, fault) in enumerate(alone) if fault]
    for text, value in zip(texts, found, strict=True):
        if text not in (None, "x", "", "1.5.2", "-", "e5", "nan"):
            assert value == float(str(text))


def test_a_column_that_can_hold_no_number_is_told() -> None:
    with pytest.raises(InputError, match=r"column 'x' is of timestamp.*: a number or label must be a number"):
        numbers(pa.array([datetime(2020, 1, 1)]), "x")


MOMENT = datetime(2017, 11, 6, 14, 32, 21, tzinfo=UTC)
SECONDS = int(MOMENT.timestamp())


@pytest.mark.parametrize(
    ("value", "form", "kind"),
    [
        (SECONDS, "auto", pa.int64()),
        (SECONDS, "s", pa.int32()),
        (SECONDS + 0.75, "auto", pa.float64()),
        (SECONDS * 1000 + 999, "ms", pa.int64()),
        (str(SECONDS), "auto", pa.string()),
        (f"{SECONDS}.5", "auto", pa.string()),
        (str(SECONDS), "s", pa.string()),
        (f"{SECONDS}999", "ms", pa.string()),
        ("2017-11-06 14:32:21", "auto", pa.string()),
        ("2017-11-06T14:32:21.25", "auto", pa.string()),
        ("2017-11-06T14:32:21Z", "auto", pa.string()),
        ("2017-11-06T15:32:21+01:00", "auto", pa.string()),
        ("06.11.2017 14h32m21", "%d.%m.%Y %Hh%Mm%S", pa.string()),
        ("06.11.2017 15:32:21.5 +0100", "%d.%m.%Y %H:%M:%S.%f %z", pa.string()),
        (MOMENT, "auto", pa.timestamp("s", "UTC")),
        (MOMENT.replace(tzinfo=None), "auto", pa.timestamp("ms")),
        (MOMENT.replace(tzinfo=None), "%y", pa.timestamp("us")),
        (MOMENT.replace(tzinfo=None), "s", pa.timestamp("ns")),
    ],
)
def test_times_in_every_form(value: Any, form: str, kind: Any) -> None:
    assert read_times([value], form, kind) == ([SECONDS], [])


def test_dates_begin_at_midnight_and_times_before_1970_are_rounded_down() -> None:
    assert read_times([date(1970, 1, 2)], kind=pa.date32()) == ([86400], [])
    assert read_times([date(1970, 1, 2)], kind=pa.date64()) == ([86400], [])
    assert read_times(["1970-01-02"]) == ([86400], [])
    assert read_times(["-0.5"]) == ([-1], [])
    assert read_times(["1969-12-31 23:59:59.5"]) == ([-1], [])


def test_one_column_may_mix_the_forms_of_auto() -> None:
    texts = ["2017-11-06", "x", "2017-11-06 01:00:00+01:00", "60", None, "2017-02-31", "1.5e3"]
    found, bad = read_times(texts)
    assert bad == [1, 4, 5, 6]
    assert [found[row] for row in (0, 2, 3)] == [1509926400, 1509926400, 60]


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["14102100", "141x", "", "14102125", "14023100"], "%y%m%d%H"),
        (["1", "x", "", "nan", "1e300"], "s"),
        ([1.0, NAN, None, 1e300, -1e300], "s"),
    ],
)
def test_only_what_is_a_time_is_read(values: list[Any], form: str) -> None:
    assert read_times(values, form)[1] == [1, 2, 3, 4]


def test_the_calendar_ends_after_the_year_9999() -> None:
    assert read_times([LAST_SECOND, LAST_SECOND + 1])[1] == [1]
    assert read_times([LAST_SECOND * 1000 + 999, LAST_SECOND * 1000 + 1000], "ms")[1] == [1]
    assert read_times(["0001-01-01 00:00:00"])[1] == []
    assert read_times([-62135596801])[1] == [0]


def test_numbers_cannot_be_read_by_a_format_of_texts() -> None:
    with pytest.raises(InputError, match="time column 't' is of int64: format '%Y' reads texts only"):
        read_times([2017], "%Y")


SCHEMA = Schema(label="y", numbers=["n", Number(column="i", missing=3)], ids=["i", "u"], time="t", group="g")


def test_columns_of_a_schema_and_without_its_label() -> None:
    columns = Columns.of(SCHEMA)
    assert columns.names == ("y", "n", "i", "u", "t", "g")
    assert columns.numeric == {"y", "n"}
    assert columns.demanding == ("y", "n", "i", "t")
    without = Columns.of(SCHEMA, labels=False)
    assert without.names == ("n", "i", "u", "t", "g")
    assert without.demanding == ("n", "i", "t")


def test_a_label_column_that_is_also_the_group_is_read_without_labels_too() -> None:
    assert Columns.of(Schema(label="y", ids=["a"], group="y"), labels=False).names == ("y", "a")


def test_checked_gives_good_rows_with_numbers_and_times_and_names_the_others() -> None:
    raw = pa.RecordBatch.from_pydict(
        {
            "y": ["1", "", "0", "x", "1", "0"],
            "n": ["1.5", "2", None, "3", "n", "4"],
            "i": ["7", "7", "8", "9", "9", "z"],
            "u": ["a", "b", "c", "d", "e", "f"],
            "t": ["60", "61", "62", "63", "64", "65"],
            "g": ["g"] * 6,
        }
    )
    good, faults = checked(raw, Columns.of(SCHEMA))
    assert {row: fault.reason for row, fault in faults.items()} == {
        1: "y is missing",
        3: "y 'x' is no number",
        4: "n 'n' is no number",
        5: "i 'z' is no number",
    }
    assert faults[3].wrong_type == ("label", "y", "x")  # a text where a label should be a number
    assert faults[4].wrong_type == ("number", "n", "n")
    assert faults[1].wrong_type is None
    assert good["y"].to_pylist() == [1.0, 0.0]
    assert good["n"].type == pa.float64()
    assert good["n"][0].as_py() == 1.5
    assert good["n"][1].as_py() is None
    assert good["i"].to_pylist() == ["7", "8"]  # it is an id as well: handed on as it was
    assert good["t"].cast(pa.int64()).to_pylist() == [60, 62]


def test_a_time_that_cannot_be_read_is_named_with_its_format() -> None:
    raw = pa.RecordBatch.from_pydict({"y": [1, 1], "a": [1, 2], "t": ["0101", "oops"]})
    schema = Schema(label="y", ids=["a"], time=Time(column="t", format="%m%d"))
    (fault,) = checked(raw, Columns.of(schema))[1].values()
    assert fault.reason == "t 'oops' cannot be read as a time (format '%m%d')"
