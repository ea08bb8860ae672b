"""unique, pool and scatter: what sorting and adding up in float64 gives."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.errors import InputError
from hotrow.kernels.pool import _kernel_pool, bag_of, pool, reference_pool
from hotrow.kernels.scatter import WINDOW, _kernel_scatter, reference_scatter, scatter
from hotrow.kernels.unique import UniqueKeys, unique
from profiles import examples

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KEYS = st.sampled_from([0, 1, 2, -1, -(2**63), 2**63 - 1, 12345678901])
FREQUENT = st.lists(st.tuples(KEYS, st.sampled_from([1, 2, WINDOW - 1, WINDOW, WINDOW + 1, 150])), max_size=4)


@st.composite
def batches(draw: st.DrawFn) -> torch.Tensor:
    """Keys with frequent ones among rare ones, shuffled."""
    keys = [key for key, times in draw(FREQUENT) for _ in range(times)]
    keys += draw(st.lists(st.integers(-5, 40), max_size=40))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    return torch.tensor(keys, dtype=torch.int64)[torch.randperm(len(keys), generator=random)].to(DEVICE)


def check_unique(keys: torch.Tensor, found: UniqueKeys) -> None:
    size = found.size.item()
    distinct, counts = found.keys[:size], found.counts[:size]
    assert dict(zip(distinct.tolist(), counts.tolist(), strict=True)) == Counter(keys.tolist())
    assert len(distinct) == len(set(keys.tolist()))
    assert torch.equal(distinct[found.inverse], keys)
    order = found.order()
    assert sorted(order.tolist()) == list(range(len(keys)))
    for place, (start, count) in enumerate(zip(found.starts[:size].tolist(), counts.tolist(), strict=True)):
        assert set(found.inverse[order[start : start + count]].tolist()) == {place}


@settings(max_examples=examples(25))
@given(batches(), st.booleans())
def test_unique_has_every_key_once_with_its_positions(keys: torch.Tensor, deterministic: bool) -> None:
    before = keys.clone()
    found = unique(keys, deterministic)
    check_unique(keys, found)
    assert torch.equal(keys, before)
    if deterministic:
        size = found.size.item()
        assert found.keys[:size].tolist() == sorted(set(keys.tolist()))
        assert found.order().tolist() == torch.argsort(keys, stable=True).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_the_key_0_shares_its_place_with_no_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotrow.kernels.unique._SEED", seed * 0x1234567)
    keys = torch.arange(64, device=DEVICE)  # half of the scratch table is in use, so 0 often meets another key
    check_unique(keys, unique(keys))


@st.composite
def bags(draw: st.DrawFn, positions: int) -> torch.Tensor | None:
    if draw(st.booleans()):
        return None
    borders = draw(st.lists(st.integers(0, positions), max_size=12))
    return torch.tensor([0, *sorted(borders), positions], dtype=torch.int64, device=DEVICE)


@settings(max_examples=examples(25))
@given(batches(), st.data(), st.sampled_from(["sum", "mean"]), st.sampled_from([1, 5, 16]), st.booleans())
def test_gradients_of_a_key_are_summed(
    keys: torch.Tensor, data: st.DataObject, mode: Any, dim: int, bf16: bool
) -> None:
    offsets = data.draw(bags(len(keys)))
    count = len(keys) if offsets is None else len(offsets) - 1
    dtype = torch.bfloat16 if bf16 else torch.float32
    gradients = torch.randn(count, dim, generator=torch.Generator().manual_seed(count)).to(DEVICE, dtype)
    found = unique(keys)
    got = scatter(found, gradients, offsets, mode)[: found.size.item()]
    bag = torch.arange(count, device=DEVICE) if offsets is None else bag_of(offsets, len(keys))
    lengths = torch.ones(count, device=DEVICE) if offsets is None or mode == "sum" else offsets.diff().clamp(min=1)
    each = (gradients.double() / lengths[:, None])[bag]
    wanted = torch.zeros(len(got), dim, dtype=torch.float64, device=DEVICE).index_add(0, found.inverse, each)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=2e-5)


@settings(max_examples=examples(25))
@given(st.data(), st.sampled_from(["sum", "mean"]), st.sampled_from([1, 5, 16]), st.booleans(), st.booleans())
def test_rows_are_pooled_over_bags(data: st.DataObject, mode: Any, dim: int, bf16: bool, by_inverse: bool) -> None:
    values = torch.randn(7, dim + 3, generator=torch.Generator().manual_seed(dim)).to(DEVICE)[:, :dim]
    slots = torch.tensor(data.draw(st.lists(st.integers(-1, 6), min_size=1, max_size=30)), device=DEVICE)
    places = st.lists(st.integers(0, len(slots) - 1), max_size=40)
    inverse = torch.tensor(data.draw(places), dtype=torch.int32, device=DEVICE) if by_inverse else None
    chosen = slots if inverse is None else slots[inverse]
    offsets = data.draw(bags(len(chosen)))
    dtype = torch.bfloat16 if bf16 else torch.float32
    got = pool(values, slots, inverse, offsets, mode, dtype)
    rows = torch.where(chosen[:, None] >= 0, values[chosen.clamp(min=0)], 0.0).double()
    if offsets is None:
        wanted = rows
    else:
        pooled = [rows[a:b].sum(0) / (b - a if mode == "mean" else 1) for a, b in pairwise(offsets)]
        wanted = torch.stack(pooled).nan_to_num()
    assert got.dtype == dtype
    near = 2**-7 if bf16 else 1e-5  # the interpreter cuts bits off where a GPU rounds
    torch.testing.assert_close(got.double(), wanted, rtol=near, atol=1e-6)
    same = reference_pool(values, slots, inverse, offsets, mode, dtype)
    torch.testing.assert_close(got, same, rtol=near, atol=1e-6)


def test_a_deterministic_backward_has_the_same_bits_twice() -> None:
    keys = torch.randint(0, 3, (500,), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    gradients = torch.randn(500, 4, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    one, two = (scatter(unique(keys, deterministic=True), gradients)[:3] for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(one, reference_scatter(unique(keys, deterministic=True), gradients, None, None)[:3])


@pytest.mark.parametrize("borders", [[2, 4], [0, 3], [-3, 2, 9], [1, 3, 3]], ids=str)
def test_offsets_that_do_not_cover_a_batch_read_nothing_outside_of_it(borders: list[int]) -> None:
    """On a GPU offsets are not checked: positions outside of the batch, or of every bag, count as zeros."""
    table, offsets = torch.arange(1.0, 9.0, device=DEVICE)[:, None], torch.tensor(borders, device=DEVICE)
    inside = slice(1, 6)  # of memory that the kernel could read
    slots = torch.arange(8, device=DEVICE)[inside]
    got = _kernel_pool(table, slots, None, offsets, "sum", torch.float32)
    sums = [sum(p + 2 for p in range(a, b) if 0 <= p < 5) for a, b in pairwise(borders)]
    assert got.flatten().tolist() == sums
    gradients = torch.tensor([[10.0**n] for n in range(8)], device=DEVICE)[3 : 3 + len(borders) - 1]
    found = unique(torch.arange(5, device=DEVICE), deterministic=True)
    back = _kernel_scatter(found, gradients, bag_of(offsets, 5), torch.ones(len(gradients), device=DEVICE))
    wanted = [sum(10.0 ** (3 + n) for n, (a, b) in enumerate(pairwise(borders)) if a <= p < b) for p in range(5)]
    assert back.flatten().tolist() == wanted


def test_kernels_of_unique_are_compiled_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch is compiled for: constants, and whether 16 divides an address."""
    variants: set[tuple[Any, ...]] = set()

    def record(kernel: Any, _programs: int, *arguments: Any, **constants: Any) -> None:
        aligned = tuple(each.data_ptr() % 16 == 0 for each in arguments if isinstance(each, torch.Tensor))
        variants.add((kernel.fn.__name__, aligned, *constants.items()))

    monkeypatch.setattr("hotrow.kernels.unique.launch", record)
    for n in (1, 2, 5, 127, 300, 1_000, 1_001):
        unique(torch.arange(n, device=DEVICE))
    assert len(variants) == 2, variants


