"""HET AR: every worker has all rows, and sparse gradients are gathered from all workers. No server, no cache.

Run as a program it is one rank of a group over gloo; `measure` starts all ranks. In a ring all-gather each rank sends
the blocks of all ranks but one, and receives as many. A token bucket holds back the end of each collective until its
bytes have passed the link.
"""

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import Tensor

from hotrow.bench.cache.bound import StepCost
from hotrow.bench.cache.clusters import columns, stretch_steps
from hotrow.bench.cache.plan import CachePlan
from hotrow.config import Table, Uniform
from hotrow.errors import HotrowError
from hotrow.models.fm import FM
from hotrow.nn.inputs import Inputs, InputShape
from hotrow.optim.sparse import SGD
from hotrow.store import RamTier
from hotrow.store.arrays import Floats, Keys
from hotrow.store.shards import sharded
from hotrow.transport.link import GBPS, TokenBucket
from hotrow.worker.losses import binary_cross_entropy

WAIT_S = 300


def measure(plan: CachePlan, file: Path, turn: int, gbps: float, skipped: int) -> StepCost:
    """Seconds, processor time and bytes of a step of all ranks."""
    program = [sys.executable, "-m", __name__]
    with TemporaryDirectory(prefix="hotrow-bench-") as folder:
        ranks = [
            subprocess.Popen(
                [*program, *map(str, (rank, folder, file, turn, gbps, skipped)), json.dumps(asdict(plan))],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(plan.workers)
        ]
        try:
            found = [_result(rank) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    return StepCost(
        seconds=max(each["seconds"] for each in found),
        processor_s={f"rank {number}": each["processor_s"] for number, each in enumerate(found)},
        bytes_in=found[0]["bytes"],
        bytes_out=found[0]["bytes"],
    )


def _result(rank: "subprocess.Popen[str]") -> dict[str, float]:
    out, errors = rank.communicate(timeout=WAIT_S)
    if rank.returncode:
        last = errors.strip().splitlines()[-1:]
        raise HotrowError(f"a rank of the all-gather ended with {rank.returncode}: {' '.join(last)}")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


class Replica:
    """All rows and the model, on one rank."""

    def __init__(self, plan: CachePlan, gbps: float) -> None:
        self._plan = plan
        self._rows = RamTier(Table(dim=plan.dim, optimizer=SGD(lr=0.01), init=Uniform(bound=0.01)), threads=1)
        self._model = FM(InputShape(0, dict.fromkeys(columns(plan), plan.dim)))
        self._bucket = TokenBucket(gbps * GBPS)
        self.nbytes = 0

    def step(self, ids: Keys, labels: Tensor) -> None:
        """Train one batch of this rank, with the gradients of all."""
        found = sharded(ids, 1)
        values = torch.empty(len(found.keys), self._plan.dim)
        self._rows.find_or_init(found.keys, values)
        values.requires_grad_(True)
        vectors = values[torch.from_numpy(found.inverse.astype(np.int64))].view(len(labels), -1, self._plan.dim)
        loss = binary_cross_entropy(self._model(Inputs(torch.empty(len(labels), 0), {("all",): vectors})), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                with torch.no_grad():
                    parameter.sub_(parameter.grad, alpha=0.01 / self._plan.workers)
                parameter.grad = None
        assert values.grad is not None
        keys, gradients = self._gathered(found.keys, values.grad)
        self._rows.apply(self._rows.find_or_init(keys), gradients)

    def _gathered(self, keys: Keys, gradients: Tensor) -> tuple[Keys, Floats]:
        """Of all ranks, one after the other; blocks are padded to the longest one."""
        began, world = time.perf_counter(), self._plan.workers
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([len(keys)]))
        lengths = [int(count) for count in counts]
        longest = max(lengths)
        mine = torch.zeros(longest, dtype=torch.int64)
        mine[: len(keys)] = torch.from_numpy(keys.view(np.int64))
        whole = torch.zeros(longest, self._plan.dim)
        whole[: len(keys)] = gradients
        all_keys, all_rows = [torch.empty_like(mine) for _ in lengths], [torch.empty_like(whole) for _ in lengths]
        dist.all_gather(all_keys, mine)
        dist.all_gather(all_rows, whole)
        sent = (world - 1) * (8 + mine.nbytes + whole.nbytes)
        self.nbytes += sent
        time.sleep(max(0.0, self._bucket.pass_s(sent, began) - time.perf_counter()))
        joined = torch.cat([each[:length] for each, length in zip(all_keys, lengths, strict=True)])
        rows = torch.cat([each[:length] for each, length in zip(all_rows, lengths, strict=True)])
        return joined.numpy().view(np.uint64), rows.numpy()


def train(plan: CachePlan, rank: int, file: Path, turn: int, gbps: float, skipped: int) -> dict[str, float]:
    """The part of a rank in each step."""
    replica, timed = Replica(plan, gbps), (0.0, 0.0, 0)
    group = pq.ParquetFile(file)  # a row group is a step
    first, names = turn * stretch_steps(plan), columns(plan)
    for step in range(skipped + plan.cluster_steps):
        if step == skipped:
            dist.barrier()
            timed = time.perf_counter(), time.process_time(), replica.nbytes
        rows = group.read_row_group(first + step).slice(rank * plan.samples, plan.samples)
        ids = np.stack([rows.column(name).to_numpy() for name in names], 1)
        labels = rows.column("label").to_numpy().astype(np.float32)[:, None]
        replica.step(np.ascontiguousarray(ids).reshape(-1).view(np.uint64), torch.from_numpy(labels))
    dist.barrier()
    began_s, spent_s, nbytes = timed
    steps = plan.cluster_steps
    return {
        "seconds": (time.perf_counter() - began_s) / steps,
        "processor_s": (time.process_time() - spent_s) / steps,
        "bytes": (replica.nbytes - nbytes) / steps,
    }


def main(arguments: list[str]) -> None:
    """One rank, which prints its figures."""
    rank, folder, file, turn, gbps, skipped, settings = arguments
    plan = CachePlan(**json.loads(settings))
    torch.set_num_threads(1)
    meeting = f"file://{Path(folder) / 'store'}"
    dist.init_process_group("gloo", init_method=meeting, rank=int(rank), world_size=plan.workers)
    try:
        print(json.dumps(train(plan, int(rank), Path(file), int(turn), float(gbps), int(skipped))))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
