"""The batch kernels: duplicates, pooling over ragged bags, compression, hashes and ids of strings.

Numpy arrays in (or CPU tensors, read in place), numpy arrays out. Nothing is copied or converted behind the caller's
back: what does not fit raises InputError with a sentence, and no buffer has been written then. `threads` never changes
a result.
"""

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotrow import _native
from hotrow.errors import InputError
from hotrow.store.arrays import ArrayLike, Floats, Integers, Keys, as_array, as_keys, as_output

if TYPE_CHECKING:
    import pyarrow as pa

Mode: TypeAlias = Literal["sum", "mean"]
Result = TypeVar("Result")

BAGS_OF_UINT16 = 65_535  # batches up to here name their samples in two bytes


class Unique(NamedTuple):
    keys: Keys  # in order of first occurrence
    inverse: Integers  # for every key of the batch its place in `keys`
    counts: Integers  # how often each of `keys` occurs


class CompressedIds(NamedTuple):
    keys: Keys  # each once, in order of first occurrence
    counts: Integers
    samples: NDArray[np.uint16] | Integers  # for each key in turn, the bag of every occurrence


class ExpandedIds(NamedTuple):
    keys: Keys
    offsets: NDArray[np.int64]


class StringHashes(NamedTuple):
    hashes: Keys
    null_count: int


class StringIds(NamedTuple):
    ids: Keys
    null_count: int


def unique(keys: ArrayLike, threads: int = 1) -> Unique:
    """The keys of a batch (uint64, or int64 read as its bits) without duplicates, in order of first occurrence."""
    batch = as_keys("unique: keys", keys)
    found, inverse, counts = _room(batch.size, np.uint64), _room(batch.size, np.uint32), _room(batch.size, np.uint32)
    size = _checked(_native.unique, batch, found, inverse, counts, _threads(threads))
    return Unique(found[:size], inverse, counts[:size])


def pool(
    rows: ArrayLike,
    inverse: ArrayLike,
    offsets: ArrayLike,
    weights: ArrayLike | None = None,
    mode: Mode = "sum",
    out: ArrayLike | None = None,
    threads: int = 1,
) -> Floats:
    """Sum or mean of each bag's rows, zeros for an empty bag: `out` float32 [bags, dim], made if not given.

    Position p of the batch (bag b holds those from offsets[b] to offsets[b + 1]) is rows[inverse[p]], times
    weights[p]. rows float32 [unique, dim], inverse uint32, offsets int64 from 0 to len(inverse), weights float32 with
    mode "sum" only, as in torch.
    """
    table = as_array("pool: rows", rows, np.float32, 2)
    ids = _ids("pool", inverse, offsets, weights)
    buffer = _output("pool: out", out, (max(0, ids[1].size - 1), table.shape[1]), table)
    _checked(_native.pool, table, *ids, _is_mean("pool", mode), buffer, _threads(threads))
    return buffer


def pool_backward(
    grad_out: ArrayLike,
    inverse: ArrayLike,
    offsets: ArrayLike,
    weights: ArrayLike | None,
    mode: Mode,
    unique: int,
    out: ArrayLike | None = None,
    threads: int = 1,
) -> Floats:
    """Gradient of `pool` by its rows: `out` float32 [unique, dim] from grad_out [bags, dim]; zeros for unused rows."""
    gradient = as_array("pool_backward: grad_out", grad_out, np.float32, 2)
    ids = _ids("pool_backward", inverse, offsets, weights)
    rows = _unsigned("pool_backward: unique", unique, bits=32)
    buffer = _output("pool_backward: out", out, (rows, gradient.shape[1]), gradient)
    _checked(_native.pool_backward, gradient, *ids, _is_mean("pool_backward", mode), buffer, _threads(threads))
    return buffer


def pool_weight_gradient(
    grad_out: ArrayLike,
    rows: ArrayLike,
    inverse: ArrayLike,
    offsets: ArrayLike,
    out: ArrayLike | None = None,
    threads: int = 1,
) -> Floats:
    """Gradient of a summing `pool` by its weights: `out` float32 [positions], grad_out[bag] times row."""
    who = "pool_weight_gradient"
    gradient = as_array(f"{who}: grad_out", grad_out, np.float32, 2)
    table = as_array(f"{who}: rows", rows, np.float32, 2)
    positions, bounds, _ = _ids(who, inverse, offsets, None)
    buffer = _output(f"{who}: out", out, (positions.size,), gradient, table)
    _checked(_native.pool_weight_gradient, gradient, table, positions, bounds, buffer, _threads(threads))
    return buffer


