"""Checks of what callers give to a table in GPU memory."""

from collections.abc import Mapping

import torch
from torch import Tensor

from hotrow.errors import ConfigError, InputError
from hotrow.kernels.launch import takes_kernel
from hotrow.kernels.unique import UniqueKeys, unique
from hotrow.store.hbm.rows import HbmRows
from hotrow.store.hbm.spec import HbmSpec


def as_keys(who: str, keys: Tensor, device: torch.device) -> Tensor:
    """Keys as int64, the bits of uint64 as they are."""
    if not isinstance(keys, Tensor) or keys.dim() != 1 or keys.dtype not in (torch.int64, torch.uint64):
        have = f"{keys.dtype} {tuple(keys.shape)}" if isinstance(keys, Tensor) else type(keys).__name__
        raise InputError(f"{who}: keys is {have}: must be a tensor of int64 or uint64 with one dimension")
    check_device(f"{who}: keys", keys, device)
    return keys.view(torch.int64).contiguous()


def as_matrix(
    what: str, given: Tensor, rows: int, columns: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """A contiguous tensor of this shape and type."""
    if given.dtype != dtype or given.shape != (rows, columns) or not given.is_contiguous():
        layout = "" if given.is_contiguous() else ", not contiguous"
        raise InputError(
            f"{what} is {given.dtype} {tuple(given.shape)}{layout}: "
            f"must be contiguous {_name(dtype)} ({rows}, {columns})"
        )
    check_device(what, given, device)
    return given


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def as_columns(
    who: str, spec: HbmSpec, keys: Tensor, values: Tensor, state: Tensor | None, fields: Mapping[str, Tensor] | None
) -> HbmRows:
    """Whole rows, checked. Without `state` it is empty, and only given fields are there."""
    value = as_matrix(f"{who}: values", values, len(keys), spec.dim, keys.device)
    if state is not None:
        state = as_matrix(f"{who}: state", state, len(keys), spec.state_dim, keys.device)
    columns = {}
    for name, column in (fields or {}).items():
        if name not in spec.fields:
            raise InputError(f"{who}: fields has {name!r}: rows of table {spec.name!r} have {', '.join(spec.fields)}")
        if column.shape != keys.shape or column.dtype not in (torch.int32, torch.uint32):
            have = f"{column.dtype} {tuple(column.shape)}"
            raise InputError(f"{who}: {name} is {have}: must be int32 or uint32 ({len(keys)},)")
        check_device(f"{who}: {name}", column, keys.device)
        columns[name] = column.view(torch.int32).contiguous()
    if "version" in columns and not bool((columns["version"] != 0).all()):
        raise InputError(f"{who}: version holds a 0: rows that exist have 1 or more")
    return HbmRows(keys, value, value.new_empty(len(keys), 0) if state is None else state, columns)


def distinct(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct keys, in any order, and for each key which of them it is. Waits for the device."""
    found = unique(keys)
    return found.keys[: int(found.size)], found.inverse.to(torch.int64)


def check_once(who: str, folded: UniqueKeys) -> None:
    """Refuse keys that occur more than once. Waits for the device."""
    if twice := len(folded.inverse) - int(folded.size):
        raise InputError(f"{who}: keys: {twice} of them occur twice, give each row once")


def check_usable(device: torch.device) -> None:
    """Refuse a device that no table can be on."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= gpus:
        raise ConfigError(f"device='{device}': torch {torch.__version__} sees {gpus} GPUs: give one that it sees")
    if device.type not in ("cuda", "cpu") or not takes_kernel(torch.empty(0, device=device)):
        raise ConfigError(f"device='{device}': a table in GPU memory needs a GPU, or TRITON_INTERPRET=1 for its checks")


def check_device(what: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise InputError(f"{what} is on {tensor.device}: the table is on {device}, move it there")
