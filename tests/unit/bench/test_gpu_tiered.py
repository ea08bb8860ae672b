"""Part `tiered` of `hotrow bench gpu` finds rows that are lost or out of date."""

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

from hotrow.bench.gpu import tiered
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.tiered_run import StageClock, TieredTimes
from hotrow.store.hbm import HbmRows
from hotrow.store.hbm.pinned import PinnedTier

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PLAN = GpuPlan().quick()
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, for idle lanes in the interpreter


class LosesWrites(PinnedTier):
    def write(self, rows: HbmRows) -> None:
        super().write(rows.select(torch.arange(len(rows) - 1, device=rows.keys.device)))


class ForgetsState(PinnedTier):
    def write(self, rows: HbmRows) -> None:
        super().write(replace(rows, state=torch.full_like(rows.state, 0.1)))


class ReadsFirstValues(PinnedTier):
    def read(self, keys: torch.Tensor, samples: int) -> HbmRows:
        super().read(keys, samples)
        return self._first_rows(keys)


@pytest.mark.parametrize("lower", [LosesWrites, ForgetsState, ReadsFirstValues])
def test_a_tier_that_errs_is_found_out(lower: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "PinnedTier", lower)
    with pytest.raises(AssertionError, match="not close"):
        tiered.check(DEVICE, PLAN)


def test_what_the_trainer_waits_for_is_not_hidden() -> None:
    times = TieredTimes(10.0, {}, read_s=3.0, write_s=1.0, wait_s=1.0, rows_up=1, rows_down=1)
    assert times.hidden == 0.75
    assert replace(times, wait_s=9.0).hidden == 0.0
    assert replace(times, read_s=0.0, write_s=0.0).hidden == 1.0


def test_the_time_of_a_stage_ends_where_the_next_begins() -> None:
    clock = StageClock(torch.device("cpu"))
    clock._marks = [("begin", 1.0), ("train", 3.0), ("begin", 6.0), ("end", 7.5)]
    assert clock.seconds() == {"begin": 3.5, "prefetch": 0.0, "train": 3.0}
