"""Several pushes as one update are what the float64 references say, id by id; and nobody too late touches anything."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.aggregate import Average, RowGradients, RowPart
from hotrow.modes import GBA
from hotrow.staleness import Cutoff, Histogram, Inverse, Power, Staleness
from oracles.modes import RowPart as OraclePart
from oracles.modes import gba_aggregate

DIM = 3
LR = 0.5
IDS = 6
F64 = NDArray[np.float64]


def client(optimizer: object = None) -> LocalTables:
    made = LocalTables({"t": hr.Table(dim=DIM, optimizer=optimizer or hr.SGD(lr=LR))}, threads=1)
    made.tiers["t"].find_or_init(np.arange(IDS))
    return made


@dataclass(frozen=True)
class Rows:
    """Of all ids: values, optimizer state, versions, last updates."""

    values: NDArray[np.float32]
    state: NDArray[np.float32]
    versions: NDArray[np.uint32]
    last_updates: NDArray[np.uint32]


def rows_of(made: LocalTables) -> Rows:
    (chunk,) = made.tiers["t"].export()
    order = np.argsort(chunk.keys)
    fields = chunk.fields
    return Rows(chunk.values[order], chunk.state[order], fields["version"][order], fields["last_update"][order])


def row_part(
    made: LocalTables,
    gradients: dict[int, F64],
    samples: int = 4,
    token: int = 0,
    factor: float = 1.0,
    versions: NDArray[np.uint32] | None = None,
) -> RowPart:
    keys = np.array(list(gradients), np.int64)
    plan = made.tiers["t"].batch(keys)
    dense = np.array(list(gradients.values()), np.float32).reshape(-1, DIM)
    return RowPart({"t": RowGradients(keys, plan, dense, versions=versions)}, samples, token, factor)


def moved(made: LocalTables, parts: list[RowPart], step: int, **policy: object) -> F64:
    """The gradient that each row was moved by, by plain SGD."""
    before = rows_of(made).values.astype(np.float64)
    made.apply(parts, step=step, samples=0, **policy)  # type: ignore[arg-type]
    return (before - rows_of(made).values) / LR


gradient = st.lists(st.floats(-2, 2, width=32), min_size=DIM, max_size=DIM).map(np.array)
oracle_part = st.fixed_dictionaries(
    {
        "grad": st.dictionaries(st.integers(0, IDS - 1), gradient, min_size=1),
        "samples": st.integers(1, 9),
        "token": st.integers(0, 9),
    }
)


@given(
    st.lists(oracle_part, min_size=1, max_size=5),
    st.dictionaries(st.integers(0, IDS - 1), st.integers(0, 7)),
    st.integers(0, 4),
    st.sampled_from(["batch", "present"]),
    st.booleans(),
)
def test_the_aggregate_of_gba_is_the_references(
    parts: list[OraclePart],
    touched_at: dict[int, int],
    tolerance: int,
    average: Average,
    literal: bool,
) -> None:
    made, step = client(), 8
    for key, when in sorted(touched_at.items(), key=lambda pair: pair[1]):
        made.apply([row_part(made, {key: np.ones(DIM)}, token=when)], step=when, samples=0)
    last_update = {key: when + 1 for key, when in touched_at.items()}
    expected = gba_aggregate(parts, last_update, step, tolerance, average, literal)
    late = GBA(tolerance=tolerance, literal=literal).late
    before = rows_of(made)
    found = moved(
        made, [row_part(made, p["grad"], p["samples"], p["token"]) for p in parts], step, average=average, late=late
    )
    after = rows_of(made)
    for key in range(IDS):
        total = expected.get(key)
        if total is None:  # in no part, or too late in all
            assert (before.values[key] == after.values[key]).all()
            assert before.versions[key] == after.versions[key]
            assert before.last_updates[key] == after.last_updates[key]
        else:
            np.testing.assert_allclose(found[key], total, atol=2e-6)
            assert after.last_updates[key] == step + 1


@pytest.mark.parametrize("average", ["batch", "present"])
def test_parts_are_combined_by_samples(average: Average) -> None:
    made = client()
    one, three = np.full(DIM, 1.0), np.full(DIM, 3.0)
    parts = [row_part(made, {0: one, 1: one}, samples=6), row_part(made, {0: three}, samples=2)]
    found = moved(made, parts, 0, average=average)
    np.testing.assert_allclose(found[0], (6 * 1 + 2 * 3) / 8, atol=1e-6)
    np.testing.assert_allclose(found[1], 6 / 8 if average == "batch" else 1.0, atol=1e-6)


def test_one_part_alone_is_itself() -> None:
    for average in ("batch", "present"):
        made = client()
        found = moved(made, [row_part(made, {2: np.ones(DIM)}, samples=3)], 0, average=average)
        np.testing.assert_allclose(found[2], 1.0, atol=1e-6)


@pytest.mark.parametrize("holders", [1, 3])
def test_a_part_without_rows_of_a_table_still_divides_unless_those_present_do(holders: int) -> None:
    empty = RowPart({}, samples=4, token=0)
    for average, expected in (("batch", holders / (holders + 1)), ("present", 1.0)):
        made = client()
        parts = [row_part(made, {2: np.ones(DIM)}) for _ in range(holders)]
        np.testing.assert_allclose(moved(made, [*parts, empty], 0, average=average)[2], expected, atol=1e-6)


def test_a_factor_is_a_share_of_the_global_batch() -> None:
    made = client()
    np.testing.assert_allclose(moved(made, [row_part(made, {1: np.ones(DIM)}, factor=0.25)], 0)[1], 0.25, atol=1e-6)
    both = [row_part(made, {1: np.ones(DIM)}, factor=0.25), row_part(made, {1: np.ones(DIM)}, factor=0.5)]
    np.testing.assert_allclose(moved(made, both, 0)[1], (0.25 + 0.5) / 2, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("optimizer", [hr.Adam(lr=0.1), hr.Adagrad(lr=0.1), hr.SGD(lr=0.1)])
def test_an_id_whose_parts_are_all_too_late_is_left_untouched(optimizer: object, parts: int) -> None:
    made = client(optimizer)
    made.apply([row_part(made, {0: np.ones(DIM), 1: np.ones(DIM)}, token=7)], step=7, samples=0)
    before = rows_of(made)
    late = Staleness(decay=Cutoff(tolerance=2))
    pushes = [row_part(made, {0: np.ones(DIM), 2: np.ones(DIM)}, token=5) for _ in range(parts)]
    applied = made.apply(pushes, step=8, samples=0, late=late)["t"]
    assert (applied.rows, applied.weightless) == (1, 1)
    after = rows_of(made)
    for name in ("values", "state", "versions", "last_updates"):
        assert (getattr(before, name)[0] == getattr(after, name)[0]).all()  # changed at 8, three after its token
    assert after.versions[2] > before.versions[2]  # nobody touched it since


@pytest.mark.parametrize(("tag", "weight"), [(5, 1.0), (6, 0.0)])
def test_the_tolerance_is_inclusive(tag: int, weight: float) -> None:
    made = client()
    made.apply([row_part(made, {0: np.ones(DIM)}, token=tag - 1)], step=tag - 1, samples=0)
    late = Staleness(decay=Cutoff(tolerance=2))
    found = moved(made, [row_part(made, {0: np.ones(DIM)}, token=3)], 9, late=late)
    np.testing.assert_allclose(found[0], weight, atol=1e-6)


def test_to_the_letter_an_id_is_as_late_as_its_part() -> None:
    late = Staleness(decay=Cutoff(tolerance=2), literal=True)
    made = client()
    assert (moved(made, [row_part(made, {0: np.ones(DIM)}, token=5)], 8, late=late) == 0).all()
    np.testing.assert_allclose(moved(made, [row_part(made, {0: np.ones(DIM)}, token=6)], 8, late=late)[0], 1, atol=1e-6)


def test_by_version_an_id_is_as_late_as_its_row_changed() -> None:
    made = client()
    late = Staleness(decay=Inverse(), by="version")
    pulled = made.tiers["t"].versions(np.array([0, 1]))
    for _ in range(4):
        made.apply([row_part(made, {0: np.ones(DIM)})], step=0, samples=0)
    ones = {0: np.ones(DIM), 1: np.ones(DIM)}
    histogram = Histogram()
    found = moved(made, [row_part(made, ones, token=0, versions=pulled)], 0, late=late, staleness=histogram)
    np.testing.assert_allclose(found[:2, 0], [1 / 4, 1], atol=1e-5)
    assert histogram.counts == {4: 1, 0: 1}


def test_by_version_needs_versions() -> None:
    made = client()
    with pytest.raises(AssertionError, match="versions"):
        made.apply(
            [row_part(made, {0: np.ones(DIM)})], step=0, samples=0, late=Staleness(decay=Inverse(), by="version")
        )


@pytest.mark.parametrize("groups", ["dense", "embedding", "both"])
def test_a_policy_for_dense_alone_leaves_rows(groups: Literal["both", "dense", "embedding"]) -> None:
    made = client()
    made.apply([row_part(made, {0: np.ones(DIM)}, token=3)], step=3, samples=0)
    late = Staleness(decay=Power(reference=1.0), groups=groups)
    found = moved(made, [row_part(made, {0: np.ones(DIM)}, token=0)], 4, late=late)
    np.testing.assert_allclose(found[0], 1.0 if groups == "dense" else 1 / 16, atol=1e-6)


def test_the_histogram_counts_ids_once_whether_they_are_weighed_or_not() -> None:
    for late in (None, Staleness(decay=Cutoff(tolerance=0)), Staleness(decay=Cutoff(tolerance=0), groups="dense")):
        made, histogram = client(), Histogram()
        made.apply([row_part(made, {0: np.ones(DIM)}, token=4)], step=4, samples=0)
        keys = np.array([0, 0, 1])  # id 0 occurs twice
        given = RowGradients(keys, made.tiers["t"].batch(keys), np.ones((3, DIM), np.float32))
        old = RowPart({"t": given}, 4, token=2)
        fresh = row_part(made, {0: np.ones(DIM)}, token=9)
        made.apply([old, fresh], step=6, samples=0, late=late, staleness=histogram)
        assert histogram.counts == {3: 1, 0: 2}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_weighs_nothing_harms_nobody_whatever_it_is(bad: float) -> None:
    made = client()
    made.apply([row_part(made, {0: np.ones(DIM)}, token=7)], step=7, samples=0)
    late = Staleness(decay=Cutoff(tolerance=2))
    parts = [row_part(made, {0: np.full(DIM, bad)}, token=1), row_part(made, {0: np.ones(DIM)}, token=8)]
    before = rows_of(made).values[0]
    applied = made.apply(parts, step=8, samples=0, late=late)["t"]
    assert (applied.rows, applied.refused) == (1, 0)
    np.testing.assert_allclose(before - rows_of(made).values[0], LR / 2, atol=1e-6)


def test_a_bad_gradient_that_counts_is_refused_and_told() -> None:
    made = client()
    parts = [row_part(made, {0: np.full(DIM, np.nan), 1: np.ones(DIM)}), row_part(made, {0: np.ones(DIM)})]
    applied = made.apply(parts, step=0, samples=0)["t"]
    assert (applied.rows, applied.refused) == (1, 1)


@pytest.mark.parametrize("average", ["batch", "present"])
def test_pushes_with_rows_and_weights_of_their_own_join(average: Average) -> None:
    """A mean over bags names rows of gradients and weighs them; a plain part does neither."""
    made = client()
    keys = np.array([0, 1, 0])
    bags = RowGradients(
        keys,
        made.tiers["t"].batch(keys),
        np.array([[2.0] * DIM, [4.0] * DIM], np.float32),
        rows=np.array([0, 0, 1], np.uint32),
        weights=np.array([0.5, 0.5, 1.0], np.float32),
    )
    plain = row_part(made, {1: np.full(DIM, 8.0)}, samples=3)
    found = moved(made, [plain, RowPart({"t": bags}, 1, 0)], 0, average=average)
    np.testing.assert_allclose(found[0], (0.5 * 2 + 4) / (4 if average == "batch" else 1), atol=1e-6)
    np.testing.assert_allclose(found[1], (3 * 8 + 0.5 * 2) / 4, atol=1e-6)


def test_tables_are_updated_one_by_one() -> None:
    tables = {name: hr.Table(dim=DIM, optimizer=hr.SGD(lr=LR)) for name in ("s", "t")}
    made = LocalTables(tables, threads=1)
    keys = np.arange(2)
    plans = {name: made.tiers[name].find_or_init(keys) for name in tables}
    given = {name: RowGradients(keys, plan, np.ones((2, DIM), np.float32)) for name, plan in plans.items()}
    parts = [RowPart({"s": given["s"]}, 1, 0), RowPart(given, 3, 0)]
    before = {name: made.tiers[name].versions(keys) for name in tables}
    applied = made.apply(parts, step=0, samples=4)
    assert {name: each.rows for name, each in applied.items()} == {"s": 2, "t": 2}
    assert all((made.tiers[name].versions(keys) == before[name] + 1).all() for name in tables)
    assert made.samples == 4


def test_what_travels_is_a_key_and_a_gradient_per_distinct_id() -> None:
    made = client()
    keys = np.array([0, 1, 0, 0])
    given = RowGradients(keys, made.tiers["t"].batch(keys), np.ones((4, DIM), np.float32))
    assert given.nbytes == 2 * (8 + 4 * DIM)
