"""What the machine could do at best: random row reads, straight copies, and the step that these would allow."""

import numpy as np

from hotrow._native import CopyField, RowField
from hotrow.bench.ids import IdBatch
from hotrow.bench.rounds import Seconds

FLOAT_BYTES = 4
COPY_BYTES = 256 << 20  # far beyond any cache
READ_BATCHES = 8  # read in one go, or waking the second thread would count


def step_limit(
    ids: int, unique: float, dim: int, state_dim: int, seconds_per_row: Seconds, seconds_per_byte: Seconds
) -> Seconds:
    """Seconds of a step that did only what it cannot do without, each at the machine's limit.

    At random: read the value of each id and the state of each unique row. In a straight line: write the output, read
    the gradients, write the unique rows back.
    """
    random_rows = ids + unique * state_dim / dim  # rows of `dim` floats
    stream_bytes = FLOAT_BYTES * (2 * ids * dim + unique * (dim + state_dim))
    return random_rows * seconds_per_row + stream_bytes * seconds_per_byte


class MachineLimits:
    """Random reads of `dim` floats from a field of `rows` such rows, and straight copies."""

    def __init__(
        self, rows: int, dim: int, batches: list[IdBatch], *, threads: int, copy_bytes: int = COPY_BYTES
    ) -> None:
        self._threads = threads
        self._field = RowField(rows, dim * FLOAT_BYTES, threads)
        self._copy = CopyField(copy_bytes, threads)
        parts = [batches[first : first + READ_BATCHES] for first in range(0, len(batches), READ_BATCHES)]
        self._wanted = [np.concatenate([batch.rows for batch in part]) for part in parts]

    def seconds_per_row(self, turn: int) -> float:
        """Seconds per random row read; `turn` picks the ids."""
        wanted = self._wanted[turn % len(self._wanted)]
        return self._field.read_seconds(wanted, self._threads) / len(wanted)

    def seconds_per_byte(self, turn: int) -> float:
        """Seconds per byte moved by a copy, counting bytes read and bytes written."""
        return self._copy.copy_seconds(self._threads) / (2 * self._copy.bytes)
