"""Large batches trained through GPU memory leave the rows that training in the RAM tier alone leaves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.store import RamTier
from hotrow.store.hbm import HbmPartitions, HbmTier, WorkingSet
from hotrow.store.host_tier import HostTier
from hotrow.store.tiered import TieredTier
from working_set_runs import DEVICE, DIM, SMALL, batches, check_same_rows, gradients, train_in_memory


def train_in_gpu_memory(working: WorkingSet[Any], *, ahead: bool) -> None:
    step, large = 0, batches(7)
    for number, batch in enumerate(large):
        working.begin(torch.tensor(np.concatenate(batch), device=DEVICE))
        if ahead and number + 1 < len(large):
            working.prefetch(torch.tensor(np.concatenate(large[number + 1]), device=DEVICE))
        for keys in batch:
            plan = working.find(torch.tensor(keys, device=DEVICE), torch.empty(len(keys), DIM, device=DEVICE))
            given = torch.tensor(gradients(keys, step), device=DEVICE)
            working.apply(plan, given, step=step, samples=5 * (step + 1))
            step += 1


def one_table(host: HostTier) -> HbmTier:
    return HbmTier(host.spec(24, **SMALL), DEVICE)


def two_partitions(host: HostTier) -> HbmPartitions:
    return HbmPartitions(host.spec(32, **SMALL), [DEVICE] * 2)


@pytest.mark.parametrize(
    ("optimizer", "upper", "ahead"),
    [
        (hr.Adagrad(lr=0.1, swap=hr.Swap(period=8, decay=0.5)), one_table, True),
        (hr.Adam(lr=0.01), two_partitions, False),
    ],
    ids=["adagrad-swap ahead", "adam partitions"],
)
def test_rows_after_a_flush_are_those_of_training_in_memory(
    optimizer: Any, upper: Callable[[HostTier], Any], ahead: bool
) -> None:
    table = hr.Table(dim=DIM, optimizer=optimizer)
    host = HostTier(RamTier(table))
    with WorkingSet(upper(host), host) as working:
        train_in_gpu_memory(working, ahead=ahead)
        changed = working.moved.down
        working.flush()
        assert working.upper.verify() == []  # type: ignore[attr-defined]
        again = working.moved.down
        working.flush()
        assert working.moved.down == again > changed > 0  # rows were displaced, and a second flush has nothing to do
        assert (working.moved.up_ahead > 0) == ahead
    check_same_rows(host.tier, train_in_memory(table))


def test_the_tier_below_may_be_on_disk(tmp_path: Path) -> None:
    table = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.1))
    below = TieredTier(table.model_copy(update={"capacity": 32, "disk": "16MB", "path": tmp_path}))
    host = HostTier(below)
    with WorkingSet(one_table(host), host) as working:
        train_in_gpu_memory(working, ahead=True)
    wanted = train_in_memory(table)
    found, theirs = np.empty((60, DIM), np.float32), np.empty((60, DIM), np.float32)
    below.find(np.arange(60), found)
    wanted.find(np.arange(60), theirs)
    np.testing.assert_allclose(found, theirs, rtol=1e-6, atol=1e-6)
    below.close()


def test_rows_prefetched_before_others_moved_are_read_again() -> None:
    host = HostTier(RamTier(hr.Table(dim=DIM)))
    with WorkingSet(one_table(host), host) as working:
        working.prefetch(torch.tensor([1, 2], device=DEVICE))
        working.begin(torch.tensor([2, 3], device=DEVICE))  # another batch: 2 changes in GPU memory now
        working.prefetch(torch.tensor([1, 2], device=DEVICE))
        working.begin(torch.tensor([1, 2], device=DEVICE))
        assert working.moved.reread == 1
        assert working.moved.up_ahead == 1
        assert len(host.tier) == 3


def test_rows_that_came_meanwhile_are_not_overwritten_by_what_was_prefetched() -> None:
    host = HostTier(RamTier(hr.Table(dim=DIM)))
    with WorkingSet(one_table(host), host) as working:
        keys, rows = torch.tensor([1, 2], device=DEVICE), torch.ones(1, DIM, device=DEVICE)
        working.prefetch(keys)
        working.upper.put_and_evict(keys[:1], rows)
        working.begin(keys)
        out = torch.empty(2, DIM, device=DEVICE)
        working.find(keys, out)
        assert out[0].tolist() == [1.0, 1.0]
        assert working.moved.reread == 1


def test_rows_that_did_not_change_are_not_written() -> None:
    host = HostTier(RamTier(hr.Table(dim=DIM)))
    with WorkingSet(one_table(host), host) as working:
        working.begin(torch.arange(4, device=DEVICE))
        working.apply(working.find(torch.tensor([2], device=DEVICE)), torch.ones(1, DIM, device=DEVICE))
        working.flush()
        assert (working.moved.up, working.moved.down) == (4, 1)


def test_a_batch_that_does_not_fit_says_so_and_loses_no_change() -> None:
    table = hr.Table(dim=DIM, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.0))
    host = HostTier(RamTier(table))
    working = WorkingSet(HbmTier(host.spec(8, **SMALL), DEVICE), host)
    working.begin(torch.tensor([1], device=DEVICE))
    working.apply(working.find(torch.tensor([1], device=DEVICE)), torch.ones(1, DIM, device=DEVICE))
    with pytest.raises(InputError, match=r"begin: 1 of 9 rows found no room .* raise capacity"):
        working.begin(torch.arange(10, 19, device=DEVICE))
    with pytest.raises(InputError, match="1 keys are not in the working set"):
        working.find(torch.tensor([1], device=DEVICE))
    working.close()
    out = np.empty((1, DIM), np.float32)
    host.tier.find(np.array([1]), out)
    assert out.tolist() == [[-1.0, -1.0]]


def test_tables_that_cannot_be_below_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Table\.admission is set"):
        HostTier(RamTier(hr.Table(dim=DIM, admission=hr.AtLeast(count=2))))
    with pytest.raises(ConfigError, match=r"Table\.expiry is set"):
        HostTier(RamTier(hr.Table(dim=DIM, expiry=100)))
    host = HostTier(RamTier(hr.Table(dim=DIM)))
    untracked = HbmTier(replace(host.spec(8, **SMALL), track_changes=False), DEVICE)
    with pytest.raises(ConfigError, match="track_changes=False"):
        WorkingSet(untracked, host)


def test_a_batch_of_no_mini_batches_does_nothing() -> None:
    host = HostTier(RamTier(hr.Table(dim=DIM)))
    with WorkingSet(one_table(host), host) as working:
        keys = torch.tensor([1, 2], device=DEVICE)
        working.prefetch(keys)
        working.prefetch([])
        working.begin([])
        working.begin(keys)
        assert (working.moved.up, working.moved.up_ahead, working.moved.reread) == (2, 2, 0)
