"""Embedding tables in files of torch (.pt, .pth) and of safetensors: a tensor by its key, whole or in pieces of ranks.

Nothing of a file is executed: torch.load reads it with weights_only. TorchRec's ShardedTensors are read without a
process group: stand-ins take the place of their classes and keep the local shards.
"""

import io
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hotrow.data.files import File
from hotrow.errors import ConfigError, InputError
from hotrow.store.arrays import Floats, Keys

SAFETENSORS = ".safetensors"
UNREADABLE = (
    pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, OSError,
    ValueError, KeyError, TypeError, AttributeError, IndexError,
)  # fmt: skip
SHOWN = 12  # keys in a message


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a matrix, from this row and this column on."""

    row: int
    column: int
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class TensorTable:
    """A matrix whose row numbers are the keys."""

    source: str
    rows: int
    dim: int
    pieces: tuple[Piece, ...]
    numbered: bool = True

    def chunks(self, rows: int) -> Iterator[tuple[Keys, Floats]]:
        """All rows in order."""
        for first in range(0, self.rows, rows):
            last = min(first + rows, self.rows)
            values = np.empty((last - first, self.dim), np.float32)
            for piece in self.pieces:
                height, width = piece.tensor.shape
                low, high = max(first, piece.row), min(last, piece.row + height)
                if low < high:
                    part = piece.tensor[low - piece.row : high - piece.row].detach().to(torch.float32).numpy()
                    values[low - first : high - first, piece.column : piece.column + width] = part
            yield np.arange(first, last, dtype=np.uint64), values


def tensors_in(file: File) -> dict[str, Any]:
    """Everything in a file by its key; keys of nested dicts are joined by dots."""
    try:
        if file.path.endswith(SAFETENSORS):
            return _safetensors(file)
        return dict(_flat(_state_dict(file)))
    except UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"is no file of plain tensors that can be read without executing it ({reason})"
        raise InputError(f"{file.name}: {message}: save model.state_dict() with torch.save, or safetensors") from None


def tensor_table(name: str, key: str, files: Sequence[tuple[File, Mapping[str, Any]]]) -> TensorTable:
    """The tensor with this key; where several files have it, they have its pieces, in the order of ranks."""
    found = [(file, held[key]) for file, held in files if key in held]
    if not found:
        known = [each for _, held in files for each, value in held.items() if _is_matrix(value)]
        shown = ", ".join(map(repr, known[:SHOWN])) + (", …" if len(known) > SHOWN else "")
        raise ConfigError(f"--table {name}={key}: no file has this key; there are {shown or 'no matrices'}")
    source = f"{', '.join(file.name for file, _ in found)}: {key}"
    if not all(isinstance(value, Tensor) for _, value in found):
        raise InputError(f"{source}: is a {type(found[0][1]).__name__}: name a tensor")
    shape = tuple(found[0][1].shape)
    if len(shape) != 2 or any(tuple(value.shape) != shape for _, value in found):
        shapes = " and ".join(dict.fromkeys(str(tuple(value.shape)) for _, value in found))
        raise InputError(f"{source}: has the shape {shapes}: name a matrix of rows")
    with torch.no_grad():  # with gradients a DTensor gives its local tensor only where there is a process group
        pieces = _pieces(source, [value for _, value in found])
    for piece in pieces:
        if not piece.tensor.is_floating_point():
            raise InputError(f"{source}: holds {piece.tensor.dtype}: name a tensor of floats")
    _check_complete(source, shape, pieces)
    return TensorTable(source, shape[0], shape[1], tuple(pieces))


def _is_matrix(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2


def _pieces(source: str, values: Sequence[Any]) -> list[Piece]:
    if isinstance(values[0], _ShardedTensor):
        return [piece for value in values for piece in value.pieces]
    if hasattr(values[0], "placements"):  # a DTensor
        return _of_ranks(source, values)
    if len(values) > 1:
        raise InputError(f"{source}: is whole in {len(values)} files: name one of them")
    return [Piece(0, 0, values[0])]


def _of_ranks(source: str, values: Sequence[Any]) -> list[Piece]:
    """Local tensors of a DTensor, one of each rank in order."""
    if len(values[0].placements) != 1:
        message = f"is a DTensor over {len(values[0].placements)} dimensions of ranks"
        raise InputError(f"{source}: {message}: save its full_tensor()")
    placement, pieces, at = values[0].placements[0], [], 0
    if placement.is_replicate():
        return [Piece(0, 0, values[0].to_local())]
    if not placement.is_shard():
        raise InputError(f"{source}: is a DTensor placed as {placement}: save its full_tensor()")
    for value in values:
        local = value.to_local()
        pieces.append(Piece(at, 0, local) if placement.dim == 0 else Piece(0, at, local))
        at += local.shape[placement.dim]
    return pieces


def _check_complete(source: str, shape: tuple[int, ...], pieces: Sequence[Piece]) -> None:
    """InputError where pieces overlap, or do not cover the matrix."""
    if any(min(piece.row, piece.column) < 0 for piece in pieces):
        raise InputError(f"{source}: a piece of it begins before row 0: the file is damaged, take another one")
    boxes = [(p.row, p.row + p.tensor.shape[0], p.column, p.column + p.tensor.shape[1]) for p in pieces]
    for place, (top, bottom, left, right) in enumerate(boxes):
        for other in boxes[:place]:
            if top < other[1] and other[0] < bottom and left < other[3] and other[2] < right:
                message = f"row {max(top, other[0])} is in two pieces"
                raise InputError(f"{source}: {message}: name the file of each rank once")
    held = sum(piece.tensor.numel() for piece in pieces)
    fit = all(bottom <= shape[0] and right <= shape[1] for _, bottom, _, right in boxes)
    if held != shape[0] * shape[1] or not fit:
        message = f"its pieces hold {held:,} of {shape[0] * shape[1]:,} numbers"
        raise InputError(f"{source}: {message}: name the files of all ranks, in order")


def _safetensors(file: File) -> dict[str, Any]:
    if file.is_local:
        with safe_open(file.path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    from safetensors.torch import load

    return dict(load(file.stream().read()))


def _state_dict(file: File) -> Any:
    import torch.distributed.tensor  # so that DTensors are known

    with torch.serialization.safe_globals(_stand_ins()):
        if file.is_local:
            mapped = zipfile.is_zipfile(file.path)  # the format before torch 1.6 cannot be mapped
            return torch.load(file.path, map_location="cpu", weights_only=True, mmap=mapped)
        return torch.load(io.BytesIO(file.stream().read()), map_location="cpu", weights_only=True)


def _flat(found: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(found, Mapping):
        yield prefix.removesuffix("."), found
        return
    for name, value in found.items():
        yield from _flat(value, f"{prefix}{name}.")


class _Facts:
    """In the place of any class that describes a ShardedTensor; keeps what it was made from."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        """Arguments are those of an enumeration's value."""

    def __setstate__(self, state: Any) -> None:
        self.state = state[1] if isinstance(state, tuple) and len(state) == 2 and state[0] is None else state


