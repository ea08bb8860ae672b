"""Batches from columns, compared with a sample-by-sample twin."""

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.data.batch import Batch
from hotrow.data.decode import ROWS_AT_ONCE, Decoder, PartPlan, plan_parts
from hotrow.data.keys import Keyspace
from hotrow.data.schema import Bucket, Ids, Label, Log1p, Number, Schema, Standard, Time
from hotrow.errors import ConfigError, InputError
from oracles import data as slow
from profiles import examples

SCHEMA = Schema(
    label=[Label(column="y"), Label(column="stars", at_least=4)],
    numbers=[
        Number(column="age", transform=Bucket(table="small"), missing=9),
        Number(column="price", transform=Log1p(), missing=-1, flag_missing=True),
        Number(column="height", transform=Standard(mean=170, deviation=10)),
        Number(column="clicks", transform=Bucket(bounds=(0, 1.5, 10))),
        Number(column="price", missing=0.5),
    ],
    ids=[
        Ids(column="user"),
        Ids(column="item", table="items", space="item"),
        Ids(column="history", table="items", space="item", sequence=3, separator="|"),
        Ids(column="tags", separator=" ", pooling="sum"),
        Ids(column="code", text=True),
        Ids(column="seen", several=True),
        Ids(column="liked", several=True),
        Ids(column="alone", table="alone"),
    ],
    time=Time(column="when"),
    group="user",
)
PLANS = (
    PartPlan("small", "one", ("age",)),
    PartPlan("default", "one", ("clicks", "user", "code")),
    PartPlan("default", "bags", ("tags",), "sum"),
    PartPlan("default", "bags", ("seen", "liked"), "mean"),
    PartPlan("items", "one", ("item",)),
    PartPlan("items", "sequence", ("history",)),
    PartPlan("alone", "one", ("alone",)),
)

tokens = st.sampled_from(["a", "b", "7", "-3", "007", "x y"])
maybe = st.none() | tokens | st.just("")
numbers = st.none() | st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 1.5, 2.0, 2.5, 10.0, -7.0])
rows = st.fixed_dictionaries(
    {
        "y": st.sampled_from([0.0, 1.0, 0.25]),
        "stars": st.sampled_from([3.5, 4.0, 5.0]),
        "age": numbers,
        "price": numbers,
        "height": numbers,
        "clicks": numbers,
        "user": maybe,
        "item": st.none() | st.integers(-(2**63), 2**63 - 1),
        "history": st.none() | st.lists(st.sampled_from(["1", "2", "", "x"]), max_size=6).map("|".join),
        "tags": st.none() | st.lists(tokens, max_size=3).map(" ".join),
        "code": maybe,
        "seen": st.none() | st.lists(maybe, max_size=3),
        "liked": st.none() | st.lists(tokens, max_size=3),
        "alone": maybe,
        "when": st.integers(-(10**9), 10**9),
    }
)
KINDS = {
    **dict.fromkeys(("y", "stars", "age", "price", "height", "clicks"), pa.float64()),
    **dict.fromkeys(("user", "history", "tags", "code", "alone"), pa.string()),
    **dict.fromkeys(("seen", "liked"), pa.list_(pa.string())),
    **dict.fromkeys(("item", "when"), pa.int64()),
}


def record(samples: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {name: pa.array([row[name] for row in samples], kind) for name, kind in KINDS.items()}
    )


def bags_of(batch: Batch, place: int) -> list[list[int]]:
    part = batch.parts[place]
    bounds = np.arange(len(part.keys) + 1) if part.bounds is None else part.bounds
    return [part.keys[low:high].tolist() for low, high in pairwise(bounds)]


def test_parts_stand_in_the_order_of_their_tables_first_appearance() -> None:
    assert plan_parts(SCHEMA) == PLANS