def test_positions_are_grouped_without_a_kernel_too(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = torch.tensor([5, 7, 5, 1])
    monkeypatch.setattr("hotrow.kernels.unique.takes_kernel", lambda _: False)
    order = unique(keys).order()
    assert (order.dtype, order.tolist()) == (torch.int32, [3, 0, 2, 1])


ONE = torch.zeros(1, dtype=torch.int64)
REFUSED: dict[str, Callable[[], Any]] = {
    "unique: keys is torch.float32 (2,): must be torch.int64 (any)": lambda: unique(torch.zeros(2)),
    "pool: mode='max': must be 'sum' or 'mean'": lambda: pool(torch.zeros(2, 2), ONE, mode=cast(Any, "max")),
    "pool: dtype=torch.float16: must be one of torch.float32, torch.bfloat16": lambda: pool(
        torch.zeros(2, 2), ONE, dtype=torch.float16
    ),
    "pool: rows of 1,025 floats: must be from 1 to 1,024": lambda: pool(torch.zeros(2, 1025), ONE),
    "pool: offsets is empty: must ascend from 0 to 1, the number of positions": lambda: pool(
        torch.zeros(2, 2), ONE, offsets=ONE[:0]
    ),
    "pool: offsets go from 1 to 1: must ascend from 0 to 1, the number of positions": lambda: pool(
        torch.zeros(2, 2), ONE, offsets=torch.tensor([1, 1])
    ),
    "scatter: offsets go from 0 to 0: must ascend from 0 to 1, the number of positions": lambda: scatter(
        unique(ONE), torch.zeros(1, 2), torch.tensor([0, 0])
    ),
    "scatter: offsets[2] is below the one before: must ascend from 0 to 1, the number of positions": lambda: scatter(
        unique(ONE), torch.zeros(3, 2), torch.tensor([0, 1, 0, 1])
    ),
    "scatter: gradients is torch.float32 (3, 2): must be torch.float32 (1, any)": lambda: scatter(
        unique(ONE), torch.zeros(3, 2)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_arguments_that_do_not_fit_are_refused(message: str) -> None:
    with pytest.raises(InputError) as error:
        REFUSED[message]()
    assert str(error.value) == message
