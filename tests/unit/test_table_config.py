"""The settings of a row's life: what is accepted, both sides of every bound, and a sentence for what cannot be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow import (
    FTRL,
    SGD,
    Adagrad,
    Adam,
    AtLeast,
    Cache,
    Chance,
    ConfigError,
    Constant,
    DecayedAdagrad,
    RowwiseAdagrad,
    Segment,
    Swap,
    Table,
)
from hotrow.sizes import MOST
from hotrow.store import RamTier


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        Table(**{"dim": 4, **settings})
    return str(refused.value)


def filter_refusal(value: Any, count: int = 3) -> str:
    with pytest.raises(ConfigError) as refused:
        AtLeast(count=count, filter=value)
    return str(refused.value)


def test_a_plain_table_has_no_bounds_at_all() -> None:
    table = Table(dim=4)
    assert (table.capacity, table.eviction, table.expiry, table.admission, table.segment) == (None,) * 5
    assert (table.type, table.default) == ("float32", 0.0)
    assert (table.policy, table.capacity_rows, table.capacity_bytes) == (None, None, None)


# Capacity and eviction


@pytest.mark.parametrize("capacity", [1, 2, MOST, np.int64(7), np.uint64(9)])
def test_capacity_in_rows_is_a_whole_number_from_one(capacity: Any) -> None:
    table = Table(dim=4, capacity=capacity)
    assert (table.capacity_rows, table.capacity_bytes) == (int(capacity), None)
    assert type(table.capacity) is int


@pytest.mark.parametrize("capacity", [0, -1, MOST + 1])
def test_capacity_outside_its_range_is_refused(capacity: int) -> None:
    assert refusal(capacity=capacity).startswith(f"Table.capacity={capacity}: must be from 1 to")


@pytest.mark.parametrize("capacity", [True, False, 1.0, 2.5, float("nan"), [3], {"rows": 3}, b"8GB"])
def test_capacity_that_is_neither_number_nor_text_is_refused(capacity: Any) -> None:
    told = refusal(capacity=capacity)
    assert told.startswith(f"Table.capacity={capacity!r}: must be a whole number, or a size")


@pytest.mark.parametrize("capacity", [10, "1GB"])
def test_a_capacity_without_a_policy_means_lru(capacity: Any) -> None:
    table = Table(dim=4, capacity=capacity)
    assert (table.eviction, table.policy) == (None, "lru")


@pytest.mark.parametrize("eviction", ["lru", "lfu", "refuse"])
def test_the_policy_is_the_one_named(eviction: Any) -> None:
    assert Table(dim=4, capacity=10, eviction=eviction).policy == eviction


@pytest.mark.parametrize("eviction", ["lru", "lfu", "refuse"])
def test_eviction_without_a_capacity_is_refused(eviction: str) -> None:
    told = refusal(eviction=eviction)
    assert (
        told == f"Table.eviction={eviction!r}: there is no capacity to keep: give capacity too, or leave eviction out"
    )


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    told = refusal(capacity=10, eviction="fifo")
    assert told.startswith("Table.eviction='fifo'")
    assert all(name in told for name in ("lru", "lfu", "refuse"))


def test_a_wrong_capacity_is_told_once_and_not_blamed_on_the_policy() -> None:
    told = refusal(capacity=0, eviction="lfu")
    assert "Table.capacity=0" in told
    assert "eviction" not in told


# Expiry


@pytest.mark.parametrize("expiry", [1, 65_536, 65_537, MOST, np.int32(5)])
def test_expiry_is_a_whole_number_of_samples_from_one(expiry: Any) -> None:
    assert Table(dim=4, expiry=expiry).expiry == int(expiry)


@pytest.mark.parametrize("expiry", [0, -1, MOST + 1, True, 1.5, 2.0, "100"])
def test_expiry_that_is_no_such_number_is_refused(expiry: Any) -> None:
    assert refusal(expiry=expiry).startswith(f"Table.expiry={expiry!r}: ")


# Admission


@pytest.mark.parametrize("count", [2, 255, 256, 2**31])
def test_exact_counts_reach_from_two_to_2_31(count: int) -> None:
    assert AtLeast(count=count).filter_bytes is None


@pytest.mark.parametrize("count", [1, 0, -3, 2**31 + 1, True, 2.0, "3", None])
def test_counts_outside_are_refused(count: Any) -> None:
    with pytest.raises(ConfigError, match=r"AtLeast\.count="):
        AtLeast(count=count)


def test_a_count_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"AtLeast\.count is missing"):
        AtLeast(**{})


@pytest.mark.parametrize(("given", "size"), [(64, 64), (65, 65), ("64B", 64), ("1MiB", 2**20), (np.int64(128), 128)])
def test_a_filter_takes_a_number_or_a_text_of_bytes(given: Any, size: int) -> None:
    assert AtLeast(count=3, filter=given).filter_bytes == size


@pytest.mark.parametrize("given", [63, 1, "63B", "0.0639KB"])
def test_a_filter_below_64_bytes_is_refused(given: Any) -> None:
    assert filter_refusal(given) == f"AtLeast.filter={given!r}: must be 64 bytes or more"


@pytest.mark.parametrize("given", [0, -64, True, 64.0, [64]])
def test_a_filter_that_is_no_size_is_refused(given: Any) -> None:
    assert filter_refusal(given).startswith(f"AtLeast.filter={given!r}: must be ")


def test_a_filter_counts_to_255_and_no_further() -> None:
    assert AtLeast(count=255, filter=64).count == 255
    told = filter_refusal(64, count=256)
    assert "counts to 255" in told
    assert "count is 256" in told
    assert "leave filter out" in told


@pytest.mark.parametrize("probability", [5e-324, 0.1, 1 - 2**-53])
def test_a_chance_lies_between_none_and_certainty(probability: float) -> None:
    assert Chance(probability=probability).probability == probability


@pytest.mark.parametrize("probability", [0, 1, -0.1, 1.5, float("nan"), float("inf"), None, "often"])
def test_a_chance_of_none_or_of_certainty_is_refused(probability: Any) -> None:
    with pytest.raises(ConfigError, match=r"Chance\.probability="):
        Chance(probability=probability)


def test_exact_counts_and_a_capacity_in_bytes_do_not_go_together() -> None:
    told = refusal(capacity="1MB", admission=AtLeast(count=3))
    assert told.startswith("Table.admission=")
    assert "capacity='1MB'" in told
    assert "give AtLeast a filter" in told


@pytest.mark.parametrize(
    ("capacity", "admission"),
    [
        (1000, AtLeast(count=3)),
        (1000, AtLeast(count=3, filter="1MB")),
        ("1MB", AtLeast(count=3, filter=999_999)),
        ("1MB", Chance(probability=0.5)),
        (None, AtLeast(count=3)),
    ],
)
def test_the_other_pairs_of_capacity_and_admission_are_accepted(capacity: Any, admission: Any) -> None:
    assert Table(dim=4, capacity=capacity, admission=admission).admission == admission


@pytest.mark.parametrize("size", [1_000_000, 1_000_001, "1MiB"])
def test_a_filter_must_leave_room_for_rows(size: Any) -> None:
    told = refusal(capacity="1MB", admission=AtLeast(count=3, filter=size))
    assert "leaves no room for rows in capacity='1MB'" in told
    assert "smaller filter" in told


# The default row


@pytest.mark.parametrize(
    "settings",
    [
        {"admission": Chance(probability=0.5)},
        {"admission": AtLeast(count=2), "capacity": 5},
        {"capacity": 5, "eviction": "refuse"},
    ],
)
def test_a_default_row_can_be_set_where_keys_are_turned_away(settings: Any) -> None:
    assert Table(dim=4, default=-0.5, **settings).default == -0.5


@pytest.mark.parametrize("settings", [{}, {"capacity": 5}, {"capacity": 5, "eviction": "lfu"}, {"expiry": 5}])
def test_a_default_row_that_no_key_would_get_is_refused(settings: Any) -> None:
    told = refusal(default=0.5, **settings)
    assert told.startswith("Table.default=0.5: no key would ever get it")
    assert "eviction='refuse'" in told
    assert Table(dim=4, default=0.0, **settings).default == 0.0


@pytest.mark.parametrize("default", [1e31, -1e31, float("inf"), float("nan"), "zero"])
def test_a_default_that_no_row_can_hold_is_refused(default: Any) -> None:
    assert refusal(default=default, admission=Chance(probability=0.5)).startswith("Table.default=")
    assert Table(dim=4, default=1e30, admission=Chance(probability=0.5)).default == 1e30


# Row types and segments


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_rows_come_in_three_types(kind: Any) -> None:
    assert Table(dim=4, type=kind).type == kind


@pytest.mark.parametrize("kind", ["float64", "half", "", None, 16])
def test_another_type_is_refused_with_those_there_are(kind: Any) -> None:
    told = refusal(type=kind)
    assert told.startswith(f"Table.type={kind!r}")
    assert "bfloat16" in told


@pytest.mark.parametrize("name", ["r", "r1", "2024-05-01", "A.b_c-d", ".", "..", "x" * 64])
def test_names_of_letters_digits_and_three_marks_fit_a_file_name(name: str) -> None:
    segment = Segment(run=name)
    assert (segment.directory, segment.keep, segment.huge) == (None, False, False)
    assert Table(dim=4, name=name, segment=segment).segment == segment


BAD_NAMES = ["", "x" * 65, "a b", "a/b", "../x", "a\n", "a\0", "ä", "\u0663", "a:b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_other_names_of_runs_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Segment(run=name)
    assert str(refused.value).startswith(f"Segment.run={name!r}: ")
    assert "1 to 64" in str(refused.value)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_table_in_a_segment_needs_a_name_that_fits(name: str) -> None:
    told = refusal(name=name, segment=Segment(run="r1"))
    assert told.startswith("Table.segment=")
    assert repr(name) in told
    assert "name the table" in told
    assert Table(dim=4, name=name).name == name  # without a file any name will do


def test_a_segment_must_name_its_run() -> None:
    with pytest.raises(ConfigError, match=r"Segment\.run is missing"):
        Segment(**{})
    assert "Table.segment.run is missing" in refusal(segment={"directory": "/tmp"})


def test_a_directory_is_a_path() -> None:
    assert Segment(run="r1", directory="/dev/shm").directory == Path("/dev/shm")
    with pytest.raises(ConfigError, match=r"Segment\.directory=3"):
        Segment(run="r1", directory=3)


# As in a file of settings


def test_all_of_it_may_be_written_as_plain_values() -> None:
    table = Table(
        dim=4,
        capacity="1GB",
        admission={"name": "at_least", "count": 3, "filter": "1MiB"},
        segment={"run": "r1", "directory": "/dev/shm", "keep": True},
    )
    assert table.admission == AtLeast(count=3, filter="1MiB")
    assert table.segment == Segment(run="r1", directory=Path("/dev/shm"), keep=True)
    assert Table(dim=4, admission={"name": "chance", "probability": 0.25}).admission == Chance(probability=0.25)


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_table_survives_a_round_trip_through_plain_values(mode: Any) -> None:
    made = Table(
        name="clicks",
        dim=4,
        type="bfloat16",
        optimizer=SGD(lr=1.0),
        init=Constant(value=0.5),
        capacity="1.5GiB",
        eviction="lfu",
        expiry=10**9,
        admission=AtLeast(count=3, filter=4096),
        default=0.25,
        segment=Segment(run="r1", directory=Path("/dev/shm")),
    )
    assert Table(**made.model_dump(mode=mode)) == made
    assert Table.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("settings", "told"),
    {
        "no name": ({"admission": {"count": 3}}, "Table.admission="),
        "unknown": ({"admission": {"name": "never"}}, "at_least"),
        "no group": ({"admission": 3}, "Table.admission=3"),
        "inside": ({"admission": {"name": "at_least", "count": 1}}, "Table.admission.at_least.count=1"),
        "stray": ({"admission": {"name": "chance", "probability": 0.5, "count": 3}}, "no such setting"),
        "segment by name": ({"segment": "r1"}, "Table.segment='r1'"),
        "misspelt": ({"capacty": 3}, "Table.capacty=3: there is no such setting; did you mean capacity?"),
    }.values(),
)  # fmt: skip
def test_faults_in_plain_values_are_told_by_field(settings: Any, told: str) -> None:
    assert told in refusal(**settings)


def test_settings_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        Table(dim=4, capacity=5).capacity = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"admission": 3}, "Table.admission=3: give one of"),
        ({"admission": {"count": 3}}, "dict with its name"),
        ({"admission": {"name": "sometimes"}}, "must be one of 'at_least', 'chance'"),
        ({"segment": "monday"}, "Table.segment='monday': give one of"),
        ({"optimizer": "adagrad"}, "Table.optimizer='adagrad': give one of"),
        ({"optimizer": {"name": "adadelta"}}, "must be one of 'sgd'"),
        ({"dim": True}, "Table.dim=True: must be a whole number"),
        ({"dim": "16"}, "Table.dim='16': must be a whole number"),
    ],
)
def test_settings_of_another_kind_are_told_with_what_to_give(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Table(**{"dim": 4, **settings})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "value", "names"), [(AtLeast, 3, r"count=\.\.\., filter=\.\.\."), (Table, 16, r"dim=\.\.\.")]
)
def test_settings_without_a_name_are_told_with_the_names(spec: Any, value: int, names: str) -> None:
    with pytest.raises(ConfigError, match=rf"{spec.__name__}\({value}\): settings go by name: {names}"):
        spec(value)


def test_a_cache_makes_rows_carry_a_clock() -> None:
    assert not Table(dim=4).keeps_clock
    assert Table(dim=4, cache=Cache(capacity=10)).keeps_clock
    assert "clock" in RamTier(Table(dim=4, cache=Cache(capacity=10))).fields


@pytest.mark.parametrize("optimizer", [SGD(), Adagrad(), RowwiseAdagrad(), Adagrad(swap=Swap(period=5, decay=0.5))])
def test_rows_whose_state_adds_up_can_be_cached(optimizer: Any) -> None:
    assert Table(dim=4, optimizer=optimizer, cache=Cache(capacity="1GB")).cache is not None


@pytest.mark.parametrize("optimizer", [Adam(), FTRL(), DecayedAdagrad()], ids=lambda each: each.name)
def test_a_cache_is_refused_where_the_state_does_not_add_up(optimizer: Any) -> None:
    told = refusal(optimizer=optimizer, cache=Cache(capacity=10))
    assert told.startswith("Table.cache=")
    assert f"the state of {optimizer.name} does not add up: take SGD, Adagrad or RowwiseAdagrad" in told


def test_a_cache_is_refused_where_swap_has_a_floor() -> None:
    told = refusal(optimizer=Adagrad(swap=Swap(period=5, decay=0.5, floor=0.1)), cache=Cache(capacity=10))
    assert "optimizer.swap.floor=0.1 holds for a whole moment" in told


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"capacity": 0}, "Cache.capacity=0"),
        ({"capacity": "many"}, "Cache.capacity='many'"),
        ({}, "Cache.capacity is missing"),
        ({"capacity": 1, "staleness": -1}, "Cache.staleness=-1"),
        ({"capacity": 1, "policy": "fifo"}, "Cache.policy='fifo'"),
        ({"capacity": 1, "clock": "sum"}, "Cache.clock='sum'"),
    ],
)
def test_a_cache_setting_out_of_range_is_refused_by_its_name(settings: Any, named: str) -> None:
    with pytest.raises(ConfigError) as told:
        Cache(**settings)
    assert str(told.value).startswith(named)
