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
    check_samples: int = 512  # of a batch of the checks of models
    check_steps: int = 200
    check_rows: int = 20_000
    matrix: int = 8_192  # rows and columns of the product that gives the ceiling
    compiler: str = "inductor"  # of torch.compile
    auc_ids: int = 1_000_000
    auc_steps: int = 100
    auc_test_batches: int = 16  # 2^20 rows
    auc_seeds: int = 5
    check_share: float = 0.5  # of those rows that GPU memory holds, in the check of tiers
    tiered_rows: int = 23_000_000  # of the table in tiers; 17 GB of pinned memory
    tiered_share: float = 0.1  # of its bytes: the budget of GPU memory
    tiered_parts: int = 3  # mini-batches of a large batch
    tiered_warm: int = 12  # large batches before the first that is timed
    tiered_batches: int = 8  # of a segment, of whose times the median is taken
    tiered_segments: int = 3
    tiered_moved: int = 2**18  # rows of a call of the tier below, where its speed is measured
    seed: int = 1

    def quick(self) -> "GpuPlan":
        """Sizes for the interpreter."""
        return replace(
            self, ids=200, distinct=1_000, dim=16, rows=400, samples=4, fields=5, copy_bytes=2**10, rounds=2, batches=2,
            check_ids=12, check_calls=3, check_group=2, check_samples=4, check_steps=3, check_rows=60, matrix=16,
            compiler="eager", auc_ids=50, auc_steps=2, auc_test_batches=8, auc_seeds=2,
            check_share=0.6, tiered_rows=200, tiered_share=2.0, tiered_parts=2, tiered_warm=1, tiered_batches=1,
            tiered_segments=1, tiered_moved=50,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
