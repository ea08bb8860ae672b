"""Labels that are texts: which values are positive, what is missing, and the setting a user is shown."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data import ArrowSource, Label, Loader, Schema
from hotrow.data.config import DataConfig, open_data
from hotrow.data.describe import describe
from hotrow.data.labels import label_values, missing_labels
from hotrow.data.libsvm import SCHEMA as LIBSVM
from hotrow.data.libsvm import LibsvmSource
from hotrow.data.parquet import ParquetSource
from hotrow.errors import ConfigError, InputError
from hotrow.spec import SettingsError

INCOME = Label(column="income", positive=">50K")
VALUES = [" >50K", "<=50K", None, ">50K", "", ">50K.", "<=50K "]
EXPECTED = [1.0, 0.0, np.nan, 1.0, np.nan, 0.0, 0.0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(VALUES),
        pa.array(VALUES, pa.large_string()),
        pa.array(VALUES).dictionary_encode(),
        pa.array([None if each is None else each.encode() for each in VALUES], pa.binary()),
    ],
    ids=["string", "large_string", "dictionary", "binary"],
)
def test_a_text_label_is_1_for_the_positive_value_0_for_others_and_missing_where_there_is_none(
    column: pa.Array,
) -> None:
    values, bad = label_values(column, INCOME)
    assert bad is None
    np.testing.assert_array_equal(values, EXPECTED)
    np.testing.assert_array_equal(missing_labels(column, "income"), np.isnan(EXPECTED))


def test_several_values_may_be_positive() -> None:
    values, _ = label_values(pa.array(["a", "b", "c"]), Label(column="y", positive=["a", "c"]))
    assert values.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("column", "positive", "expected"),
    [
        (pa.array([1, 2, None]), 2, [0, 1, np.nan]),
        (pa.array([1.0, 2.0, np.nan]), "2", [0, 1, np.nan]),
        (pa.array([0.1, 0.2], pa.float32()), 0.1, [1, 0]),
        (pa.array([True, False, None]), False, [0, 1, np.nan]),
        (pa.array(["1", "2", "02"]), 2, [0, 1, 0]),  # texts are compared as they stand
    ],
)
def test_positive_compares_numbers_as_numbers(column: pa.Array, positive: object, expected: list[float]) -> None:
    values, _ = label_values(column, Label(column="y", positive=positive))
    np.testing.assert_array_equal(values, expected)


def test_a_text_that_a_column_of_numbers_can_never_hold_is_refused() -> None:
    with pytest.raises(InputError, match=r"label.positive='yes': column 'y' is of int64 and never holds it"):
        label_values(pa.array([1, 0]), Label(column="y", positive="yes"))


def test_a_label_of_lists_is_refused() -> None:
    with pytest.raises(InputError, match=r"column 'y' is of list.*a label must be a number, a boolean or a text"):
        label_values(pa.array([[1]]), Label(column="y", positive="yes"))


def test_a_damaged_dictionary_is_refused_and_not_read_beyond_its_end() -> None:
    damaged = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array(["a"]), safe=False)
    with pytest.raises(InputError, match="names a value that its dictionary does not have"):
        label_values(damaged, Label(column="y", positive="a"))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"at_least": 1, "positive": "a"}, "give one of them"),
        ({"positive": " "}, "an empty text is a missing label"),
        ({"positive": []}, "positive"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(settings: dict[str, object], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        Label(column="y", **settings)


def test_labels_of_one_column_are_all_texts_or_all_numbers() -> None:
    with pytest.raises(ConfigError, match="column 'y' is a label with positive and one without"):
        Schema(label=[Label(column="y", positive="a"), "y"], ids=["u"])


def _write(folder: Path, name: str) -> Path:
    incomes = [["<=50K", " >50K", "<=50K", ""][row % 4] for row in range(40)]
    path = folder / name
    if name.endswith(".csv"):
        path.write_text("user,income\n" + "".join(f"u{row},{income}\n" for row, income in enumerate(incomes)))
    else:
        table = pa.table({"user": [f"u{row}" for row in range(40)], "income": pa.array(incomes).dictionary_encode()})
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_files_with_text_labels_are_read_described_and_their_missing_labels_counted(tmp_path: Path, name: str) -> None:
    config = DataConfig(
        format="csv" if name == "a.csv" else "parquet",
        train=_write(tmp_path, name),
        label={"column": "income", "positive": ">50K"},
        ids=["user"],
        malformed=10,
    )
    source = open_data(config).train
    (batch,) = [batch for _, batch in Loader(source, 100)]
    assert batch.labels is not None
    assert batch.labels[:, 0].tolist() == [0.0, 1.0, 0.0] * 10
    assert source.trouble.malformed == 10
    assert source.trouble.first[0].reason == "income is missing"
    assert describe(source).labels == {"income = >50K": pytest.approx(1 / 3)}


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_text_label_without_the_setting_is_answered_with_its_values_and_the_setting(
    tmp_path: Path, name: str
) -> None:
    kind = "csv" if name == "a.csv" else "parquet"
    config = DataConfig(format=kind, train=_write(tmp_path, name), label="income", ids=["user"])
    with pytest.raises(InputError) as told:
        describe(open_data(config).train)
    expected = "label column 'income' holds text ('<=50K', '>50K'): name the positive value, as "
    assert str(told.value).startswith(expected + 'label = { column = "income", positive = ">50K" }; ')
    assert len(str(told.value)) < 300, "the remedy is not followed by a list of lines"


def test_the_hint_names_five_values_at_most() -> None:
    table = pa.table({"y": [f"v{row}" for row in range(9)], "u": range(9)})
    with pytest.raises(InputError, match=r"holds text \('v0', 'v1', 'v2', 'v3', 'v4'\): name"):
        list(ArrowSource(table, Schema(label="y", ids=["u"])).read())


def test_a_few_texts_among_numbers_are_malformed_and_others_are_kept() -> None:
    table = pa.table({"y": ["1", "x", "0"], "u": range(3)})
    source = ArrowSource(table, Schema(label="y", ids=["u"]))
    assert [batch.num_rows for batch in source.read()] == [2]
    assert source.trouble.malformed == 1


def test_predicting_needs_no_text_label() -> None:
    schema = Schema(label=INCOME, ids=["u"])
    assert [b.num_rows for b in ArrowSource(pa.table({"u": [1, 2]}), schema, labels=False).read()] == [2]


def test_a_row_group_of_text_labels_is_jumped_over_only_as_far_as_its_rows_count(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": ["a", "", "b", "a"], "u": [1, 2, 3, 4]}), tmp_path / "a.parquet", row_group_size=2)
    source = ParquetSource(tmp_path / "a.parquet", Schema(label=Label(column="y", positive="a"), ids=["u"]), limit=5)
    assert [batch["u"].to_pylist() for batch in source.read(skip=1)] == [[3, 4]]


def test_libsvm_labels_may_be_texts(tmp_path: Path) -> None:
    (tmp_path / "a.libsvm").write_text("spam 1:1\nham 2:1 3:1\n4:1\n")
    schema = LIBSVM.model_copy(update={"label": (Label(column="label", positive="spam"),)})
    source = LibsvmSource(tmp_path / "a.libsvm", schema)
    (batch,) = [batch for _, batch in Loader(source, 10)]
    assert batch.labels is not None
    assert batch.labels[:, 0].tolist() == [1.0, 0.0]
    assert [fault.reason for fault in source.trouble.first] == ["the label is missing"]
    with pytest.raises(InputError, match=r"label column 'label' holds text \('4:1', 'ham', 'spam'\)"):
        list(LibsvmSource(tmp_path / "a.libsvm").read())
