"""Rows that a trainer's batches use in GPU memory are those of a table in memory, after loads and at any value."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.store import RamTier
from hotrow.store.hbm import HbmTier
from hotrow.store.hbm.batch_working_set import BatchWorkingSet
from hotrow.store.host_tier import HostTier
from working_set_runs import DEVICE, DIM, SMALL, check_same_rows, gradients

SAMPLES = 5
SWAP = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.1, swap=hr.Swap(period=8, decay=0.5)))


def keys_of(step: int) -> Any:
    return np.unique(np.random.default_rng(step).integers(0, 20, SAMPLES))


class InMemory:
    """Steps of a table in memory."""

    def __init__(self, table: hr.Table) -> None:
        self.tier = RamTier(table)

    def step(self, step: int, keys: Any, given: Any, **settings: Any) -> None:
        plan = self.tier.find_or_init(keys, samples=SAMPLES * step)
        self.tier.apply(plan, given, step=step, samples=SAMPLES * (step + 1), **settings)

    def flush(self) -> None: ...

    def empty(self) -> None: ...


class ThroughGpuMemory(InMemory):
    """The same steps above it."""

    def __init__(self, table: hr.Table, rows: int = 24) -> None:
        super().__init__(table)
        host = HostTier(self.tier)
        self.upper = HbmTier(host.spec(rows, **SMALL), DEVICE)
        self.working = BatchWorkingSet(self.upper, host)
        self.flush, self.empty = self.working.flush, self.working.empty  # type: ignore[method-assign]

    def step(self, step: int, keys: Any, given: Any, **settings: Any) -> None:
        batch = self.upper.batch(torch.tensor(keys, device=DEVICE))
        plan = self.working.look_up(batch, samples=SAMPLES * step)
        assert plan.folded is not None
        sums = torch.tensor(given, device=DEVICE)[plan.folded.keys[:, None].eq(batch.keys).int().argmax(1)]
        self.working.apply_sums(plan, sums, step=step, samples=SAMPLES * (step + 1), **settings)


def both(table: hr.Table) -> tuple[InMemory, ThroughGpuMemory]:
    return InMemory(table), ThroughGpuMemory(table)


def test_after_a_load_of_earlier_rows_their_swap_periods_count_on_from_there() -> None:
    plain, gpu = both(SWAP)
    for run in (plain, gpu):
        for step in range(2):
            run.step(step, keys_of(step), gradients(keys_of(step), step))
        run.flush()
        saved = run.tier.whole_rows(np.sort(np.concatenate([chunk.keys for chunk in run.tier.export()])))
        for step in range(2, 12):
            run.step(step, keys_of(step), gradients(keys_of(step), step))
        run.empty()
        run.tier.clear()
        run.tier.put(saved.keys, saved.values, saved.state, saved.fields)
        for step in range(2, 5):
            run.step(step, keys_of(step), gradients(keys_of(step), step))
        run.flush()
    check_same_rows(gpu.tier, plain.tier)


def test_an_empty_working_set_has_no_rows_and_takes_others() -> None:
    gpu = ThroughGpuMemory(SWAP)
    for step in range(6):
        gpu.step(step, keys_of(step), gradients(keys_of(step), step))
    gpu.empty()
    assert (len(gpu.upper), gpu.upper.verify(), list(gpu.upper.export())) == (0, [], [])
    gpu.step(6, keys_of(6), gradients(keys_of(6), 6))
    assert len(gpu.upper) == len(keys_of(6))
    assert gpu.upper.verify() == []