@settings(max_examples=examples(40))
@given(st.lists(rows, max_size=12))
def test_a_batch_is_what_each_sample_gives_alone(samples: list[dict[str, Any]]) -> None:
    batch = Decoder(SCHEMA).batch(record(samples))
    assert len(batch) == len(samples)
    for place, plan in enumerate(PLANS):
        part = batch.parts[place]
        assert (part.table, part.kind, part.features, part.pooling) == (
            plan.table,
            plan.kind,
            plan.features,
            plan.pooling,
        )
        one = plan.kind == "one"
        expected = [
            [slow.key_of_one(SCHEMA, name, row)] if one else slow.keys_of_many(SCHEMA, name, row)
            for row in samples
            for name in plan.features
        ]
        assert bags_of(batch, place) == expected
        assert (part.bounds is None) == one
        assert part.keys.dtype == np.int64
    expected_numbers = np.array([slow.numbers_of(SCHEMA, row) for row in samples]).reshape(-1, 4)
    np.testing.assert_allclose(batch.numbers, expected_numbers, rtol=1e-6, atol=1e-37)
    assert batch.numbers.dtype == np.float32
    assert batch.labels is not None
    assert batch.labels.tolist() == [[row["y"], float(row["stars"] >= 4)] for row in samples]
    assert batch.groups is not None
    assert [each % 2**64 for each in batch.groups.tolist()] == [slow.id_of(row["user"]) for row in samples]
    assert batch.times is not None
    assert batch.times.tolist() == [row["when"] for row in samples]
    assert batch.counts == expected_counts(samples)


def expected_counts(samples: list[dict[str, Any]]) -> dict[str, int]:
    ones = ("user", "item", "code", "alone")
    lists = [(row["history"] or "").split("|") if row["history"] else [] for row in samples]
    tags = [(row["tags"] or "").split(" ") if row["tags"] else [] for row in samples]
    several = [each for row in samples for name in ("seen", "liked") for each in row[name] or []]
    missing = sum(row[name] in (None, "") for row in samples for name in ones)
    missing += sum(each in (None, "") for each in (*several, *chain(*lists), *chain(*tags)))
    numbers = ("age", "price", "height", "clicks", "price")
    return {
        "missing_ids": missing,
        "missing_numbers": sum(row[name] is None for row in samples for name in numbers),
        "cut_sequences": sum(sum(each != "" for each in one) > 3 for one in lists),
    }


def test_many_rows_and_columns_keep_their_places() -> None:
    count = 2 * ROWS_AT_ONCE + 5
    ids = [f"c{place}" for place in range(5)]
    columns = {name: np.arange(count) * 10 + place for place, name in enumerate(ids)}
    schema = Schema(label="y", numbers=["n", "m"], ids=ids)
    batch = Decoder(schema).batch(
        pa.RecordBatch.from_pydict({"y": np.ones(count), "n": np.arange(count), "m": -np.arange(count), **columns})
    )
    space = Keyspace(schema)
    matrix = batch.parts[0].keys.reshape(count, 5)
    for place, name in enumerate(ids):
        assert np.array_equal(matrix[:, place] ^ np.uint64(space.salt(name)).view(np.int64), columns[name])
    assert np.array_equal(batch.numbers[:, 1], -np.arange(count))


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 2), pa.list_(pa.large_string())],
)
def test_lists_of_every_kind_are_bags(kind: Any) -> None:
    values = [["a", "b"], None, ["c", "d"]]
    raw = pa.RecordBatch.from_pydict({"y": [1, 0, 1], "t": pa.array(values, kind)}).slice(1)
    part = Decoder(Schema(label="y", ids=[Ids(column="t", several=True)])).batch(raw).parts[0]
    assert part.bounds is not None
    assert part.bounds.tolist() == [0, 0, 2]
    assert [key % 2**64 for key in part.keys.tolist()] == [slow.id_of("c"), slow.id_of("d")]


