"""A tier below that fails for a while: no change is lost, and none is overwritten by an older one."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.store import RamTier
from hotrow.store.hbm import HbmPlan, HbmRows, HbmTier, WorkingSet
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
