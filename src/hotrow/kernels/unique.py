"""Keys of a batch without duplicates, with counts, and where each position of the batch belongs.

A block of keys folds its duplicates by comparing all pairs, then its distinct keys go to a scratch table that all
blocks share: a frequent key reaches the table once per block and not once per position. Results have the size of the
batch and the number of keys stays on the device, so that no step waits for the host.
"""

import secrets
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.cuda import CudaKernels, cuda_kernels
from hotrow.kernels.launch import check, launch, takes_kernel

_BLOCK = 128
_NUMBER_BLOCK = 1024
_CUDA = {"THREADS": 256, "ITEMS": 4, "SLOTS": 2048}  # of fold.cu: keys of a block are half of its slots
# Drawn in each process: nobody can compute ids that share a place of the scratch table.
_SEED, _ODD = secrets.randbits(62), secrets.randbits(62) | 1


class UniqueKeys(NamedTuple):
    """Arrays of the length of the batch; of `keys`, `counts` and `starts` the first `size` are set."""

    keys: Tensor  # int64, each key once: ascending if deterministic, else in any order
    counts: Tensor  # int32: how often each of `keys` occurs
    starts: Tensor  # int32: where the positions of a key begin when they are grouped by key
    inverse: Tensor  # int32: for every position its place in `keys`
    rank: Tensor  # int32: for every position its number, from 0, among those of the same key
    size: Tensor  # int32 [1]
    grouped: Tensor | None = None  # what `order` returns, where it was asked for ahead

    def with_order(self) -> "UniqueKeys":
        """The same with `order` computed now, once for all that ask for it."""
        return self._replace(grouped=self.order())

    def order(self) -> Tensor:
        """int32 [n]: positions grouped by key."""
        if self.grouped is not None:
            return self.grouped
        n, order = len(self.inverse), torch.empty_like(self.inverse)
        if not takes_kernel(order):
            places = (self.starts[self.inverse] + self.rank).to(torch.int64)
            return order.index_copy_(0, places, torch.arange(n, dtype=torch.int32, device=order.device))
        blocks = triton.cdiv(n, _NUMBER_BLOCK)
        launch(_order_kernel, blocks, self.starts, self.inverse, self.rank, order, n, BLOCK=_NUMBER_BLOCK)
        return order


def unique(keys: Tensor, deterministic: bool = False) -> UniqueKeys:
    """Distinct keys of an int64 [n] batch. `deterministic` sorts: the same batch then gives the same arrays."""
    check("unique", "keys", keys, torch.int64, (None,))
    if len(keys) >= 2**29:
        raise InputError(f"unique: {len(keys):,} keys: must be below 2^29, split the batch")
    if deterministic or not takes_kernel(keys) or not len(keys):
        return reference_unique(keys)
    cuda = cuda_kernels("fold.cu", keys.device, **_CUDA)
    return _kernel_unique(keys) if cuda is None else _cuda_unique(cuda, keys)


def reference_unique(keys: Tensor) -> UniqueKeys:
    """The same by sorting, in torch: keys ascend, positions of a key too."""
    ordered, order = keys.sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    group = is_first.cumsum(0) - 1
    place = torch.arange(len(keys), dtype=torch.int32, device=keys.device)
    found, starts = torch.zeros_like(keys), torch.zeros_like(place)
    found.scatter_(0, group, ordered)  # equal keys write the same
    starts.scatter_reduce_(0, group, place, "amin", include_self=False)
    counts = torch.zeros_like(place).scatter_add_(0, group, torch.ones_like(place))
    inverse = torch.empty_like(place).scatter_(0, order, group.to(torch.int32))
    rank = torch.empty_like(place).scatter_(0, order, place - starts[group])
    return UniqueKeys(found, counts, starts, inverse, rank, is_first.sum(dtype=torch.int32).reshape(1))


