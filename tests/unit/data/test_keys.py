"""Ids of columns of every type, and the keys of features."""

from datetime import date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.keys import MISSING, Keyspace, column_ids
from hotrow.data.schema import Bucket, Ids, Number, Schema
from hotrow.data.transforms import bucket_ids
from hotrow.errors import InputError
from hotrow.store import kernels
from oracles import data as slow
from oracles.kernels import hash_bytes

SCHEMA = Schema(
    label="y",
    numbers=[Number(column="age", transform=Bucket())],
    ids=[
        "user",
        Ids(column="item", space="thing"),
        Ids(column="last", space="thing", text=True),
        Ids(column="x", table="own"),
    ],
)
SPACE = Keyspace(SCHEMA)


def test_missing_is_the_hash_of_the_empty_text_for_ever() -> None:
    assert MISSING == 0xEF46DB3751D8E999 == slow.MISSING
    assert kernels.hash_strings(pa.array([""])).hashes[0] == MISSING


def test_a_table_with_several_spaces_salts_them_and_one_alone_does_not() -> None:
    assert SPACE.spaces("default") == ("age", "user", "thing")
    assert SPACE.spaces("own") == ("x",)
    assert SPACE.salt("x") == 0
    assert SPACE.salt("user") == hash_bytes(b"user")
    assert SPACE.salt("item") == SPACE.salt("last") == hash_bytes(b"thing")


def test_keys_of_a_users_own_ids() -> None:
    assert SPACE.keys("x", [5, -6, None]).tolist() == [5, -6, MISSING - 2**64]
    assert SPACE.keys("x", ["5", "abc", ""]).tolist() == [5, slow.signed(hash_bytes(b"abc")), MISSING - 2**64]
    assert SPACE.keys("user", np.array([7])).tolist() == [slow.signed(7 ^ SPACE.salt("user"))]
    assert SPACE.keys("item", ["7"]).tolist() == SPACE.keys("item", pa.array([7], pa.uint8())).tolist()
    assert SPACE.keys("last", ["7"]).tolist() == SPACE.keys("last", [7]).tolist() != SPACE.keys("item", [7]).tolist()
    assert SPACE.keys("age", [30, None]).tolist() == [
        slow.signed(slow.bucket_of(30, Bucket()) ^ SPACE.salt("age")),
        slow.signed(MISSING ^ SPACE.salt("age")),
    ]


def test_a_feature_that_is_not_there_is_told() -> None:
    with pytest.raises(InputError, match="feature 'nobody': there is none; features are 'age', 'user', 'item'"):
        SPACE.keys("nobody", [1])


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, -1], pa.int8(), [1, MISSING, 2**64 - 1]),
        ([1, None, 2**63], pa.uint64(), [1, MISSING, 2**63]),
        ([True, None, False], pa.bool_(), [1, MISSING, 0]),
        ([3.0, None, float("nan")], pa.float64(), [3, MISSING, MISSING]),
        ([3.0], pa.float32(), [3]),
        (["3", None, ""], pa.large_string(), [3, MISSING, MISSING]),
        ([b"3", None, b""], pa.binary(), [3, MISSING, MISSING]),
        (["3"], pa.string_view(), [3]),
        ([b"3"], pa.binary(1), [3]),
        ([None], pa.null(), [MISSING]),
        ([date(1970, 1, 3)], pa.date32(), [2]),
        ([datetime(1970, 1, 1, 0, 1)], pa.timestamp("s"), [60]),
        ([time(0, 1)], pa.time32("s"), [60]),
    ],
)
def test_ids_of_every_type(values: list[Any], kind: Any, expected: list[int]) -> None:
    assert column_ids(pa.array(values, kind), "a").tolist() == expected


def test_dictionaries_give_the_ids_of_their_values() -> None:
    column = pa.array(["7", "x", None, "7", ""]).dictionary_encode()
    assert column_ids(column, "a").tolist() == [7, hash_bytes(b"x"), MISSING, 7, MISSING]
    assert column_ids(column[1:3], "a").tolist() == [hash_bytes(b"x"), MISSING]
    numbers = pa.array([5, None, 5]).dictionary_encode()
    assert column_ids(numbers, "a").tolist() == [5, MISSING, 5]


def test_as_text_numbers_are_hashed_as_they_are_written() -> None:
    expected = [hash_bytes(b"7"), MISSING]
    for column in (pa.array(["7", None]), pa.array([7, None]), pa.array([7.0, None]), pa.array([7, None], pa.uint8())):
        assert column_ids(column, "a", text=True).tolist() == expected


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), st.integers(0, 3))
def test_integers_and_their_texts_are_the_same_ids(values: list[int | None], start: int) -> None:
    column = pa.array(values, pa.int64())[start:]
    assert column_ids(column, "a").tolist() == column_ids(column.cast(pa.string()), "a").tolist()


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([1.0, 0.5]), "column 'a' holds 0.5: an id must be a whole number; is this a number column"),
        (pa.array([2.0**54]), "column 'a' holds 1.8"),
        (pa.array([[1]]), "set several = true"),
        (pa.array([{"b": 1}]), "column 'a' is of struct<b: int64>: ids must be whole numbers, texts"),
    ],
)
def test_what_cannot_be_an_id_is_told(column: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        column_ids(column, "a")


@given(st.lists(st.floats(-1e15, 1e15)))
def test_buckets_without_bounds_equal_their_formula(values: list[float]) -> None:
    found = bucket_ids(np.array(values, np.float64), None).tolist()
    assert [each % 2**64 for each in found] == [slow.bucket_of(value, Bucket()) for value in values]


def test_buckets_keep_small_numbers_apart_from_the_others() -> None:
    assert bucket_ids(np.array([-1.5, 0, 1, 2, 2.1, 3, 20, 1e6]), None).tolist() == [-2, 0, 1, 2, 3, 4, 11, 193]
    assert bucket_ids(np.array([-1e300]), None).tolist() == [-(2**62)]


def test_a_bucket_holds_its_lower_bound() -> None:
    assert bucket_ids(np.array([-1, 0, 0.99, 1, 5, 7]), (0.0, 1.0, 5.0)).tolist() == [0, 1, 1, 2, 3, 3]
