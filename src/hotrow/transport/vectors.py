"""The vectors of a batch on the wire, and their gradients, as float32 or fp16-scaled.

A vector is one row: dim values and, as halves, its own float32 scale, so that a small vector beside a large one keeps
its 11 bits. That is 2 dim + 4 bytes instead of 4 dim. A part with several features has the vectors of a sample side by
side. Padding of sequences is not sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from hotrow.client.base import FeatureVectors
from hotrow.client.pooling import places_in_padding
from hotrow.data.batch import FeatureBlock
from hotrow.errors import InputError
from hotrow.store.kernels import decode_rows, encode_rows
from hotrow.transport.envelope import Buffer
from hotrow.transport.ids import unsigned_for
from hotrow.transport.messages import Vectors
from hotrow.types import Values

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


def pack_vectors(
    outputs: Sequence[FeatureVectors], values: Mapping[str, Values], threads: int = 1
) -> tuple[tuple[Vectors, ...], list[Buffer]]:
    """Headers and frames for a trainer; `values` is the wire format by table."""
    return _packed([(output, output.rows.detach()) for output in outputs], values, threads, lengths=True)


def pack_gradients(
    outputs: Sequence[FeatureVectors], values: Mapping[str, Values], threads: int = 1
) -> tuple[tuple[Vectors, ...], list[Buffer]]:
    """Headers and frames of the gradients after backward. Parts that the model did not use have none."""
    return _packed([(output, output.rows.grad) for output in outputs], values, threads, lengths=False)


def unpack_vectors(
    count: int,
    heads: Sequence[Vectors],
    frames: Sequence[memoryview],
    parts: Sequence[FeatureBlock],
    dims: Mapping[str, int],
    threads: int = 1,
) -> tuple[FeatureVectors, ...]:
    """The outputs for the parts of a batch of `count` samples."""
    outputs = []
    for part, head, mine in _each(heads, frames, parts):
        wide = _wide(part, dims)
        _check(part, head, mine, wide, None if part.kind == "sequence" else count * len(part.features))
        if part.kind != "sequence":
            rows = torch.empty(count, len(part.features), wide)
            _decode(head, mine, rows.view(head.rows, wide).numpy(), threads)
            outputs.append(FeatureVectors(part, rows))
            continue
        bounds = _bounds(part, head, mine, count)
        found = np.empty((head.rows, wide), np.float32)
        _decode(head, mine, found, threads)
        longest = int(np.diff(bounds).max(initial=0))
        mask = np.arange(longest) < np.diff(bounds)[:, None]
        outputs.append(FeatureVectors(part, _padded(found, bounds, longest), torch.from_numpy(mask)))
    return tuple(outputs)


def unpack_gradients(
    heads: Sequence[Vectors], frames: Sequence[memoryview], outputs: Sequence[FeatureVectors], threads: int = 1
) -> None:
    """Put the gradients where backward would have left them."""
    found: list[Tensor | None] = []
    dims = {output.part.table: output.rows.shape[-1] for output in outputs}
    for place, (part, head, mine) in enumerate(_each(heads, frames, [output.part for output in outputs])):
        shape = outputs[place].rows.shape
        if head.values is None:
            found.append(None)
            continue
        wide, bounds = _wide(part, dims), part.bounds
        if part.kind != "sequence" or bounds is None:
            _check(part, head, mine, wide, shape[0] * shape[1])
            gradient = torch.empty(shape)
            _decode(head, mine, gradient.view(head.rows, wide).numpy(), threads)
            found.append(gradient)
            continue
        _check(part, head, mine, wide, len(part.keys))
        rows = np.empty((head.rows, wide), np.float32)
        _decode(head, mine, rows, threads)
        found.append(_padded(rows, bounds, shape[1]))
    for output, came in zip(outputs, found, strict=True):
        output.rows.grad = came


def plain_bytes(heads: Sequence[Vectors]) -> int:
    """The size of the vectors as float32."""
    return sum(4 * head.rows * head.wide for head in heads if head.values is not None)


def _packed(
    given: Sequence[tuple[FeatureVectors, Tensor | None]], values: Mapping[str, Values], threads: int, *, lengths: bool
) -> tuple[tuple[Vectors, ...], list[Buffer]]:
    heads: list[Vectors] = []
    frames: list[Buffer] = []
    for output, tensor in given:
        rows, sequence_lengths = _rows(output, tensor)
        kind = values.get(output.part.table, "fp32")
        if rows is None:
            heads.append(Vectors(0, output.rows.shape[-1], None))
            continue
        frames += [rows] if kind == "fp32" else encode_rows(rows, threads)
        wide = 0
        if lengths and sequence_lengths is not None:
            wide = unsigned_for(int(sequence_lengths.max(initial=0)))
            frames.append(sequence_lengths.astype(f"<u{wide}"))
        heads.append(Vectors(*rows.shape, kind, wide))  # type: ignore[call-arg]
    return tuple(heads), frames


def _rows(output: FeatureVectors, tensor: Tensor | None) -> tuple[F32 | None, I64 | None]:
    """The rows without padding, and the lengths of sequences."""
    sequence_lengths = None if output.mask is None else output.mask.sum(1).numpy()
    if tensor is None:
        return None, sequence_lengths
    if sequence_lengths is None or output.mask is None:
        return tensor.reshape(tensor.shape[0] * tensor.shape[1], tensor.shape[2]).numpy(), None
    return tensor[output.mask].numpy(), sequence_lengths


def _wide(part: FeatureBlock, dims: Mapping[str, int]) -> int:
    if part.table not in dims:
        raise InputError(f"table {part.table!r}: there is no such table; there are: {', '.join(sorted(dims))}")
    return dims[part.table]


def _each(
    heads: Sequence[Vectors], frames: Sequence[memoryview], parts: Sequence[FeatureBlock]
) -> Iterator[tuple[FeatureBlock, Vectors, list[memoryview]]]:
    """Each part with its header and frames."""
    if len(heads) != len(parts):
        raise InputError(f"vectors of {len(heads)} parts came, the batch has {len(parts)}")
    ends = np.cumsum([_frames(head) for head in heads], dtype=np.int64)
    if len(frames) != (int(ends[-1]) if len(ends) else 0):
        raise InputError(f"{len(frames)} frames came for {len(heads)} parts that have {int(ends[-1])}")
    for part, head, end in zip(parts, heads, ends, strict=True):
        yield part, head, list(frames[end - _frames(head) : end])


def _frames(head: Vectors) -> int:
    return {None: 0, "fp32": 1, "fp16-scaled": 2}[head.values] + bool(head.lengths)


def _check(part: FeatureBlock, head: Vectors, frames: Sequence[memoryview], wide: int, rows: int | None) -> None:
    """Raise InputError before anything is allocated."""
    who = f"vectors of {part.features[0]!r}"
    if head.wide != wide or head.values is None or (rows is not None and head.rows != rows):
        expected = f"[{'any' if rows is None else rows}, {wide}]"
        raise InputError(f"{who} are [{head.rows}, {head.wide}], expected {expected}")
    sizes = [4 * head.rows * wide] if head.values == "fp32" else [2 * head.rows * wide, 4 * head.rows]
    for frame, size in zip(frames, sizes, strict=False):
        if frame.nbytes != size:
            raise InputError(f"{who}: the frame has {frame.nbytes} bytes, the header says {size}")


def _decode(head: Vectors, frames: Sequence[memoryview], out: F32, threads: int) -> None:
    if head.values == "fp32":
        np.copyto(out, _array(frames[0], "<f4").reshape(out.shape))
    else:
        decode_rows(_array(frames[0], "<u2").reshape(out.shape), _array(frames[1], "<f4"), out, threads)


def _bounds(part: FeatureBlock, head: Vectors, frames: Sequence[memoryview], count: int) -> I64:
    """The bounds of a sequence, from the lengths in its last frame."""
    who = f"lengths of {part.features[0]!r}"
    if not head.lengths:
        raise InputError(f"{who}: are missing, a sequence has them")
    if frames[-1].nbytes != head.lengths * count:
        raise InputError(f"{who}: the frame has {frames[-1].nbytes} bytes, {count} samples have {head.lengths} each")
    sequence_lengths = _array(frames[-1], f"<u{head.lengths}").astype(np.int64)
    if sequence_lengths.sum() != head.rows:
        raise InputError(f"{who}: add up to {sequence_lengths.sum()}, {head.rows} rows came")
    return np.concatenate([[0], np.cumsum(sequence_lengths)])


def _array(frame: memoryview, kind: DTypeLike) -> NDArray[Any]:
    """The frame as an array; small frames may be unaligned in libzmq's buffer, and are copied."""
    array = np.frombuffer(frame, kind)
    return array if array.flags.aligned else array.copy()


def _padded(rows: F32, bounds: I64, longest: int) -> Tensor:
    padded = torch.zeros(len(bounds) - 1, longest, rows.shape[1])
    padded.view(-1, rows.shape[1]).numpy()[places_in_padding(bounds, longest)] = rows
    return padded