def _kernel_unique(keys: Tensor) -> UniqueKeys:
    n = len(keys)
    capacity = max(4, triton.next_power_of_2(2 * n))
    spaced = -(-n // 4) * 4  # arrays begin at multiples of 16 bytes: a kernel is compiled once for all sizes
    integers = torch.empty(5 * spaced + capacity + 1, dtype=torch.int32, device=keys.device)
    *arrays, number = integers.split([spaced] * 5 + [capacity + 1])
    counts, starts, inverse, rank, place = (array[:n] for array in arrays)
    scratch = torch.zeros(capacity, dtype=torch.int64, device=keys.device)
    tallies = torch.zeros(capacity + 6, dtype=torch.int32, device=keys.device)
    cursors = tallies[capacity + 4 :]  # distinct keys so far, positions given away so far
    found = torch.empty_like(keys)
    folding = (scratch, tallies, number, cursors, found, place, rank)
    launch(_fold_kernel, triton.cdiv(n, _BLOCK), keys, *folding, n, capacity - 1, _SEED, _ODD, BLOCK=_BLOCK, PAIRS=16)
    numbering = (number, cursors, place, rank, counts, starts, inverse)
    launch(_number_kernel, triton.cdiv(n, _NUMBER_BLOCK), tallies, *numbering, n, BLOCK=_NUMBER_BLOCK)
    return UniqueKeys(found, counts, starts, inverse, rank, cursors[:1])


def _cuda_unique(cuda: CudaKernels, keys: Tensor) -> UniqueKeys:
    n, threads = len(keys), _CUDA["THREADS"]
    entries = max(4, triton.next_power_of_2(2 * n))
    zeros = torch.zeros(4 * entries + 6, dtype=torch.int32, device=keys.device)
    cursors = zeros[4 * entries + 4 :]  # behind the entries, of 16 bytes each
    spaced = -(-n // 4) * 4  # as above
    arrays = torch.empty(5, spaced, dtype=torch.int32, device=keys.device)
    counts, starts, inverse, rank, place = arrays[:, :n].unbind(0)
    found = torch.empty_like(keys)
    blocks = triton.cdiv(n, threads * _CUDA["ITEMS"])
    cuda.launch(
        "fold", blocks, threads, keys.contiguous(), zeros, cursors, found, place, rank, n, entries - 1, _SEED, _ODD
    )
    numbering = zeros, cursors, place, rank, counts, starts, inverse
    cuda.launch("number", triton.cdiv(n, threads), threads, *numbering, n)
    return UniqueKeys(found, counts, starts, inverse, rank, cursors[:1])


@triton.jit(do_not_specialize=["n", "mask"])
def _fold_kernel(
    keys, scratch, tallies, number, cursors, found, place, rank, n, mask, seed, odd,
    BLOCK: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """For each position its place in the scratch table and its rank; for each new key a number.

    The scratch table has mask + 1 places, a power of two, and one behind them for the key 0.
    """
    lane = tl.arange(0, BLOCK)
    position = tl.program_id(0) * BLOCK + lane
    inside = position < n
    key = tl.load(keys + position, mask=inside, other=0)
    before = tl.zeros([BLOCK], tl.int32)
    count = tl.zeros([BLOCK], tl.int32)
    first = tl.full([BLOCK], BLOCK - 1, tl.int32)
    for begin in range(0, BLOCK, PAIRS):  # in parts, or all pairs would not fit into registers
        other = begin + tl.arange(0, PAIRS)
        other_position = tl.program_id(0) * BLOCK + other
        other_key = tl.load(keys + other_position, mask=other_position < n, other=0)
        same = (key[:, None] == other_key[None, :]) & (other_position < n)[None, :]
        before += tl.sum((same & (other[None, :] < lane[:, None])).to(tl.int32), axis=1)
        count += tl.sum(same.to(tl.int32), axis=1)
        first = tl.minimum(first, tl.min(tl.where(same, other[None, :], BLOCK - 1), axis=1))
    leader = inside & (before == 0)

    slot = tl.where(key == 0, mask + 1, _hash(key, seed, odd) & mask).to(tl.int32)
    pending = leader & (key != 0)  # 0 marks a free place, so the key 0 has a place of its own
    own_word = keys + tl.where(inside, position, 0)
    while tl.max(pending.to(tl.int32), axis=0) > 0:
        # A compare-and-swap has no mask. Idle lanes aim at their own key, which is either not 0, and stays, or is
        # replaced by 0: nothing changes, and no two lanes share a word.
        at = tl.where(pending, scratch + slot, own_word)
        old = tl.atomic_cas(at, tl.zeros_like(key), key, sem="relaxed")
        pending = pending & (old != 0) & (old != key)
        slot = tl.where(pending, (slot + 1) & mask, slot)

    counted = tl.atomic_add(tallies + slot, count, mask=leader, sem="relaxed")
    new = leader & (counted == 0)
    new_count = new.to(tl.int32)
    own_number = tl.atomic_add(cursors, tl.sum(new_count, axis=0), sem="relaxed") + tl.cumsum(new_count, axis=0) - 1
    tl.store(number + slot, own_number, mask=new)
    tl.store(found + own_number, key, mask=new)
    tl.store(place + position, tl.gather(slot, first, 0), mask=inside)
    tl.store(rank + position, tl.gather(counted, first, 0) + before, mask=inside)


@triton.jit
def _hash(key, seed, odd):
    x = (key ^ seed).to(tl.uint64, bitcast=True)
    x = (x ^ (x >> 32)) * odd.to(tl.uint64)
    x = (x ^ (x >> 29)) * 0x3F8F1B7A2C5D9E4B
    return (x ^ (x >> 32)).to(tl.int64, bitcast=True)


@triton.jit(do_not_specialize=["n"])
def _number_kernel(
    tallies, number, cursors, place, rank, counts, starts, inverse, n, BLOCK: tl.constexpr
):  # fmt: skip
    """From places to numbers of keys; the first position of a key also writes its count and where its group begins."""
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < n
    slot = tl.load(place + position, mask=inside, other=0)
    own_number = tl.load(number + slot, mask=inside, other=0)
    tl.store(inverse + position, own_number, mask=inside)
    leader = inside & (tl.load(rank + position, mask=inside, other=1) == 0)
    count = tl.load(tallies + slot, mask=leader, other=0)
    given = tl.atomic_add(cursors + 1, tl.sum(count, axis=0), sem="relaxed")
    start = given + tl.cumsum(count, axis=0) - count
    tl.store(counts + own_number, count, mask=leader)
    tl.store(starts + own_number, start, mask=leader)


@triton.jit(do_not_specialize=["n"])
def _order_kernel(starts, inverse, rank, order, n, BLOCK: tl.constexpr):
    position = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = position < n
    start = tl.load(starts + tl.load(inverse + position, mask=inside, other=0), mask=inside, other=0)
    tl.store(order + start + tl.load(rank + position, mask=inside, other=0), position, mask=inside)
