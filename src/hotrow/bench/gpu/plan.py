"""How much is measured."""

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """Sizes of a measurement. Rates of rows and ids are at `dim`, for `ids` ids of a Zipf stream."""

    ids: int = 2**20
    distinct: int = 32_000_000  # ids of the stream
    skew: float = 1.05
    dim: int = 64
    rows: int = 64_000_000  # of a table
    samples: int = 65_536  # of a batch of a model
    fields: int = 26
    copy_bytes: int = 2**31  # of the copy that gives the ceiling
    rounds: int = 30
    batches: int = 4  # of different ids, in turn
    check_ids: int = 2**14  # of a call, and rows of a table, in the part `checks`
    check_calls: int = 40  # of each of its tables
    check_group: int = 32  # slots of a group of its tables
    seed: int = 1

    def quick(self) -> "GpuPlan":
        """Sizes for the interpreter."""
        return replace(
            self, ids=200, distinct=1_000, dim=16, rows=400, samples=4, fields=5, copy_bytes=2**10, rounds=2, batches=2,
            check_ids=12, check_calls=3, check_group=2,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
