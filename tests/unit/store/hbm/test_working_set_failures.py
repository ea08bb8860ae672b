"""A tier below that fails for a while: no change is lost, and none is overwritten by an older one."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.store import RamTier
from hotrow.store.hbm import HbmPartitions, HbmPlan, HbmRows, HbmTier, WorkingSet, partitions
from hotrow.store.hbm.batch_working_set import BatchWorkingSet
from hotrow.store.hbm.copies import HostTierCalls
from hotrow.store.host_tier import HostTier

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DIM = 2


class FlakyDisk(HostTier):
    broken = False

    def write(self, rows: HbmRows) -> None:
        if self.broken:
            raise OSError("no space left")
        super().write(rows)

    def rows(self, keys: range) -> list[list[float]]:
        out = np.empty((len(keys), DIM), np.float32)
        self.tier.find(np.array(keys), out)
        return out.tolist()


def working_set() -> tuple[FlakyDisk, WorkingSet[HbmPlan]]:
    """8 rows in GPU memory, in one bucket; each update takes 1 from a row that starts at 0."""
    host = FlakyDisk(RamTier(hr.Table(dim=DIM, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.0))))
    return host, WorkingSet(HbmTier(host.spec(8, group_slots=4, groups=2), DEVICE), host)


def train(working: WorkingSet[Any], keys: range) -> None:
    batch = torch.tensor(keys, device=DEVICE)
    working.begin(batch)
    working.apply(working.find(batch), torch.ones(len(keys), DIM, device=DEVICE))


def wait_for_writes(working: WorkingSet[Any]) -> None:
    working._thread.submit(int).result()


def test_a_flush_that_fails_is_made_up_by_the_next_one() -> None:
    host, working = working_set()
    train(working, range(5))
    host.broken = True
    with pytest.raises(OSError, match="no space left"):
        working.flush()
    assert working.moved.down == 0
    host.broken = False
    working.flush()
    assert working.moved.down == 5
    working.begin(torch.arange(5, device=DEVICE))  # nothing is raised twice
    assert host.rows(range(5)) == [[-1.0] * DIM] * 5


def test_displaced_rows_whose_write_failed_are_kept_and_written_before_anything_is_read() -> None:
    host, working = working_set()
    train(working, range(8))
    host.broken = True
    train(working, range(10, 18))  # displaces all; their write fails
    wait_for_writes(working)
    with pytest.raises(OSError, match="no space left") as raised:
        working.begin(torch.arange(8, device=DEVICE))
    assert any("their rows are kept" in note for note in raised.value.__notes__)
    with pytest.raises(OSError, match="no space left"):  # what is below is out of date: it is not read
        working.begin(torch.arange(8, device=DEVICE))
    host.broken = False
    train(working, range(8))
    working.close()
    assert host.rows(range(8)) == [[-2.0] * DIM] * 8
    assert host.rows(range(10, 18)) == [[-1.0] * DIM] * 8


def test_a_close_that_fails_can_be_called_again() -> None:
    host, working = working_set()
    train(working, range(3))
    host.broken = True
    with pytest.raises(OSError, match="no space left"):
        working.close()
    host.broken = False
    working.close()
    assert host.rows(range(3)) == [[-1.0] * DIM] * 3


@pytest.mark.parametrize("following", ["flush", "begin"])
def test_rows_that_a_failed_begin_displaced_go_down(following: str) -> None:
    host, working = working_set()
    train(working, range(8))
    columns = working.upper._columns  # type: ignore[attr-defined]
    with mock.patch.object(columns, "write", side_effect=torch.OutOfMemoryError), pytest.raises(RuntimeError):
        working.begin(torch.arange(10, 18, device=DEVICE))
    if following == "begin":
        train(working, range(8))
    working.close()
    assert host.rows(range(8)) == [[-2.0 if following == "begin" else -1.0] * DIM] * 8


def no_memory(*_: Any) -> Any:
    raise torch.OutOfMemoryError("no memory")


def select_unless_by_flags(rows: HbmRows, which: torch.Tensor, real: Any = HbmRows.select) -> Any:
    return no_memory() if which.dtype == torch.bool else real(rows, which)


# What is called between the displacement of rows and the queue that brings them down.
PLACES: dict[str, tuple[Any, str, Any]] = {
    "select": (HbmRows, "select", select_unless_by_flags),
    "record_event": (HostTierCalls, "record_event", no_memory),
    "joined_rows": (partitions, "joined_rows", no_memory),
}
OF_ONE_TABLE = ("select", "record_event")


@pytest.mark.parametrize("following", ["flush", "begin"])
@pytest.mark.parametrize("place", OF_ONE_TABLE)
def test_rows_whose_way_down_fails_are_not_lost(place: str, following: str) -> None:
    host, working = working_set()
    train(working, range(8))
    with mock.patch.object(*PLACES[place]), pytest.raises(torch.OutOfMemoryError):
        working.begin(torch.arange(10, 18, device=DEVICE))
    if following == "begin":
        train(working, range(8))
    working.close()
    assert host.rows(range(8)) == [[-2.0 if following == "begin" else -1.0] * DIM] * 8


@pytest.mark.parametrize("place", PLACES)
def test_rows_of_partitions_whose_way_down_fails_are_not_lost(place: str) -> None:
    host, _ = working_set()
    upper = HbmPartitions(host.spec(16, group_slots=4, groups=2), [DEVICE] * 2)
    working = WorkingSet(upper, host)
    for first in (0, 10):
        train(working, range(first, first + 8))
    before = upper.stats().evicted
    with mock.patch.object(*PLACES[place]), pytest.raises(torch.OutOfMemoryError):
        working.begin(torch.arange(20, 28, device=DEVICE))
    assert upper.stats().evicted > before, "no row was displaced: nothing was tested"
    train(working, range(8))
    working.close()
    assert host.rows(range(8)) == [[-2.0] * DIM] * 8
    assert host.rows(range(10, 18)) == [[-1.0] * DIM] * 8


@pytest.mark.parametrize("place", OF_ONE_TABLE)
def test_rows_that_a_lookup_displaced_are_not_lost_where_their_way_down_fails(place: str) -> None:
    host, _ = working_set()
    upper = HbmTier(host.spec(8, group_slots=4, groups=2), DEVICE)
    working = BatchWorkingSet(upper, host)
    working.apply_sums(working.look_up(upper.batch(torch.arange(8, device=DEVICE))), torch.ones(8, DIM, device=DEVICE))
    with mock.patch.object(*PLACES[place]), pytest.raises(torch.OutOfMemoryError):
        working.look_up(upper.batch(torch.arange(10, 18, device=DEVICE)))
    working.flush()
    working.end()
    assert host.rows(range(8)) == [[-1.0] * DIM] * 8


def test_rows_that_partitions_displaced_before_one_of_them_failed_are_kept() -> None:
    host, _ = working_set()
    upper = HbmPartitions(host.spec(16, group_slots=4, groups=2), [DEVICE] * 2)
    rows = torch.ones(8, DIM, device=DEVICE)
    kept = upper.put_and_evict(torch.arange(8, device=DEVICE), rows)
    assert kept.evicted is None
    for tier in upper.tiers:
        tier.keep_evicted(next(tier.export()))
    with mock.patch.object(upper.tiers[1], "take_evicted", no_memory), pytest.raises(torch.OutOfMemoryError):
        upper.take_evicted()
    taken = upper.take_evicted()
    assert taken is not None
    assert sorted(taken.keys.tolist()) == list(range(8))
    upper.keep_evicted(taken)
    again = upper.find_or_init(torch.arange(1, device=DEVICE)).evicted
    assert again is not None
    assert len(again) == 8
    assert upper.take_evicted() is None
