"""What a schema promises about names, features and columns."""

import json
from typing import Any

import pytest

from hotrow.data.schema import Bucket, Ids, Label, Log1p, Number, Plain, Schema, Standard, Time
from hotrow.errors import ConfigError


def test_a_bare_name_stands_for_a_column_with_default_settings() -> None:
    schema = Schema(label="y", numbers=["n"], ids=["i"], time="t")
    assert schema == Schema(
        label=[Label(column="y")], numbers=[Number(column="n")], ids=[Ids(column="i")], time=Time(column="t")
    )
    assert schema.numbers[0].transform == Plain()


def test_a_transform_may_be_a_name_or_settings() -> None:
    numbers: list[Any] = [
        {"column": "a", "transform": "log1p"},
        {"column": "b", "transform": {"name": "standard", "mean": 1.5}},
        {"column": "c", "transform": "bucket"},
    ]
    schema = Schema(label="y", numbers=numbers)
    assert [number.transform for number in schema.numbers] == [Log1p(), Standard(mean=1.5), Bucket()]


def test_name_and_space_of_ids_are_the_columns_unless_given() -> None:
    assert (Ids(column="a").name, Ids(column="a").space) == ("a", "a")
    assert (Ids(column="a", name="b").name, Ids(column="a", name="b").space) == ("b", "b")
    assert (Ids(column="a", name="b", space="c").name, Ids(column="a", name="b", space="c").space) == ("b", "c")


@pytest.mark.parametrize(
    ("settings", "many"),
    [({}, False), ({"separator": "|"}, True), ({"several": True}, True), ({"sequence": 3}, True)],
)
def test_ids_are_many_where_something_says_so(settings: dict[str, Any], many: bool) -> None:
    assert Ids(column="a", **settings).many is many


def test_every_column_is_read_once_in_a_fixed_order() -> None:
    schema = Schema(label=["y", "z"], numbers=["n"], ids=["u", Ids(column="n", name="n_id")], time="t", group="u")
    assert schema.columns == ("y", "z", "n", "u", "t")


def test_numbers_are_dense_or_buckets() -> None:
    flagged = Number(column="b", flag_missing=True)
    schema = Schema(label="y", numbers=["a", flagged, Number(column="c", transform=Bucket(table="t"))])
    assert [number.column for number in schema.dense] == ["a", "b"]
    assert schema.width == 3
    assert schema.bucketed == {"c": Bucket(table="t")}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ids": ["a", "a"]}, "feature 'a' occurs twice"),
        ({"ids": ["a"], "numbers": [{"column": "a", "transform": "bucket"}]}, "feature 'a' occurs twice"),
        ({"numbers": [{"column": "a", "transform": "bucket"}] * 2}, "feature 'a' occurs twice"),
        ({}, "neither ids nor numbers"),
        ({"ids": ["y"]}, "column 'y' is the label and a feature: the model would see the answer"),
        ({"numbers": ["y"]}, "column 'y' is the label and a feature"),
        ({"ids": ["a"], "label": []}, "Schema.label="),
        ({"ids": [{"column": "a", "sequence": 0}]}, "sequence=0"),
        ({"ids": [{"column": "a", "separator": "::"}]}, "separator='::'"),
        ({"numbers": [{"column": "a", "transform": "log"}]}, "there is none of this name"),
        ({"numbers": [{"column": "a", "scale": 2}]}, "scale=2: there is no such setting"),
        ({"numbers": [{"column": "a", "transform": {"name": "bucket", "bounds": [1, 1]}}]}, "each larger than the one"),
        ({"numbers": [{"column": "a", "transform": {"name": "bucket", "bounds": []}}]}, "at least one bound"),
        ({"numbers": [{"column": "a", "transform": {"name": "standard", "deviation": 0}}]}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_told(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Schema(**{"label": "y", **settings})


def test_two_labels_may_read_one_column_and_the_time_may_be_an_id() -> None:
    schema = Schema(label=[Label(column="r", at_least=3), Label(column="r", at_least=5)], ids=["t"], time="t")
    assert schema.columns == ("r", "t")


def test_a_schema_survives_being_written_down() -> None:
    schema = Schema(
        label=Label(column="r", at_least=4),
        numbers=[Number(column="n", transform=Standard(mean=1.0, deviation=2.0))],
        ids=[Ids(column="h", space="item", sequence=5, separator=" ")],
        time=Time(column="t", format="ms"),
    )
    assert Schema(**json.loads(json.dumps(schema.model_dump(mode="json", exclude_none=True)))) == schema
