"""What launches share: which tensors take a kernel, how a tile is cut, checks of arguments."""

from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from hotrow.errors import InputError

DIM_MAX = 1024  # a tile holds whole rows
forced = False  # tests set it: tensors on the CPU take the kernel, which is then only compiled
_TILE = 1024  # elements of a tile: 8 for each thread of four warps
_WARP_TILE = 256  # elements: 8 for each thread
_PROGRAMS_PER_MULTIPROCESSOR = 64


def takes_kernel(tensor: Tensor) -> bool:
    """Whether a kernel computes: on a GPU, or in Triton's interpreter."""
    return tensor.is_cuda or forced or bool(triton.knobs.runtime.interpret)


def launch(kernel: Any, programs: int, first: Tensor, /, *arguments: Any, **constants: Any) -> None:
    """Run a kernel on the device of its first tensor, which need not be torch's current one; no programs, no launch.

    Products are rounded before they are added, as in the native store: Triton versions differ in their default.
    Triton looks at all arguments of a launch to find what it has compiled, some 80 us on a slow host, more than many
    of these kernels take; here a launch like an earlier one goes straight to its program.
    """
    if not programs:
        return
    given = (first, *arguments)
    if not first.is_cuda:
        kernel[(programs,)](*given, **constants, enable_fp_fusion=False)
        return
    device = first.device
    with nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device):
        like = (kernel, device, *constants.values(), *map(_kind, given))
        known = _programs.get(like)
        if known is not None:
            program, fixed = known
            program[(programs, 1, 1)](*given, *fixed, stream=raw_stream(device.index))
            return
        program = kernel[(programs,)](*given, **constants, enable_fp_fusion=False)
        _programs[like] = program, tuple(constants[name] for name in kernel.arg_names[len(given) :])


def raw_stream(device: int) -> int:
    """The handle of torch's current stream: `torch.cuda.current_stream` makes an object around it, for 10 us."""
    handle: int = triton.runtime.driver.active.get_current_stream(device)
    return handle


_programs: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}  # compiled, with the constants behind the arguments


def _kind(value: Any) -> Any:
    """What a program depends on: types, alignments, and that a number is 1. As Triton's rules, or finer."""
    kind = type(value)
    if kind is int:
        return value == 1, value % 16 == 0, -(2**31) <= value < 2**31
    if kind is float or value is None:
        return kind
    return value.dtype, value.data_ptr() % 16 == 0


def block_dim(who: str, dim: int) -> int:
    """Columns of a tile that holds rows of `dim` floats."""
    if not 1 <= dim <= DIM_MAX:
        raise InputError(f"{who}: rows of {dim:,} floats: must be from 1 to {DIM_MAX:,}")
    return int(triton.next_power_of_2(dim))


def block_rows(block_dim: int, most: int = 64) -> int:
    """Rows of a tile with this many columns."""
    return max(1, min(most, _TILE // block_dim))


def warp_tile(block_dim: int) -> dict[str, int]:
    """Rows and warps of a tile that one warp holds, where rows are not too wide: no step of it waits at a barrier."""
    return {"ROWS": min(32, max(1, _WARP_TILE // block_dim)), "num_warps": max(1, block_dim // _WARP_TILE)}


def programs_of(tensor: Tensor, tiles: int) -> int:
    """Programs that take tiles in turn, where the device alone knows how many of at most `tiles` there are."""
    return min(tiles, _PROGRAMS_PER_MULTIPROCESSOR * _multiprocessors(tensor.device)) if tensor.is_cuda else tiles


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def check_vectors(who: str, rows: Tensor, size: str = "dim") -> None:
    """Refuse what is not the vectors of samples: three dimensions, float32 or bfloat16."""
    if rows.dim() != 3 or rows.dtype not in (torch.float32, torch.bfloat16):
        raise InputError(
            f"{who}: rows is {rows.dtype} {tuple(rows.shape)}: must be torch.float32 or torch.bfloat16 "
            f"(samples, fields, {size})"
        )


def check(
    who: str,
    name: str,
    tensor: Tensor,
    dtype: torch.dtype,
    shape: tuple[int | None, ...],
    *,
    strided: bool = False,
) -> None:
    """Refuse a tensor of another type or shape (None: any size), or whose last dimension is not contiguous.

    With `strided` it need not be.
    """
    fits = tensor.dim() == len(shape) and all(
        want in (None, have) for want, have in zip(shape, tensor.shape, strict=True)
    )
    if tensor.dtype != dtype or not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{who}: {name} is {tensor.dtype} {tuple(tensor.shape)}: must be {dtype} ({wanted})")
    if not strided and tensor.numel() and tensor.stride(-1) != 1 and tensor.shape[-1] != 1:
        raise InputError(f"{who}: {name} has strides {tensor.stride()}: its last dimension must be contiguous")
