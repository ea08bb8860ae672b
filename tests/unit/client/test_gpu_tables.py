"""Training through GPU memory leaves the rows that training in memory alone leaves, whatever moves up and down."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.aggregate import RowPart
from hotrow.client.gpu_tables import GpuTables
from hotrow.data.batch import Batch, FeatureBlock

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SMALL: dict[str, Any] = {"group_slots": 8, "groups": 2}
DIM, SAMPLES, IDS = 2, 4, 60

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes

OPTIMIZERS: Sequence[Any] = (
    hr.SGD(lr=0.1),
    hr.Adagrad(lr=0.1),
    hr.RowwiseAdagrad(lr=0.1),
    hr.Adam(lr=0.1),
    hr.Adagrad(lr=0.1, swap=hr.Swap(period=8, decay=0.5)),
)


def table(optimizer: Any = OPTIMIZERS[1], **settings: Any) -> hr.Table:
    return hr.Table(name="t", dim=DIM, optimizer=optimizer, init=hr.Uniform(bound=1.0), **settings)


def batch_of(seed: int, name: str = "t") -> Batch:
    """Of every kind of part, over one table."""
    rng = np.random.default_rng(seed)
    bounds = np.cumsum([0, *rng.integers(0, 4, SAMPLES)])
    parts = (
        FeatureBlock(name, "one", ("a", "b"), rng.integers(0, IDS, SAMPLES * 2)),
        FeatureBlock(name, "bags", ("c",), rng.integers(0, IDS, bounds[-1]), bounds, "mean"),
        FeatureBlock(name, "sequence", ("s",), rng.integers(0, IDS, bounds[-1]), bounds),
    )
    return Batch(parts, np.zeros((SAMPLES, 0), np.float32), np.zeros((SAMPLES, 1), np.float32))


def learn(tables: LocalTables, handle: Any, seed: int, skip: Sequence[int] = ()) -> dict[str, Any]:
    """Gradients that do not depend on where the vectors are."""
    rng = np.random.default_rng(seed)
    for place, output in enumerate(handle.outputs):
        gradient = torch.tensor(rng.normal(size=tuple(output.rows.shape)), dtype=torch.float32)
        if place not in skip:
            output.rows.grad = gradient.to(output.rows.device)
    return tables.gradients(handle)


class Pair:
    """The same tables in memory, and in GPU memory with room for some of the rows."""

    def __init__(self, tables: hr.Table | Mapping[str, hr.Table], rows: int = 48, **settings: Any) -> None:
        named = {tables.name: tables} if isinstance(tables, hr.Table) else dict(tables)
        self.plain = LocalTables(named, threads=1)
        self.gpu = GpuTables(named, dict.fromkeys(named, rows), DEVICE, threads=1, **SMALL | settings)
        self.both = (self.plain, self.gpu)

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        for tables in self.both:
            tables.close()

    def each(self, call: Callable[[LocalTables], Any]) -> tuple[Any, Any]:
        return call(self.plain), call(self.gpu)

    def check_rows(self) -> None:
        self.gpu.flush()
        for name, expected in self.plain.tiers.items():
            theirs, ours = (_rows(tables.tiers[name]) for tables in self.both)
            assert len(expected) == len(self.gpu.tiers[name])
            assert (theirs.keys == ours.keys).all()
            np.testing.assert_allclose(ours.values, theirs.values, atol=1e-6)
            np.testing.assert_allclose(ours.state, theirs.state, atol=1e-6)
            for field, column in theirs.fields.items():
                assert (ours.fields[field] == column).all(), field


def _rows(tier: Any) -> Any:
    keys = np.sort(np.concatenate([np.empty(0, np.uint64), *(chunk.keys for chunk in tier.export())]))
    return tier.whole_rows(keys)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adagrad", "rowwise", "adam", "swap"])
def test_steps_leave_the_rows_of_memory_while_rows_move(optimizer: Any) -> None:
    ahead = optimizer.name == "adagrad"  # with and without swap
    with Pair(table(optimizer)) as pair:
        for step in range(4):
            batch = batch_of(step)

            def train(tables: LocalTables, batch: Batch = batch, step: int = step) -> Any:
                handle = tables.lookup(batch, learn=True)
                parts = [RowPart(learn(tables, handle, step), SAMPLES, token=step)]
                return handle, tables.apply(parts, step=step, samples=SAMPLES * (step + 1), lr_scale=0.5)

            if ahead:
                for following in range(step, step + 2):
                    pair.gpu.load_ahead(batch if following == step else batch_of(following))
            (theirs, applied), (ours, done) = pair.each(train)
            for mine, other in zip(ours.outputs, theirs.outputs, strict=True):
                torch.testing.assert_close(mine.rows.cpu(), other.rows)
            assert done == applied
            del ours  # its rows may go
        pair.check_rows()
        assert pair.gpu.working["t"].moved.down > 0, "the table fits: nothing was tested"
        assert not pair.gpu.working["t"].upper.verify()
