"""TorchRec's ranks train together what one process trains alone, and a rank that ends is told of at once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torchrec_peer import inner_step_s, lack
from torchrec_rank import Share
from torchrec_ranks import TorchRecRanks

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.rounds import SilentProgress
from hotrow.bench.torch_peers import TorchTrained
from hotrow.bench.train import source_of, write_file
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.loader import Loader
from hotrow.data.splits import RowRange
from hotrow.data.splits.ranges import Around
from hotrow.errors import ConfigError, HotrowError

PLAN = TrainPlan(rows=2001, rounds=1, steps=3, samples=64, features=3, numbers=2)  # odd: the last rank has a row less
DIM, HIDDEN = 4, (8,)

needs_torchrec = pytest.mark.skipif(lack() is not None, reason="TorchRec is not installed: `make bench` does it")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.parquet"
    write_file(PLAN, path, SilentProgress())
    return path


@needs_torchrec
@pytest.mark.parametrize("dim", [4, 32])  # shared by rows, by columns
def test_ranks_train_together_what_one_process_trains_alone(file: Path, dim: int) -> None:
    """Rows and network: after the same whole batches the rows agree, and they depend on the network of all steps."""
    alone = TorchTrained(PLAN, dim, HIDDEN)
    with TorchRecRanks(PLAN, dim, HIDDEN, file) as ranks:
        first = ranks.rows()
        assert first.shape == (PLAN.rows, dim)
        with torch.no_grad():
            alone._bags.weight.copy_(torch.from_numpy(first))
        for turn in range(2):
            assert ranks.segment(turn) > 0
            stretch = RowRange(source_of(file), turn * PLAN.segment, (turn + 1) * PLAN.segment)
            for _, batch in Loader(stretch, PLAN.samples):
                alone.step(batch)
        last = ranks.rows()
        losses = [ranks.loss]
        for _ in range(8):
            ranks.segment(1)
            losses.append(ranks.loss)
        assert losses[-1] < 0.98 * losses[0]
        assert np.abs(last - first).max() > 0.01
        np.testing.assert_allclose(last, alone._bags.weight.detach().numpy(), atol=1e-5)
        _a_killed_rank_is_named(ranks)


def _a_killed_rank_is_named(ranks: TorchRecRanks) -> None:
    os.kill(ranks._ranks[1]._process.pid, signal.SIGKILL)
    with pytest.raises(HotrowError, match="TorchRec's rank 1 ended with status -9"):
        ranks.segment(0)


@pytest.mark.slow
@pytest.mark.skipif(lack() is None, reason="TorchRec is installed")
def test_a_rank_without_torchrec_is_told_of(file: Path) -> None:
    missing = "No module named '(torchrec|fbgemm_gpu)'"
    with pytest.raises(HotrowError, match=rf"(?s)TorchRec's rank [01] ended with status 1: .*{missing}"):
        TorchRecRanks(PLAN, DIM, HIDDEN, file)


@needs_torchrec
def test_a_rank_that_fails_is_told_of_by_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(HotrowError, match=r"(?s)TorchRec's rank [01] ended with status 1: .*absent\.parquet"):
        TorchRecRanks(PLAN, DIM, HIDDEN, tmp_path / "absent.parquet")


@needs_torchrec
def test_samples_that_cannot_be_shared_evenly_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="samples=64: 3 ranks cannot share them evenly"):
        TorchRecRanks(PLAN, DIM, HIDDEN, tmp_path, ranks=3)


def test_a_step_is_timed_on_the_slowest_rank_without_the_ends_of_a_stretch() -> None:
    plan = ClusterPlan(steps=6, skipped=2, tail=1)  # three steps count: from the end of the second to that of the fifth
    moments = [[9.0, 10, 11, 12, 13, 50], [9.0, 10, 12, 14, 16, 50]]
    assert inner_step_s(plan, moments) == 2


class Blocks(Around):
    """A source in blocks of its own size."""

    def __init__(self, file: Path, rows: int) -> None:
        super().__init__(source_of(file))
        self._rows = rows

    def rows(self) -> int | None:
        return self.source.rows()

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        for block in self.source.read(skip):
            for start in range(0, block.num_rows, self._rows):
                yield block.slice(start, self._rows)


@pytest.mark.parametrize("block", [1, 7, 16, 24, 10_000])
def test_a_share_is_every_second_batch_whatever_the_blocks_are(file: Path, block: int) -> None:
    size = 16
    whole = [batch for _, batch in Loader(source_of(file), size)]
    for rank in range(2):
        mine = [batch for _, batch in Loader(Share(Blocks(file, block), size, rank, 2), size)]
        assert len(mine) == len(whole[rank::2])
        for found, expected in zip(mine, whole[rank::2], strict=True):
            np.testing.assert_array_equal(found.parts[0].keys, expected.parts[0].keys)
            np.testing.assert_array_equal(found.numbers, expected.numbers)
            assert found.labels is not None
            assert expected.labels is not None
            np.testing.assert_array_equal(found.labels, expected.labels)
