"""A lookup and its push are what torch's embedding functions and their gradients say, for every kind of part."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hotrow as hr
from hotrow.client import LocalTables, inputs_of
from hotrow.client.base import shape_of
from hotrow.data.batch import Batch, FeatureBlock

DIM = 3
LR = 0.5


def client(**tables: hr.Table) -> LocalTables:
    return LocalTables(tables or {"t": hr.Table(dim=DIM, optimizer=hr.SGD(lr=LR))}, threads=1)


def rows_of(made: LocalTables, keys: np.ndarray, table: str = "t") -> torch.Tensor:
    out = torch.empty(len(keys), made.tiers[table].dim)
    made.tiers[table].find(keys, out)
    return out


def batch_of(*parts: FeatureBlock, samples: int) -> Batch:
    return Batch(parts, np.zeros((samples, 0), np.float32), np.zeros((samples, 1), np.float32))


bags = st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=2, max_size=8)


def jagged(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    keys = np.array([key for ids in lists for key in ids], np.int64)
    return keys, np.cumsum([0, *map(len, lists)]).astype(np.int64)


@given(bags, st.sampled_from(["mean", "sum"]), st.integers(0, 100))
def test_all_kinds_of_parts_over_one_table_equal_torch(lists: list[list[int]], pooling: str, seed: int) -> None:
    lists = lists[: len(lists) // 2 * 2]
    samples = len(lists) // 2
    rng = np.random.default_rng(seed)
    ones = rng.integers(0, 6, samples * 2)
    bag_keys, bag_bounds = jagged(lists)  # two features per sample
    sequences = lists[:samples]
    sequence_keys, sequence_bounds = jagged(sequences)
    batch = batch_of(
        FeatureBlock("t", "one", ("a", "b"), ones),
        FeatureBlock("t", "bags", ("c", "d"), bag_keys, bag_bounds, pooling),  # type: ignore[arg-type]
        FeatureBlock("t", "sequence", ("s",), sequence_keys, sequence_bounds),
        samples=samples,
    )
    made = client()
    everyone = np.arange(6)
    made.tiers["t"].find_or_init(everyone)
    weight = rows_of(made, everyone).requires_grad_()
    handle = made.lookup(batch, learn=True)
    x = inputs_of(batch, handle)

    expected_ones = weight[torch.from_numpy(ones)].view(samples, 2, DIM)
    pooled = []
    for ids in lists:
        rows = weight[torch.tensor(ids, dtype=torch.long)]
        total = rows.sum(0) if ids else torch.zeros(DIM)
        pooled.append(total / max(len(ids), 1) if pooling == "mean" else total)
    expected_rows = torch.cat([expected_ones, torch.stack(pooled).view(samples, 2, DIM)], 1)
    torch.testing.assert_close(x.rows, expected_rows)
    assert x.fields == ("a", "b", "c", "d")

    found = x.sequence("s")
    longest = max(map(len, sequences))
    assert found.rows.shape == (samples, longest, DIM)
    padded = [torch.cat([weight[torch.tensor(ids, dtype=torch.long)], torch.zeros(longest - len(ids), DIM)])
              for ids in sequences]  # fmt: skip
    torch.testing.assert_close(found.rows, torch.stack(padded))
    assert found.mask.tolist() == [[place < len(ids) for place in range(longest)] for ids in sequences]

    field_factor = torch.from_numpy(rng.normal(size=(samples, 4, DIM)).astype(np.float32))
    sequence_factor = torch.from_numpy(rng.normal(size=(samples, longest, DIM)).astype(np.float32))
    ((x.rows * field_factor).sum() + (found.rows * sequence_factor).sum()).backward()  # type: ignore[no-untyped-call]
    ((expected_rows * field_factor).sum() + (torch.stack(padded) * sequence_factor).sum()).backward()  # type: ignore[no-untyped-call]
    made.push(handle, step=0, samples=samples)
    assert weight.grad is not None
    torch.testing.assert_close(rows_of(made, everyone), weight.detach() - LR * weight.grad, rtol=1e-5, atol=1e-6)


def test_a_part_that_the_model_ignores_keeps_its_rows() -> None:
    made = client(t=hr.Table(dim=DIM, optimizer=hr.Adam(lr=0.1)))
    batch = batch_of(
        FeatureBlock("t", "one", ("a",), np.array([1, 2])),
        FeatureBlock("t", "sequence", ("s",), np.array([2, 3]), np.array([0, 1, 2])),
        samples=2,
    )
    for step in range(2):  # the second time Adam has a moment that would move rows without a gradient
        handle = made.lookup(batch, learn=True)
        x = inputs_of(batch, handle)
        before = rows_of(made, np.arange(1, 4))
        (x["a"].sum() + (x.sequence("s").rows.sum() if step == 0 else 0)).backward()  # type: ignore[no-untyped-call]
        applied = made.push(handle, step=step, samples=2)["t"]
    moved = (rows_of(made, np.arange(1, 4)) != before).any(1)
    assert moved.tolist() == [True, True, False]
    assert (applied.rows, applied.weightless) == (2, 1)


def test_a_table_that_the_model_ignores_is_left_alone() -> None:
    made = client()
    handle = made.lookup(batch_of(FeatureBlock("t", "one", ("a",), np.array([1])), samples=1), learn=True)
    assert made.push(handle, step=0, samples=1) == {}


def test_evaluation_makes_no_row_and_shows_first_values() -> None:
    made = client()
    batch = batch_of(FeatureBlock("t", "one", ("a",), np.array([5, 6])), samples=2)
    seen = made.lookup(batch, learn=False).outputs[0].rows
    assert len(made.tiers["t"]) == 0
    assert made.absent_ids == 2
    assert not seen.requires_grad
    torch.testing.assert_close(seen, made.lookup(batch, learn=True).outputs[0].rows.detach())


def test_tables_are_told_apart() -> None:
    made = client(u=hr.Table(dim=2), v=hr.Table(dim=4))
    batch = batch_of(
        FeatureBlock("u", "one", ("a",), np.array([5, 6])),
        FeatureBlock("v", "one", ("b", "c"), np.array([5, 6, 7, 8])),
        samples=2,
    )
    x = inputs_of(batch, made.lookup(batch, learn=True))
    assert (x["a"].shape, x["c"].shape, x.flat.shape) == ((2, 2), (2, 4), (2, 10))
    assert shape_of(batch, {"u": 2, "v": 4}).fields == {"a": 2, "b": 4, "c": 4}


def test_a_part_without_its_table_is_told() -> None:
    batch = batch_of(FeatureBlock("other", "one", ("a",), np.array([5])), samples=1)
    with pytest.raises(hr.ConfigError, match="table 'other' of feature 'a' is missing: there are 't'"):
        client().lookup(batch, learn=True)
    with pytest.raises(hr.ConfigError, match="table 'other' of feature 'a' is missing"):
        shape_of(batch, {"t": 3})
