"""One of TorchRec's ranks from within, a process of its own: started and told what to do by torchrec_ranks.py.

One table for all features lies in equal parts at the ranks: halves of its rows, or halves of all rows where these are
long, for then half as much travels and it is faster. Each rank trains its own share of every global batch, with one
thread. Rows are updated by exact Adagrad in the backward pass, the network by Adam behind DDP. Gradients are
means over the global batch on both sides, so that all ranks together do what one process does with whole batches.
"""

import gc
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from hotrow.bench.network import network
from hotrow.bench.peers import EPS
from hotrow.bench.train import source_of
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.data.source import Source
from hotrow.data.splits import RowRange
from hotrow.data.splits.ranges import Around
from hotrow.nn.inputs import Inputs
from hotrow.worker.losses import binary_cross_entropy

ANSWER_S = 600.0  # for a start with ten million rows, and for a stretch
TABLE = "t"
LONG_ROW = 32  # floats: from here on columns are shared, faster at 64 in most rounds; no difference at 16


@dataclass(frozen=True, slots=True)
class Job:
    """What a rank is told first."""

    plan: TrainPlan
    dim: int
    hidden: tuple[int, ...]
    file: Path
    rank: int
    ranks: int
    meeting: Path  # a file by which the ranks find each other

    @property
    def by_columns(self) -> bool:
        """Whether a rank holds columns of all rows, else rows."""
        return self.dim >= LONG_ROW and self.dim % (4 * self.ranks) == 0  # FBGEMM wants multiples of 4


class Rank:
    """One rank from within."""

    def __init__(self, job: Job) -> None:
        self._job, self._source = job, source_of(job.file)
        self._names = [f"c{place}" for place in range(job.plan.features)]
        model, self._optimizer = network(job.plan, job.dim, job.hidden)
        self._model, self._jagged = _sharded(job, self._names, model)

    def segment(self, turn: int) -> tuple[float, list[float]]:
        """The mean loss over this rank's share of a stretch, and when each step ended."""
        plan, share = self._job.plan, self._job.plan.samples // self._job.ranks
        stretch = RowRange(self._source, turn * plan.segment, (turn + 1) * plan.segment)
        loader = Loader(Share(stretch, share, self._job.rank, self._job.ranks), share)
        losses, moments = [], []
        for _, batch in loader:
            losses.append(self._step(batch))
            moments.append(time.perf_counter())
        return float(torch.stack(losses).mean()), moments

    def rows(self) -> NDArray[np.float32]:
        """Its part of the table."""
        (part,) = (value for name, value in self._model.state_dict().items() if f".{TABLE}." in name)
        (shard,) = part.local_shards()
        rows: NDArray[np.float32] = shard.tensor.numpy().copy()
        return rows

    def _step(self, batch: Batch) -> Tensor:
        assert batch.labels is not None
        ids = torch.from_numpy(batch.parts[0].keys).view(len(batch), -1)
        values = ids.t().contiguous().view(-1)  # its layout is feature by feature
        lengths = torch.ones(len(values), dtype=torch.int32)
        features = self._jagged(keys=self._names, values=values, lengths=lengths)
        self._optimizer.zero_grad(set_to_none=True)
        odds = self._model(features, torch.from_numpy(batch.numbers))
        loss = binary_cross_entropy(odds, torch.from_numpy(batch.labels))
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()


class BagsAndNetwork(nn.Module):
    """What TorchRec shards: its collection and the network that all contestants train."""

    def __init__(self, bags: nn.Module, network: nn.Module, names: list[str], dim: int) -> None:
        super().__init__()
        self.bags, self.network = bags, network
        self._names, self._shape = tuple(names), (-1, len(names), dim)

    def forward(self, features: Any, numbers: Tensor) -> Tensor:
        rows = self.bags(features).values().view(self._shape)
        odds: Tensor = self.network(Inputs(numbers, {self._names: rows}))
        return odds


class Share(Around):
    """Every `ranks`-th batch of `size` rows, from the one numbered `rank` on, cut before anything is decoded."""

    def __init__(self, source: Source, size: int, rank: int, ranks: int) -> None:
        super().__init__(source)
        self._size, self._rank, self._ranks = size, rank, ranks

    def rows(self) -> int | None:
        return None  # nobody asks: it is read from its start to its end

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        assert skip == 0
        first = 0
        for block in self.source.read():
            last = first + block.num_rows
            mine = []
            for number in range(first // self._size, -(-last // self._size)):
                start, stop = max(number * self._size, first), min((number + 1) * self._size, last)
                if number % self._ranks == self._rank:
                    mine.append(block.slice(start - first, stop - start))
            if mine:  # joined: decoding batch by batch takes longer
                yield from pa.Table.from_batches(mine).combine_chunks().to_batches()
            first = last


def _sharded(job: Job, names: list[str], model: nn.Module) -> tuple[nn.Module, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported here: the package is optional and takes seconds to load.
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.model_parallel import DistributedModelParallel
        from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, row_wise
        from torchrec.distributed.types import ShardingEnv, ShardingPlan
        from torchrec.modules.embedding_configs import EmbeddingBagConfig
        from torchrec.modules.embedding_modules import EmbeddingBagCollection
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
    table = EmbeddingBagConfig(
        name=TABLE,
        embedding_dim=job.dim,
        num_embeddings=job.plan.rows,
        feature_names=names,
        weight_init_min=-0.01,
        weight_init_max=0.01,
    )
    bags = EmbeddingBagCollection(tables=[table], device=torch.device("meta"))  # made whole, it would fill the memory
    fused = {
        "optimizer": EmbOptimType.EXACT_ADAGRAD,
        "learning_rate": job.plan.lr,
        "eps": EPS,
        "bounds_check_mode": BoundsCheckMode.NONE,  # faster: all ids are row numbers
    }
    sharder: Any = EmbeddingBagCollectionSharder(fused_params=fused)
    fused_kernel = "fused"  # not the default, which makes gradients as large as the table
    kind = (
        column_wise(ranks=list(range(job.ranks)), compute_kernel=fused_kernel)
        if job.by_columns
        else row_wise(compute_kernel=fused_kernel)
    )
    where = construct_module_sharding_plan(
        bags,
        {TABLE: kind},
        sharder=sharder,
        local_size=job.ranks,
        world_size=job.ranks,
        device_type="cpu",
    )
    torch.manual_seed(1 + job.rank)  # else all ranks start with the same values
    whole: nn.Module = DistributedModelParallel(
        BagsAndNetwork(bags, model, names, job.dim),
        env=ShardingEnv.from_process_group(distributed.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan(plan={"bags": where}),
        sharders=[sharder],
    )
    return whole, KeyedJaggedTensor.from_lengths_sync


def main() -> None:
    """One rank: it answers turns with loss and times of their stretches, None with its rows, until the pipe closes."""
    torch.set_num_threads(1)
    with Connection(int(sys.argv[1])) as connection:
        job: Job = connection.recv()
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{job.meeting}",
            rank=job.rank,
            world_size=job.ranks,
            timeout=timedelta(seconds=ANSWER_S),
        )
        rank = Rank(job)
        gc.freeze()  # what was made so far is not looked through again and again while it trains
        connection.send(None)
        while True:
            try:
                turn: int | None = connection.recv()
            except EOFError:
                break
            connection.send(rank.rows() if turn is None else rank.segment(turn))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
