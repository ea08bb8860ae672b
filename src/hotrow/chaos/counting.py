"""Training whose rows count: each time the gradient of a sample is applied adds 1 to the row of its id.

The loss is minus the mean output, the output is the sample's row plus one dense parameter, and both are updated by
plain SGD. A row's gradient is then -1 / local batch whatever the values are, and that of the dense parameter is -1: it
counts the steps. Sums of whole numbers are exact in float32.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from torch import Tensor, nn

from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.config import Cache, Constant, Segment, Table
from hotrow.data.files import File
from hotrow.data.row_ranges import NumberedRows, RowSpan
from hotrow.data.schema import Schema
from hotrow.data.source import Trouble
from hotrow.nn.inputs import Inputs
from hotrow.optim.sparse import SGD

BLOCK = 4096
APART = 512  # samples between two with the same id: in other batches, mostly of other trainers
TABLE = "counts"


def ids_of(samples: NDArray[np.int64], repeats: int) -> NDArray[np.int64]:
    """The id of each sample: its own, or one that occurs again every APART samples, so many times in all."""
    if repeats == 1:
        return samples
    block, place = np.divmod(samples, repeats * APART)
    ids: NDArray[np.int64] = block * APART + place % APART
    return ids


class CountingSource:
    """Samples are numbered, and have ids as `ids_of` says. Computed, so any process can read it, and without an end."""

    def __init__(self, rows: int = 2**40, repeats: int = 1) -> None:
        self._rows, self._repeats = rows, repeats
        self.trouble = Trouble()
        self.schema = Schema(label="label", ids=({"column": "sample", "table": TABLE},))

    def rows(self) -> int:
        return self._rows

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        for start in range(skip, self._rows, BLOCK):
            yield self._block(start, min(start + BLOCK, self._rows))

    def files(self) -> tuple[File, ...]:
        """None: rows are computed."""
        return ()

    def group_rows(self) -> int:
        return BLOCK

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        for first, stop in ranges:
            for start in range(first, min(stop, self._rows), BLOCK):
                yield start, self._block(start, min(start + BLOCK, stop, self._rows))

    def _block(self, start: int, stop: int) -> pa.RecordBatch:
        samples = np.arange(start, stop)
        columns = [pa.array(samples % 2), pa.array(ids_of(samples, self._repeats))]
        return pa.RecordBatch.from_arrays(columns, names=["label", "sample"])


class CountingModel(nn.Module):
    """A sample's row plus the dense count of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Parameter(torch.zeros(1))

    def forward(self, x: Inputs) -> Tensor:
        return x.rows.flatten(1).sum(1) + self.steps

    def loss(self, output: Tensor, _: Tensor) -> Tensor:
        """Its gradient does not depend on any value."""
        return -output.mean()


def counting_table(local_batch: int, run: str, cache: Cache | None = None) -> Table:
    """Rows that start at 0, in shared memory."""
    return Table(
        name=TABLE,
        dim=1,
        optimizer=SGD(lr=float(local_batch)),
        init=Constant(value=0.0),
        segment=Segment(run=run),
        cache=cache,
    )


def read_counts(folder: Path, samples: int) -> tuple[NDArray[np.float64], float]:
    """From the files of a checkpoint: how often each sample was applied, and the dense steps."""
    saved = SavedCheckpoint.open(folder)
    saved.verify()
    applied = np.zeros(samples)
    for rows in saved.rows(TABLE):
        applied[rows.keys.astype(np.int64)] = rows.values[:, 0]
    dense = load_tensors(saved.dense())
    return applied, float(next(value for name, value in dense.items() if name.endswith("steps")).item())
