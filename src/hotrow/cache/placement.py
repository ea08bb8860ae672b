"""Which memory has the cached rows of a trainer: its GPU's, where it has one."""

from collections.abc import Mapping
from importlib.util import find_spec

import torch

from hotrow.config import HBM_DIM, Table


def caches_on_device(
    tables: Mapping[str, Table], device: torch.device
) -> tuple[dict[str, torch.device], dict[str, str]]:
    """The device of cached tables whose rows are there, and a sentence for each that had to stay in host memory."""
    there: dict[str, torch.device] = {}
    stay: dict[str, str] = {}
    for name, table in tables.items():
        if device.type == "cpu" or table.cache is None or table.cache.memory == "host":
            continue
        if (why := _host_reason(table)) is None:
            there[name] = device
        else:
            stay[name] = f"tables.{name}.cache: its rows are in host memory, not on {device}: {why}"
    return there, stay


def _host_reason(table: Table) -> str | None:
    """Why the rows of a cached table cannot be in GPU memory."""
    if find_spec("triton") is None:
        return "Triton is not installed: pip install 'hotrow[gpu]'"
    if table.dim > HBM_DIM:
        return f"dim={table.dim:,}: kernels have rows of {HBM_DIM:,} floats at most"
    return None
