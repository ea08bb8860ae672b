"""Rows that a trainer's batches use in GPU memory are those of a table in memory, after loads and at any value."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.errors import InputError
from hotrow.store import RamTier
from hotrow.store.hbm import HbmTier
from hotrow.store.hbm.batch_working_set import BatchWorkingSet
from hotrow.store.host_tier import HostTier, row_bytes
from hotrow.store.tiered import TieredTier
from working_set_runs import DEVICE, DIM, SMALL, check_same_rows, gradients

SAMPLES = 5
SWAP = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.1, swap=hr.Swap(period=8, decay=0.5)))


def keys_of(step: int) -> Any:
    return np.unique(np.random.default_rng(step).integers(0, 20, SAMPLES))


class InMemory:
    """Steps of a table in memory."""

    def __init__(self, table: hr.Table) -> None:
        self.tier = RamTier(table) if table.disk is None else TieredTier(table)

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


def on_disk(path: Path, **settings: Any) -> hr.Table:
    given: dict[str, Any] = {"dim": DIM, "optimizer": hr.SGD(lr=1.0), "init": hr.Constant(value=0.0)}
    return hr.Table(**given, capacity=16, disk="16MB", path=path, **settings)


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_rows_that_become_infinite_go_down_and_come_up_as_in_memory(disk: bool, tmp_path: Path) -> None:
    table = on_disk(tmp_path / "plain") if disk else hr.Table(dim=DIM, optimizer=hr.SGD(lr=1.0))
    of_memory = table.model_copy(update={"capacity": None, "disk": None, "path": None})
    plain, gpu = InMemory(of_memory), ThroughGpuMemory(table, rows=8)
    for run in (plain, gpu):
        for step in range(12):
            keys = np.array([0, 1]) if step % 4 == 0 else np.arange(step * 6, step * 6 + 6)
            given = np.ones((len(keys), DIM), np.float32)
            given[keys == 1] = 1e19
            run.step(step, keys, given, lr_scale=1e20)
        run.flush()
    rows, theirs = (run.tier.whole_rows(np.arange(2)) for run in (gpu, plain))
    assert not np.isfinite(theirs.values[1]).any()
    np.testing.assert_array_equal(rows.values, theirs.values)
    np.testing.assert_array_equal(rows.fields["version"], theirs.fields["version"])
    with pytest.raises(InputError, match="values holds NaN or infinity"):
        gpu.tier.put(np.arange(2), theirs.values)
    gpu.tier.close()


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_rows_that_come_down_were_seen_then(eviction: Any, tmp_path: Path) -> None:
    gpu, keys = ThroughGpuMemory(on_disk(tmp_path, eviction=eviction), rows=8), np.arange(4)
    assert gpu.upper.spec.kept_fields == (("frequency",) if eviction == "lfu" else ())
    samples = 1024 // SAMPLES + 1  # in a unit of `last_seen`
    for step in (0, samples, 3 * samples):
        gpu.step(step, keys, np.ones((4, DIM), np.float32))
        gpu.step(step, keys + 4, np.ones((4, DIM), np.float32))
    gpu.step(3 * samples, keys + 8, np.ones((4, DIM), np.float32))  # rows are read below: its clock is told
    gpu.flush()
    assert gpu.tier.whole_rows(keys).fields["last_seen"].tolist() == [3] * 4
    gpu.tier.close()


def test_a_first_lookup_tells_the_tier_below_that_no_sample_was_trained(tmp_path: Path) -> None:
    gpu = ThroughGpuMemory(on_disk(tmp_path))
    gpu.step(0, np.arange(4), np.ones((4, DIM), np.float32))
    gpu.flush()
    assert gpu.tier.whole_rows(np.arange(4)).fields["last_seen"].tolist() == [0] * 4
    gpu.tier.close()


@pytest.mark.parametrize("settings", [{}, {"eviction": "lru"}, {"eviction": "lfu"}], ids=["memory", "lru", "lfu"])
@pytest.mark.parametrize(
    "optimizer", [hr.SGD(lr=1.0), hr.Adam(lr=1.0), hr.Adagrad(lr=1.0, swap=hr.Swap(period=8, decay=0.5))]
)
def test_the_bytes_of_a_row_are_those_that_a_table_takes(optimizer: Any, settings: Any, tmp_path: Path) -> None:
    table = hr.Table(dim=5, optimizer=optimizer)
    if settings:
        table = hr.Table(dim=5, optimizer=optimizer, capacity=64, disk="16MB", path=tmp_path, **settings)
    tier = TieredTier(table) if settings else RamTier(table)
    spec = HostTier(tier).spec(128)
    taken = HbmTier(spec, DEVICE).stats().bytes / spec.slots
    assert taken <= spec.row_bytes == row_bytes(table) < taken + 1
    tier.close()