def encode_rows(rows: ArrayLike, threads: int = 1) -> tuple[NDArray[np.uint16], Floats]:
    """float32 rows as (bits of fp16 [n, dim], scale [n]): a row times 2^14 / its largest finite |value|.

    Elements keep 11 bits down to 2^-28 of the largest. Zeros keep their sign, infinities and NaN stay what they are.
    """
    table = as_array("encode_rows: rows", rows, np.float32, 2)
    half, scale = np.empty(table.shape, np.uint16), np.empty(table.shape[0], np.float32)
    _checked(_native.encode_rows, table, half, scale, _threads(threads))
    return half, scale


def decode_rows(half: ArrayLike, scale: ArrayLike, out: ArrayLike | None = None, threads: int = 1) -> Floats:
    """Back to float32 [n, dim]."""
    bits = as_array("decode_rows: half", half, np.uint16, 2)
    scales = as_array("decode_rows: scale", scale, np.float32, 1)
    buffer = _output("decode_rows: out", out, bits.shape, bits, scales)
    _checked(_native.decode_rows, bits, scales, buffer, _threads(threads))
    return buffer


def compress_ids(keys: ArrayLike, offsets: ArrayLike, threads: int = 1) -> CompressedIds:
    """Each key once, with the bags it occurs in: uint16 while there are at most 65,535 bags, else uint32."""
    batch = as_keys("compress_ids: keys", keys)
    bounds = as_array("compress_ids: offsets", offsets, np.int64, 1)
    found, counts = _room(batch.size, np.uint64), _room(batch.size, np.uint32)
    samples = _room(batch.size, np.uint16 if bounds.size - 1 <= BAGS_OF_UINT16 else np.uint32)
    size = _checked(_native.compress_ids, batch, bounds, found, counts, samples, _threads(threads))
    return CompressedIds(found[:size], counts[:size], samples)


def expand_ids(keys: ArrayLike, counts: ArrayLike, samples: ArrayLike, bags: int) -> ExpandedIds:
    """What `compress_ids` was given. The keys of a bag come in the order in which keys first occurred in the batch."""
    each = as_keys("expand_ids: keys", keys)
    times = as_array("expand_ids: counts", counts, np.uint32, 1)
    where = as_array("expand_ids: samples", samples, (np.uint16, np.uint32), 1)
    batch, offsets = _room(where.size, np.uint64), _room(_unsigned("expand_ids: bags", bags, bits=32) + 1, np.int64)
    _checked(_native.expand_ids, each, times, where, batch, offsets)
    return ExpandedIds(batch, offsets)


def hash_strings(array: "pa.Array | pa.ChunkedArray", seed: int = 0, null: int = 0, threads: int = 1) -> StringHashes:
    """64-bit hashes, for ever the same, of a pyarrow column of (large) strings or bytes; `null` where it is null."""
    return StringHashes(*_column("hash_strings", _native.hash_strings, array, seed, null, threads))


def string_ids(
    array: "pa.Array | pa.ChunkedArray", null: int, seed: int = 0, text: bool = False, threads: int = 1
) -> StringIds:
    """The same, but a text that is a whole decimal number in canonical form ("42", "-7"; not "007", "+1", "1.0") and
    fits int64 or uint64 gives that number's 64 bits. With `text` it is hashed like any other."""
    if not isinstance(text, bool | np.bool_):
        raise InputError(f"string_ids: text={text!r}: must be True or False (True hashes numbers too)")
    return StringIds(
        *_column("string_ids", _native.hash_strings if text else _native.string_ids, array, seed, null, threads)
    )


