"""Vectors and sums that the kernels make of a batch are those of `client.pooling`, for every kind of part."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.client.base import FeatureVectors
from hotrow.client.device_pooling import DevicePooling, on_device, pooled_rows
from hotrow.client.pooling import folded, shares_of, spread
from hotrow.data.batch import FeatureBlock
from hotrow.kernels.unique import UniqueKeys, unique

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM, SAMPLES, IDS = 3, 4, 9

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes


def part_of(kind: str, rng: np.random.Generator) -> FeatureBlock:
    if kind == "one":
        return FeatureBlock("t", "one", ("a", "b"), rng.integers(0, IDS, SAMPLES * 2))
    wide = 1 if kind == "sequence" else 2
    bounds = np.cumsum([0, *rng.integers(0, 4, SAMPLES * wide)])
    keys = rng.integers(0, IDS, bounds[-1])
    if kind == "sequence":
        return FeatureBlock("t", "sequence", (f"s{rng.integers(1 << 30)}",), keys, bounds)
    return FeatureBlock("t", "bags", ("c", "d"), keys, bounds, kind)  # type: ignore[arg-type]


class Both:
    """One table of one batch, on the host and on the device."""

    def __init__(self, parts: Sequence[FeatureBlock], seed: int) -> None:
        self.parts = parts
        keys = np.concatenate([part.keys for part in parts])
        self.distinct, inverse = np.unique(keys, return_inverse=True)
        self.inverse = inverse.astype(np.uint32)
        self.rows = np.random.default_rng(seed).normal(size=(len(self.distinct), DIM)).astype(np.float32)
        with_bounds = [part.bounds for part in parts if part.bounds is not None]
        ids, *bounds = on_device([keys, *with_bounds], DEVICE)
        there = iter(bounds)
        self.unique: UniqueKeys = unique(ids)
        moved = [None if part.bounds is None else next(there) for part in parts]
        self.pooling = DevicePooling(parts, SAMPLES, moved, DEVICE)
        self.order = torch.searchsorted(torch.tensor(self.distinct), self.keys())

    def keys(self) -> torch.Tensor:
        return self.unique.keys[: len(self.distinct)].cpu()

    def on_host(self, *, learn: bool = True) -> list[FeatureVectors]:
        which = shares_of(self.inverse, self.parts)
        made = [spread(part, self.rows, mine, SAMPLES, 1) for part, mine in zip(self.parts, which, strict=True)]
        for each in made:
            each.rows.requires_grad_(learn)
        return made

    def on_device(self, *, learn: bool = True) -> list[FeatureVectors]:
        rows = torch.tensor(self.rows)[self.order].to(DEVICE)
        return self.pooling.vectors(pooled_rows(rows, self.unique.inverse), learn=learn)


def set_gradients(outputs: Sequence[FeatureVectors], used: Sequence[bool], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for output, there in zip(outputs, used, strict=True):
        gradient = torch.tensor(rng.normal(size=tuple(output.rows.shape)), dtype=torch.float32)
        if there:
            output.rows.grad = gradient.to(output.rows.device)


KINDS = [
    ["one"],
    ["sum"],
    ["mean"],
    ["sequence"],
    ["one", "mean", "sequence", "sum"],
    ["sequence", "one", "sequence"],
]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("seed", [1, 2])
def test_vectors_equal_those_of_the_host(kinds: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    both = Both([part_of(kind, rng) for kind in kinds], seed)
    for ours, theirs in zip(both.on_device(), both.on_host(), strict=True):
        assert ours.part is theirs.part
        assert ours.rows.is_leaf
        assert ours.rows.requires_grad
        torch.testing.assert_close(ours.rows.cpu(), theirs.rows)
        assert (ours.mask is None) == (theirs.mask is None)
        if ours.mask is not None and theirs.mask is not None:
            assert ours.mask.tolist() == theirs.mask.tolist()
    assert not any(each.rows.requires_grad for each in both.on_device(learn=False))


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("unused", [None, 0, -1])
def test_sums_equal_those_of_the_host(kinds: list[str], unused: int | None) -> None:
    rng = np.random.default_rng(5)
    both = Both([part_of(kind, rng) for kind in kinds], 5)
    used = [True] * len(kinds)
    if unused is not None:
        used[unused] = False
    ours, theirs = both.on_device(), both.on_host()
    set_gradients(ours, used, 8)
    set_gradients(theirs, used, 8)
    sums = both.pooling.sums(both.unique, ours)
    if not any(used):
        assert sums is None
        return
    assert sums is not None
    expected, expected_used = folded(theirs, both.inverse, len(both.distinct), 1)
    found = torch.empty(len(both.distinct), DIM)
    found[both.order] = sums.gradients[: len(both.distinct)].cpu()
    torch.testing.assert_close(found, torch.tensor(expected))
    assert (sums.used is None) == (expected_used is None)
    if sums.used is not None and expected_used is not None:
        flags = torch.empty(len(both.distinct), dtype=torch.bool)
        flags[both.order] = sums.used[: len(both.distinct)].cpu()
        assert flags.nonzero().squeeze(1).tolist() == expected_used.tolist()


def test_a_sequence_without_any_id_has_no_places() -> None:
    empty = FeatureBlock("t", "sequence", ("s",), np.empty(0, np.int64), np.zeros(SAMPLES + 1, np.int64))
    one = part_of("one", np.random.default_rng(0))
    both = Both([empty, one], 0)
    vectors = both.on_device()
    assert vectors[0].rows.shape == (SAMPLES, 0, DIM)
    set_gradients(vectors, [True, True], 3)
    sums = both.pooling.sums(both.unique, vectors)
    assert sums is not None
    assert sums.gradients[: len(both.distinct)].isfinite().all()


def test_arrays_go_over_in_one_copy_and_begin_where_kernels_want_them() -> None:
    arrays = [np.arange(3), np.empty(0, np.int64), np.arange(5) - 9]
    moved = on_device(arrays, DEVICE)
    assert [each.tolist() for each in moved] == [array.tolist() for array in arrays]
    assert len({each.untyped_storage().data_ptr() for each in moved}) == 1
    assert all(each.storage_offset() % 2 == 0 for each in moved)
