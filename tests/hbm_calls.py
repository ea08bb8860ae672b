"""Calls of every kernel of the table in GPU memory: they are compiled for a GPU (kernel_compile.py)."""

from collections.abc import Callable
from dataclasses import replace

import torch

from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmRows, HbmSpec
from hotrow.store.hbm.columns import RowColumns
from hotrow.store.hbm.pinned import PinnedTier
from hotrow.store.hbm.table import CLAMP_EVERY, ClaimBuffers, HashTable


def some_rows(keys: torch.Tensor, spec: HbmSpec) -> HbmRows:
    fields = {name: torch.zeros(len(keys), dtype=torch.int32) for name in spec.fields}
    return HbmRows(keys, torch.zeros(len(keys), spec.dim), torch.zeros(len(keys), spec.state_dim), fields)


def hbm() -> None:
    """The table's own launches: nothing runs, so a call of a tier would find no row that is missing."""
    keys, slots = torch.arange(300), torch.arange(300)
    for eviction in ("lru", "lfu"):
        spec = HbmSpec(dim=64, capacity=1024, rule=UpdateRule("adagrad", lr=0.1), eviction=eviction)
        table, columns = HashTable(spec, torch.device("cpu")), RowColumns(spec, torch.device("cpu"))
        table.find(keys, columns.values, torch.zeros(300, 64), seen=True)
        table.find(keys, columns.values, None, seen=False, size=torch.ones(1, dtype=torch.int32))
        bucket_full = torch.zeros(300, dtype=torch.int8)
        table.find(keys, columns.values, None, seen=False, bucket_full=bucket_full)
        table.claim(keys, slots, ClaimBuffers.of(keys), None, torch.ones(1, dtype=torch.int32))
        table.claim(keys, slots, ClaimBuffers.of(keys), bucket_full, None)
    table.lock(slots)
    table.undo(keys, ClaimBuffers.of(keys), copied=False)
    table.erase(slots)
    table.unlock([slots[:1]])
    columns.read(keys, slots)
    columns.read_values(slots, torch.zeros(300, 64))
    columns.write(slots, some_rows(keys, spec), slots, 0, saved=False)
    columns.write(slots, HbmRows(keys, torch.zeros(300, 64), torch.zeros(300, 64), {}), slots, 0, saved=False)
    for init in ("uniform", "normal", "constant"):
        RowColumns(replace(spec, init=init, capacity=1024), torch.device("cpu")).make(keys, slots, 0)
    below = PinnedTier(replace(spec, capacity=1024), "cpu")
    below._read(keys, slots)
    below._write(slots, some_rows(keys, spec))
    oldest = HashTable(replace(spec, eviction="lru"), torch.device("cpu"))
    oldest.calls = CLAMP_EVERY * spec.calls_per_tick - 1
    oldest.begin_call()


CALLS: dict[str, Callable[[], None]] = {"hbm": hbm}