def _column(
    who: str, function: Callable[..., int], array: "pa.Array | pa.ChunkedArray", seed: int, null: int, threads: int
) -> tuple[Keys, int]:
    chunks = list(_string_chunks(who, array))
    numbers = _unsigned(f"{who}: seed", seed, bits=64), _unsigned(f"{who}: null", null, bits=64)
    out = _room(sum(len(chunk) for chunk in chunks), np.uint64)
    at = nulls = 0
    for chunk in chunks:
        validity, bounds, data = chunk.buffers()
        bitmap = None if validity is None else np.frombuffer(validity, np.uint8)
        content = _room(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        offset_type = np.int64 if str(chunk.type).startswith("large") else np.int32
        offsets: NDArray[Any] = np.frombuffer(bounds, offset_type, count=chunk.offset + len(chunk) + 1)
        into = out[at : at + len(chunk)]
        nulls += _checked(function, content, offsets, bitmap, chunk.offset, into, *numbers, _threads(threads))
        at += len(chunk)
    return out, nulls


def hash_string_buffers(
    data: ArrayLike,
    offsets: ArrayLike,
    validity: ArrayLike | None = None,
    seed: int = 0,
    null: int = 0,
    threads: int = 1,
) -> StringHashes:
    """The same from Arrow's buffers: data uint8, offsets int32 or int64 [strings + 1], validity a bitmap in uint8."""
    content = as_array("hash_strings: data", data, np.uint8, 1)
    bounds = as_array("hash_strings: offsets", offsets, (np.int32, np.int64), 1)
    bitmap = None if validity is None else as_array("hash_strings: validity", validity, np.uint8, 1)
    numbers = _unsigned("hash_strings: seed", seed, bits=64), _unsigned("hash_strings: null", null, bits=64)
    out = _room(max(0, bounds.size - 1), np.uint64)
    nulls = _checked(_native.hash_strings, content, bounds, bitmap, 0, out, *numbers, _threads(threads))
    return StringHashes(out, nulls)


def _string_chunks(who: str, array: "pa.Array | pa.ChunkedArray") -> Iterator["pa.Array"]:
    try:
        import pyarrow as pa  # a column of strings is the only reason to need it
    except ImportError:
        raise InputError(f"{who}: pyarrow is missing: install it, or use hash_string_buffers") from None
    if not isinstance(array, (pa.Array, pa.ChunkedArray)):
        raise InputError(f"{who}: array is a {type(array).__name__}: give a pyarrow Array or ChunkedArray")
    accepted = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    if array.type not in accepted:
        raise InputError(f"{who}: array is of {array.type}: cast it to one of {', '.join(map(str, accepted))}")
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    yield from (chunk for chunk in chunks if len(chunk) > 0)  # an empty one may have no buffers at all


def _ids(
    who: str, inverse: ArrayLike, offsets: ArrayLike, weights: ArrayLike | None
) -> tuple[Integers, NDArray[np.int64], Floats | None]:
    return (
        as_array(f"{who}: inverse", inverse, np.uint32, 1),
        as_array(f"{who}: offsets", offsets, np.int64, 1),
        None if weights is None else as_array(f"{who}: weights", weights, np.float32, 1),
    )


def _output(what: str, value: ArrayLike | None, shape: tuple[int, ...], *inputs: NDArray[Any]) -> Floats:
    """The caller's float32 buffer, or a new one. Native code checks the shape of the former."""
    return np.empty(shape, np.float32) if value is None else as_output(what, value, len(shape), *inputs)


def _room(size: int, dtype: DTypeLike) -> NDArray[Any]:
    return np.empty(size, dtype)


def _is_mean(who: str, mode: Mode) -> bool:
    if not isinstance(mode, str) or mode not in ("sum", "mean"):
        raise InputError(f"{who}: mode={mode!r}: must be 'sum' or 'mean'")
    return mode == "mean"


def _threads(threads: int) -> int:
    return min(_unsigned("threads", threads, bits=64), 1024)


def _unsigned(what: str, value: int, bits: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what}={value!r}: must be a whole number") from None
    if not 0 <= number < 2**bits:
        raise InputError(f"{what}={number}: must be 0 or more and below 2^{bits}")
    return number


def _checked(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call native code, which checks shapes and indices; its message becomes an InputError."""
    try:
        return function(*arguments)
    except ValueError as error:
        raise InputError(str(error)) from None