def test_lists_of_numbers_and_single_values_are_bags_too() -> None:
    schema = Schema(label="y", ids=[Ids(column="t", several=True), Ids(column="s", sequence=2)])
    columns = {"y": [1, 0], "t": pa.array([[5, None, -6], []]), "s": pa.array([7, None])}
    bags, sequence = Decoder(schema).batch(pa.RecordBatch.from_pydict(columns)).parts
    space = Keyspace(schema)
    assert bags.keys.tolist() == space.keys("t", [5, -6]).tolist()
    assert bags.bounds is not None
    assert bags.bounds.tolist() == [0, 2, 2]
    assert sequence.keys.tolist() == space.keys("s", [7]).tolist()
    assert sequence.bounds is not None
    assert sequence.bounds.tolist() == [0, 1, 1]


def test_a_dictionary_of_lists_as_text_is_cut_too() -> None:
    schema = Schema(label="y", ids=[Ids(column="t", separator="|")])
    column = pa.array(["a|b", None, "a|b"]).dictionary_encode()
    part = Decoder(schema).batch(pa.RecordBatch.from_pydict({"y": [1, 1, 1], "t": column})).parts[0]
    assert part.bounds is not None
    assert part.bounds.tolist() == [0, 2, 2, 4]


def test_a_list_where_one_id_is_due_is_told() -> None:
    raw = pa.RecordBatch.from_pydict({"y": [1], "t": pa.array([["a"]])})
    with pytest.raises(InputError, match=r"column 't' is of list.*set several = true"):
        Decoder(Schema(label="y", ids=["t"])).batch(raw)


def test_without_labels_their_columns_may_be_absent() -> None:
    raw = record([]).drop_columns(["y", "stars"])
    assert Decoder(SCHEMA).batch(raw, labels=False).labels is None
    with pytest.raises(InputError, match="data: there is no label column 'y'; its columns are 'age', "):
        Decoder(SCHEMA).batch(raw)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"y": ["1", "x"]}, "column 'y' row 1: 'x' is not a number"),
        ({"y": [1, None]}, "column 'y' row 1: the label is missing"),
        ({"n": ["1", "?"]}, r"column 'n' row 1: '\?' is not a number"),
        ({"b": ["1", "?"]}, r"column 'b' row 1: '\?' is not a number"),
        ({"t": ["60", "?"]}, r"column 't' row 1: '\?' is not a time of format 'auto'"),
    ],
)
def test_what_a_source_would_have_left_out_is_told(change: dict[str, Any], sentence: str) -> None:
    schema = Schema(label="y", numbers=["n", Number(column="b", transform=Bucket())], time="t")
    good: dict[str, Any] = {"y": ["1", "0"], "n": ["1", "2"], "b": ["1", "2"], "t": ["60", "61"]}
    assert len(Decoder(schema).batch(pa.RecordBatch.from_pydict(good))) == 2
    with pytest.raises(InputError, match=sentence):
        Decoder(schema).batch(pa.RecordBatch.from_pydict({**good, **change}))


def test_a_transform_that_is_not_measured_yet_is_told() -> None:
    schema = Schema(label="y", numbers=[Number(column="n", transform=Standard(mean=1.0))])
    with pytest.raises(InputError, match="number 'n': its mean and deviation are not known yet"):
        Decoder(schema).batch(pa.RecordBatch.from_pydict({"y": [1], "n": [1]}))


def test_shape_names_fields_and_sequences_in_the_order_of_the_parts() -> None:
    fields, sequences = Decoder(SCHEMA).shape({"small": 2, "default": 4, "items": 8, "alone": 1})
    names = ["age", "clicks", "user", "code", "tags", "seen", "liked", "item", "alone"]
    assert list(fields) == names
    assert fields == {**dict.fromkeys(names, 4), "age": 2, "item": 8, "alone": 1}
    assert sequences == {"history": 8}
    with pytest.raises(ConfigError, match="there is no table 'items', which features use"):
        Decoder(SCHEMA).shape({"small": 2, "default": 4, "alone": 1})


def test_only_numbers_give_no_parts() -> None:
    batch = Decoder(Schema(label="y", numbers=["n"])).batch(pa.RecordBatch.from_pydict({"y": [1], "n": [2]}))
    assert batch.parts == ()
    assert batch.numbers.tolist() == [[2.0]]
