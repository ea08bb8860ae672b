"""Where a key's row lives: `hash_key` of native/store/hash.h, in Triton and in torch.

    63    54 53        44 43             10 9   8 7     0
    [ shard ] [ partition ] [ bucket       ] [home] [digest]

Shard, device partition and bucket use disjoint bits, so keys of one partition spread evenly over its buckets. The
bucket is its 34 bits times the number of buckets, over 2^34: any number of buckets will do. The digest is one byte; 0
and 1 stand for free slots, so it never takes them, and every 64-bit key is legal.

The hash is public. A lookup reads at most the lines of one bucket, whatever the keys are, so keys that are chosen to
collide displace each other and slow nothing down.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

EMPTY = tl.constexpr(0)  # never used since the group was last not full: a search ends here
REMOVED = tl.constexpr(1)  # free, but a row of this home may be further on
BUCKET_LOW = tl.constexpr(10)
BUCKET_BITS = tl.constexpr(34)
BUCKET_MASK = tl.constexpr(2**34 - 1)
FACTOR = tl.constexpr(0xD6E8FEB86659FD93)
PARTITION_LOW, PARTITION_BITS = 44, 10
VARYING = ("count", "buckets", "lines", "now", "age")  # arguments whose values no kernel is compiled for


@triton.jit
def hash_key(key):
    """Bits of int64 keys, scrambled: uint64."""
    h = key.to(tl.uint64, bitcast=True)
    h = (h ^ (h >> 32)) * FACTOR
    h = (h ^ (h >> 32)) * FACTOR
    return h ^ (h >> 32)


@triton.jit
def bucket_of(h, buckets):
    return ((((h >> BUCKET_LOW) & BUCKET_MASK) * buckets) >> BUCKET_BITS).to(tl.int64)


@triton.jit
def home_of(h, GROUPS: tl.constexpr):
    return ((h >> 8) & (GROUPS - 1)).to(tl.int64)


@triton.jit
def digest_of(h):
    low = (h & 255).to(tl.int32)
    return tl.where(low < 2, low + 2, low)


def hash_keys(keys: Tensor) -> Tensor:
    """The same hash in torch, as the bits of an int64."""
    factor = int(FACTOR.value) - 2**64
    h = (keys ^ _shifted(keys, 32)) * factor
    h = (h ^ _shifted(h, 32)) * factor
    return torch.bitwise_xor(h, _shifted(h, 32))


def partition_of(keys: Tensor, partitions: int) -> Tensor:
    """The partition of each key, int64."""
    bits = _shifted(hash_keys(keys), PARTITION_LOW) & (2**PARTITION_BITS - 1)
    return torch.bitwise_right_shift(bits * partitions, PARTITION_BITS)


def places(keys: Tensor, buckets: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """Bucket, home group and digest of each key, int64."""
    h = hash_keys(keys)
    low = h & 255
    bits = _shifted(h, BUCKET_LOW.value) & BUCKET_MASK.value
    bucket = (bits * buckets) >> BUCKET_BITS.value  # fewer than 2^29 buckets: the product stays below 2^63
    return bucket, _shifted(h, 8) & (groups - 1), torch.where(low < 2, low + 2, low)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """A shift to the right that brings in zeros."""
    return torch.bitwise_and(bits >> count, 2 ** (64 - count) - 1)
