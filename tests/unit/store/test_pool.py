"""Pooling over ragged bags: equal to torch's, forward and backward, with the same bits for every number of threads."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.errors import InputError
from hotrow.store import kernels
from oracles import kernels as slow

DIMS = st.sampled_from([1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 63, 64, 65, 100])
BAGS = st.lists(st.lists(st.integers(0, 6), max_size=9), max_size=9)
ROWS = 7


class Case:
    """Bags over ROWS rows with random values, as lists for the slow twin and as arrays for the kernels."""

    def __init__(self, bags: list[list[int]], dim: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.bags = bags
        self.inverse = np.fromiter(chain(*bags), np.uint32)
        self.offsets = np.cumsum([0, *map(len, bags)], dtype=np.int64)
        self.rows = rng.standard_normal((ROWS, dim), np.float32)
        self.grad_out = rng.standard_normal((len(bags), dim), np.float32)
        self.weights = rng.standard_normal(self.inverse.size, np.float32)
        self.bag_weights = [part.tolist() for part in np.split(self.weights, self.offsets[1:-1])] if bags else []


def close(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=2e-5)


def same_bits(left: NDArray[np.float32], right: NDArray[np.float32]) -> bool:
    return bool(np.array_equal(left.view(np.uint32), right.view(np.uint32)))


@given(BAGS, DIMS, st.sampled_from(["sum", "mean", "weighted"]))
def test_equals_the_slow_twin(bags: list[list[int]], dim: int, kind: str) -> None:
    case = Case(bags, dim)
    mode: Any = "mean" if kind == "mean" else "sum"
    weights, bag_weights = (case.weights, case.bag_weights) if kind == "weighted" else (None, None)
    ids = (case.inverse, case.offsets, weights, mode)
    assert close(kernels.pool(case.rows, *ids), slow.pool(case.rows, bags, bag_weights, mode))
    expected = slow.pool_backward(case.grad_out, bags, bag_weights, mode, ROWS)
    assert close(kernels.pool_backward(case.grad_out, *ids, ROWS), expected)
    found = kernels.pool_weight_gradient(case.grad_out, case.rows, case.inverse, case.offsets)
    assert close(found, slow.pool_weight_gradient(case.grad_out, case.rows, bags))


@pytest.mark.parametrize("kind", ["sum", "mean", "weighted"])
@pytest.mark.parametrize("dim", [1, 16, 20, 64])
def test_equals_torch_forward_and_backward(kind: str, dim: int) -> None:
    mode: Any = "mean" if kind == "mean" else "sum"
    case = Case([[1, 1, 3], [], [0], [], [6, 5, 4, 3, 2, 1, 0, 0]], dim)
    rows = torch.tensor(case.rows, requires_grad=True)
    weights = torch.tensor(case.weights, requires_grad=True) if kind == "weighted" else None
    pooled = torch.nn.functional.embedding_bag(
        torch.from_numpy(case.inverse.astype(np.int64)),
        rows,
        torch.from_numpy(case.offsets),
        mode=mode,
        per_sample_weights=weights,
        include_last_offset=True,
    )
    pooled.backward(torch.from_numpy(case.grad_out))  # type: ignore[no-untyped-call]
    ids = (case.inverse, case.offsets, weights, mode)
    assert close(kernels.pool(rows, *ids), pooled.detach().numpy())
    assert rows.grad is not None
    assert close(kernels.pool_backward(case.grad_out, *ids, ROWS), rows.grad.numpy())
    if weights is not None and weights.grad is not None:
        found = kernels.pool_weight_gradient(case.grad_out, rows, case.inverse, case.offsets)
        assert close(found, weights.grad.numpy())


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bits_do_not_depend_on_the_number_of_threads(mode: Any) -> None:
    rng = np.random.default_rng(3)
    bags = [rng.zipf(1.3, size) % ROWS for size in rng.integers(0, 12, 4000)]
    case = Case([bag.tolist() for bag in bags], 24)
    weights = case.weights if mode == "sum" else None
    ids = (case.inverse, case.offsets, weights, mode)
    pooled = kernels.pool(case.rows, *ids)
    backward = kernels.pool_backward(case.grad_out, *ids, ROWS)
    weight_gradient = kernels.pool_weight_gradient(case.grad_out, case.rows, case.inverse, case.offsets)
    for threads in (2, 3, 8):
        assert same_bits(pooled, kernels.pool(case.rows, *ids, None, threads))
        assert same_bits(backward, kernels.pool_backward(case.grad_out, *ids, ROWS, None, threads))
        found = kernels.pool_weight_gradient(case.grad_out, case.rows, case.inverse, case.offsets, None, threads)
        assert same_bits(weight_gradient, found)


def test_empty_bags_and_unused_rows_are_zeros() -> None:
    case = Case([[], [2], []], 5)
    out = np.full((3, 5), np.nan, np.float32)
    assert kernels.pool(case.rows, case.inverse, case.offsets, out=out) is out
    assert np.array_equal(out[[0, 2]], np.zeros((2, 5)))
    gradient = kernels.pool_backward(case.grad_out, case.inverse, case.offsets, None, "mean", ROWS)
    assert np.array_equal(np.delete(gradient, 2, axis=0), np.zeros((ROWS - 1, 5)))


def i64(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"inverse": np.array([0, 7, 1], np.uint32)}, r"inverse\[1\] is 7: must be below 7"),
    ({"inverse": np.array([0, 1, 1], np.int64)}, "inverse has type int64: must be uint32"),
    ({"offsets": i64(0, 1, 2)}, "offsets end at 2: must end at the number of ids, 3"),
    ({"offsets": i64(1, 2, 3)}, r"offsets\[0\] is 1: must be 0"),
    ({"offsets": i64(0, 4, 3)}, r"offsets\[2\] is 3 after 4: must never fall"),
    ({"offsets": i64()}, "offsets is empty"),
    ({"offsets": i64(0, 1, 3).astype(np.int32)}, "offsets has type int32: must be int64"),
    ({"weights": np.ones(2, np.float32)}, r"weights is \(2,\), expected \(3,\)"),
    ({"weights": np.ones(3, np.float64)}, "weights has type float64"),
    ({"weights": np.ones(3, np.float32), "mode": "mean"}, "mode='mean' takes no weights"),
    ({"mode": "max"}, "mode='max': must be 'sum' or 'mean'"),
    ({"threads": 0}, "threads=0: must be from 1 to 1024"),
]


@pytest.mark.parametrize(("change", "sentence"), FAULTS)
def test_bad_ids_are_refused_and_nothing_is_written(change: dict[str, Any], sentence: str) -> None:
    case = Case([[0], [1, 1]], 4)
    ids: dict[str, Any] = {"inverse": case.inverse, "offsets": case.offsets, "weights": None, "mode": "sum"} | change
    pooled, gradient = np.full((2, 4), 9, np.float32), np.full((ROWS, 4), 9, np.float32)
    with pytest.raises(InputError, match=f"(pool: |^){sentence}"):
        kernels.pool(case.rows, out=pooled, **ids)
    with pytest.raises(InputError, match=f"(pool_backward: |^){sentence}"):
        kernels.pool_backward(case.grad_out, unique=ROWS, out=gradient, **ids)
    assert (pooled == 9).all()
    assert (gradient == 9).all()


def test_bad_rows_and_buffers_are_refused_and_nothing_is_written() -> None:
    case = Case([[0], [1, 1]], 4)
    ids = (case.inverse, case.offsets)
    out = np.full((2, 3), 9, np.float32)
    frozen = np.full((2, 4), 9, np.float32)
    frozen.flags.writeable = False
    for rows, buffer, sentence in [
        (case.rows, out, r"pool: out is \(2, 3\), expected \(2, 4\)"),
        (case.rows, frozen, "pool: out is read-only"),
        (case.rows, case.rows[:2], "pool: out shares memory with an input"),
        (case.rows[:, ::2], out, "pool: rows is not contiguous"),
        (case.rows.astype(np.float64), out, "pool: rows has type float64: must be float32"),
        (case.rows[:, :0].copy(), out, "pool: rows have no columns"),
        (case.rows[0], out, "pool: rows has 1 dimensions, expected 2"),
    ]:
        with pytest.raises(InputError, match=sentence):
            kernels.pool(rows, *ids, out=buffer)
    assert (out == 9).all()
    assert (frozen == 9).all()
    with pytest.raises(InputError, match=r"grad_out is \(3, 4\), expected \(2, 4\)"):
        kernels.pool_backward(np.zeros((3, 4), np.float32), *ids, None, "sum", ROWS)
    with pytest.raises(InputError, match=r"out is \(2,\), expected \(3,\)"):
        kernels.pool_weight_gradient(case.grad_out, case.rows, *ids, np.zeros(2, np.float32))
    with pytest.raises(InputError, match=r"grad_out is \(2, 5\), expected \(2, 4\)"):
        kernels.pool_weight_gradient(np.zeros((2, 5), np.float32), case.rows, *ids)