class _ShardedTensor(Tensor):
    """In the place of torch's class, which wants a process group before it is read."""

    pieces: list[Piece]

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("a ShardedTensor is only read by its pieces")

    def __setstate__(self, state: Any) -> None:
        self.pieces = []
        for shard in state[0]:
            row, column = shard.state["metadata"].state["shard_offsets"]
            self.pieces.append(Piece(row, column, shard.state["tensor"]))


def _facts_of(_owner: Any, _name: str) -> type[_Facts]:
    """In the place of getattr, by which a class inside ShardedTensor is named."""
    return _Facts


def _stand_ins() -> list[Any]:
    shard = "torch.distributed._shard"
    described = (
        f"{shard}.metadata.ShardMetadata",
        f"{shard}.sharded_tensor.shard.Shard",
        f"{shard}.sharded_tensor.metadata.ShardedTensorMetadata",
        f"{shard}.sharded_tensor.metadata.TensorProperties",
        f"{shard}.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
        f"{shard}.sharding_spec.api.EnumerableShardingSpec",
        f"{shard}.sharding_spec.chunk_sharding_spec.ChunkShardingSpec",
        "torch.distributed.remote_device._remote_device",
    )
    return [
        *((_Facts, name) for name in described),
        (_facts_of, "builtins.getattr"),
        (_ShardedTensor, f"{shard}.sharded_tensor.api.ShardedTensor"),
    ]
