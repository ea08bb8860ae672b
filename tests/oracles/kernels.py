"""The batch kernels again, one element at a time, in Python's integers and float64."""

import struct
from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

KAPPA = 2.0**14
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
MASK = 2**64 - 1

Bag = Sequence[int]


def unique(keys: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    places: dict[int, int] = {}
    inverse = [places.setdefault(key, len(places)) for key in keys]
    return list(places), inverse, [inverse.count(place) for place in range(len(places))]


def pool(
    rows: NDArray[np.float32], bags: Sequence[Bag], weights: Sequence[Sequence[float]] | None, mode: str
) -> NDArray[np.float64]:
    out = np.zeros((len(bags), rows.shape[1]))
    for at, bag in enumerate(bags):
        for factor, row in zip(_factors(bag, at, weights, mode), bag, strict=True):
            out[at] += factor * rows[row].astype(np.float64)
    return out


def pool_backward(
    grad_out: NDArray[np.float32],
    bags: Sequence[Bag],
    weights: Sequence[Sequence[float]] | None,
    mode: str,
    unique_rows: int,
) -> NDArray[np.float64]:
    out = np.zeros((unique_rows, grad_out.shape[1]))
    for at, bag in enumerate(bags):
        for factor, row in zip(_factors(bag, at, weights, mode), bag, strict=True):
            out[row] += factor * grad_out[at].astype(np.float64)
    return out


def pool_weight_gradient(
    grad_out: NDArray[np.float32], rows: NDArray[np.float32], bags: Sequence[Bag]
) -> NDArray[np.float64]:
    dots = [
        float(np.dot(grad_out[at].astype(np.float64), rows[row].astype(np.float64)))
        for at, bag in enumerate(bags)
        for row in bag
    ]
    return np.array(dots, np.float64)


def _factors(bag: Bag, at: int, weights: Sequence[Sequence[float]] | None, mode: str) -> list[float]:
    if mode == "mean":
        return [1 / len(bag) for _ in bag]
    return [1.0] * len(bag) if weights is None else list(weights[at])


def encode_row(row: Sequence[float]) -> tuple[list[int], float]:
    """Bits of fp16, and the scale."""
    finite = [abs(value) for value in row if np.isfinite(value) and value != 0]
    scale = _float32(min(KAPPA / max(finite), LARGEST_FLOAT32)) if finite else 1.0
    return [half_bits(_float32(value * scale)) for value in row], scale


def decode_row(half: Sequence[int], scale: float) -> list[float]:
    return [_float32(struct.unpack("<e", struct.pack("<H", bits))[0] / scale) for bits in half]


def half_bits(value: float) -> int:
    """fp16, nearest even; Python's struct rounds so, but refuses what becomes infinite."""
    if np.isfinite(value) and abs(value) >= 65520:
        value = float(np.copysign(np.inf, value))
    (bits,) = struct.unpack("<H", struct.pack("<e", value))
    return int(bits)


def _float32(value: float) -> float:
    """A float64 product or quotient of two float32 rounds to the float32 one: 53 bits are more than 2 * 24 + 2."""
    return float(np.float32(value))


def compress_ids(bags: Sequence[Bag]) -> tuple[list[int], list[int], list[int]]:
    samples: dict[int, list[int]] = {}
    for at, bag in enumerate(bags):
        for key in bag:
            samples.setdefault(key, []).append(at)
    return list(samples), [len(each) for each in samples.values()], [at for each in samples.values() for at in each]


def hash_bytes(text: bytes, seed: int = 0) -> int:
    """XXH64, by its own library."""
    return xxhash.xxh64_intdigest(text, seed)


def string_id(text: bytes, seed: int = 0) -> int:
    """The 64 bits of a whole number that is written as Python writes it; any other text by its hash."""
    if text.lstrip(b"-").isdigit() and text == b"%d" % int(text) and -(2**63) <= int(text) < 2**64:
        return int(text) & MASK
    return hash_bytes(text, seed)
