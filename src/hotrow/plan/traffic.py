"""Bytes of one batch between a trainer and the shards, and of dense gradients. Pure; docs/wire.md has the frames."""

from dataclasses import dataclass

from hotrow.types import Values

KEY, FLOAT, HALF = 8, 4, 2


@dataclass(frozen=True, slots=True)
class BatchTraffic:
    """Bytes that one trainer sends and receives for one batch."""

    lookup_out: float  # ids
    lookup_in: float  # rows
    push_out: float  # ids and gradients
    dense_out: float  # dense gradients, or all-reduced ones
    dense_in: float

    @property
    def rows(self) -> float:
        """Of rows and their gradients, both ways."""
        return self.lookup_out + self.lookup_in + self.push_out

    @property
    def total(self) -> float:
        """Both ways."""
        return self.rows + self.dense_out + self.dense_in


def vector_bytes(dim: int, values: Values) -> int:
    """A row or a gradient on the wire."""
    return FLOAT * dim if values == "fp32" else HALF * dim + FLOAT


def row_traffic(unique: float, dim: int, values: Values) -> tuple[float, float, float]:
    """Ids sent, rows received, and ids with gradients sent, for the distinct ids of a batch in one table."""
    vector = vector_bytes(dim, values)
    return KEY * unique, vector * unique, (KEY + vector) * unique


def dense_traffic(parameters: int, trainers: int) -> float:
    """Bytes that a trainer sends for a dense step, and as many that it receives: a ring all-reduce of float32.

    Dense parameters on shards take as much, without the factor of the ring.
    """
    return 0.0 if trainers < 2 else 2 * (trainers - 1) / trainers * FLOAT * parameters
