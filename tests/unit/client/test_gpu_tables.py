"""Training through GPU memory leaves the rows that training in memory alone leaves, whatever moves up and down."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.aggregate import RowPart
from hotrow.client.gpu_tables import GpuLookup, GpuTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.kernels.unique import UniqueKeys
from hotrow.staleness import Histogram, Staleness

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
    data = [batch_of(seed) for seed in (0, 1, 2, 3, 4, 0)]  # displaced rows come back
    with Pair(table(optimizer)) as pair:
        for step, batch in enumerate(data):

            def train(tables: LocalTables, batch: Batch = batch, step: int = step) -> Any:
                handle = tables.lookup(batch, learn=True)
                parts = [RowPart(learn(tables, handle, step), SAMPLES, token=step)]
                return handle, tables.apply(parts, step=step, samples=SAMPLES * (step + 1), lr_scale=0.5)

            for each in data[step : step + 2] if ahead else ():
                pair.gpu.start_load(each)()
            (theirs, applied), (ours, done) = pair.each(train)
            for mine, other in zip(ours.outputs, theirs.outputs, strict=True):
                torch.testing.assert_close(mine.rows.cpu(), other.rows)
            assert done == applied
            del ours  # its rows may go
        pair.check_rows()
        working = pair.gpu.working["t"]
        assert working.upper.stats().evicted > 0, "the table fits: nothing was tested"
        assert (working.moved.up_ahead > 0, working.moved.reread) == (ahead, 0)
        assert not working.upper.verify()


def test_rows_that_were_read_ahead_for_another_batch_are_not_used() -> None:
    first, second, between = (batch_of(seed) for seed in range(3))
    with Pair(table(), rows=96) as pair:
        for each in (first, second):
            pair.gpu.start_load(each)()
        for step, batch in enumerate((first, between, second)):
            for tables in pair.both:
                handle = tables.lookup(batch, learn=True)
                parts = [RowPart(learn(tables, handle, step), SAMPLES, token=step)]
                tables.apply(parts, step=step, samples=SAMPLES * (step + 1))
                del handle
        assert pair.gpu.working["t"].moved.reread == 1
        pair.check_rows()


@pytest.mark.parametrize("lead", [6, 20], ids=["as-loaders-read", "more-than-wait"])
def test_however_many_batches_are_read_ahead_rows_come_up_before_their_lookup(lead: int) -> None:
    data = [batch_of(seed) for seed in range(24)]
    with Pair(table(), rows=48) as pair:
        tables = pair.gpu
        for again in range(2):  # in the second pass all rows are below
            tables.working["t"].moved.up = tables.working["t"].moved.up_ahead = 0
            for each in data[:lead]:
                tables.start_load(each)()
            for step, batch in enumerate(data):
                for each in data[step + lead : step + lead + 1]:
                    tables.start_load(each)()
                handle = tables.lookup(batch, learn=True)
                number = step + again * len(data)
                parts = [RowPart(learn(tables, handle, step), SAMPLES, token=number)]
                tables.apply(parts, step=number, samples=SAMPLES * (number + 1))
                del handle
        moved = tables.working["t"].moved
        assert moved.reread == 0
        assert moved.up_ahead > 0.8 * moved.up, "all but those of the first batch"
        assert not tables._ids._read
        assert not tables._ids._copies


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_where_torch_is_deterministic_duplicates_are_summed_in_the_order_of_the_batch(deterministic: None) -> None:
    with Pair(table(), rows=96) as pair:
        for step in range(3):
            for tables in pair.both:
                handle = tables.lookup(batch_of(step), learn=True)
                parts = [RowPart(learn(tables, handle, step), SAMPLES, token=step)]
                tables.apply(parts, step=step, samples=SAMPLES * (step + 1))
        assert isinstance(handle, GpuLookup)
        unique = handle.used["t"].unique
        assert (unique.keys[: int(unique.size)].diff() > 0).all()  # sorted
        assert (unique.rank[unique.order()] == _ranks(unique)).all()
        pair.check_rows()


def _ranks(unique: UniqueKeys) -> torch.Tensor:
    """Positions of a key one after the other."""
    return torch.cat([torch.arange(int(count)) for count in unique.counts[: int(unique.size)]]).to(DEVICE)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("unused", [(), (0,)])
def test_gradients_that_wait_for_others_hold_distinct_keys_alone(together: bool, unused: Sequence[int]) -> None:
    with Pair(table(), rows=96) as pair:

        def train(tables: LocalTables) -> list[Any]:
            handles = [tables.lookup(batch_of(seed), learn=True) for seed in range(2)]
            given = [learn(tables, handle, seed, unused) for seed, handle in enumerate(handles)]
            if isinstance(tables, GpuTables):
                first, second = (each["t"] for each in given)
                assert len(first.sums.gradients) == first.use.count() < len(first.use.plan)
                assert len(second.sums.gradients) == len(second.use.plan)  # none came after it
                assert first.sums.gradients.untyped_storage().nbytes() == first.use.count() * DIM * 4
            parts = [RowPart(each, SAMPLES, token=0) for each in given]
            steps = [parts] if together else [parts[:1], parts[1:]]
            return [tables.apply(some, step=n, samples=SAMPLES * (n + 1)) for n, some in enumerate(steps)]

        theirs, ours = pair.each(train)
        assert ours == theirs
        pair.check_rows()


POLICIES = {
    "none": None,
    "by-step": Staleness(decay=hr.Linear(reference=1, present=1)),
    "by-version": Staleness(decay=hr.Cutoff(tolerance=0), by="version"),
    "literal": Staleness(decay=hr.Cutoff(tolerance=1), literal=True),
}


@pytest.mark.parametrize("average", ["batch", "present"])
@pytest.mark.parametrize("late", POLICIES)
def test_late_parts_of_a_step_are_weighed_as_in_memory(average: Any, late: str) -> None:
    """Three batches are looked up, one is applied alone, then the two others together, both late."""
    policy = POLICIES[late]
    with Pair(table(), rows=96) as pair:

        def train(tables: LocalTables) -> list[Any]:
            handles = [tables.lookup(batch_of(seed), learn=True, versions=late == "by-version") for seed in range(3)]
            skips: list[list[int]] = [[], [0], []]  # the model did not use a part of the second
            parts = [
                RowPart(learn(tables, handle, seed, skips[seed]), samples, token=0, factor=factor)
                for seed, (handle, samples, factor) in enumerate(zip(handles, [4, 4, 2], [1.0, 0.5, 1.0], strict=True))
            ]
            seen = Histogram()
            when: dict[str, Any] = {"average": average, "late": policy, "staleness": seen}
            first = tables.apply(parts[:1], step=2, samples=SAMPLES, **when)
            return [first, tables.apply(parts[1:], step=3, samples=3 * SAMPLES, **when), seen]

        (*theirs, their_ages), (*ours, our_ages) = pair.each(train)
        assert ours == theirs
        assert vars_of(our_ages) == vars_of(their_ages)
        pair.check_rows()


def vars_of(histogram: Histogram) -> Any:
    return histogram.counts


def test_gradients_that_are_not_finite_are_refused_and_counted_and_those_of_no_weight_do_not_matter() -> None:
    with Pair(table(), rows=96) as pair:

        def train(tables: LocalTables) -> Any:
            handles = [tables.lookup(batch_of(seed), learn=True) for seed in range(2)]
            for handle in handles:
                learn(tables, handle, 1)
            for handle, bad in zip(handles, ("nan", "inf"), strict=True):
                gradient = handle.outputs[0].rows.grad
                assert gradient is not None
                gradient[0, 0] = float(bad)
            given = [tables.gradients(handle) for handle in handles]
            parts = [RowPart(given[0], SAMPLES, 0), RowPart(given[1], SAMPLES, 0, factor=0.0)]
            return tables.apply(parts, step=0, samples=2 * SAMPLES)["t"]

        theirs, ours = pair.each(train)
        assert ours == theirs
        assert ours.refused == 1
        assert ours.weightless > 0
        pair.check_rows()


def test_a_prediction_makes_no_row_and_sees_changes_in_both_places() -> None:
    with Pair(table()) as pair:
        for step in range(3):

            def train(tables: LocalTables, step: int = step) -> None:
                handle = tables.lookup(batch_of(step), learn=True)
                tables.apply([RowPart(learn(tables, handle, step), SAMPLES, step)], step=step, samples=SAMPLES)

            pair.each(train)
        for seed in (2, 30):  # of rows that are there, and of others
            theirs, ours = (tables.lookup(batch_of(seed), learn=False) for tables in pair.both)
            for mine, other in zip(ours.outputs, theirs.outputs, strict=True):
                torch.testing.assert_close(mine.rows.cpu(), other.rows)
                assert not mine.rows.requires_grad
        assert pair.gpu.absent_ids == pair.plain.absent_ids > 0
        assert len(pair.gpu.tiers["t"]) == len(pair.plain.tiers["t"])


def test_rows_of_batches_in_flight_stay_and_a_batch_without_room_ends_with_a_sentence() -> None:
    tables = GpuTables({"t": table()}, {"t": 48}, DEVICE, threads=1, **SMALL)
    in_flight = [tables.lookup(batch_of(0), learn=True)]

    def look_up_more() -> None:
        for seed in range(1, 8):
            in_flight.append(tables.lookup(batch_of(seed), learn=True))  # noqa: PERF401

    with pytest.raises(InputError, match="found no room in GPU memory, which holds 48 in buckets of 16, beside those"):
        look_up_more()
    assert not tables.working["t"].upper.verify()
    parts = [RowPart(learn(tables, in_flight[0], 0), SAMPLES, 0)]
    applied = tables.apply(parts, step=0, samples=SAMPLES)["t"]
    assert (applied.absent, applied.unadmitted) == (0, 0)
    in_flight.clear()
    parts.clear()
    tables.lookup(batch_of(7), learn=True)  # there is room again
    tables.close()


def test_a_row_that_is_not_pinned_would_lose_its_gradient() -> None:
    """The check that batches in flight keep their rows can fail."""
    tables = GpuTables({"t": table()}, {"t": 48}, DEVICE, threads=1, **SMALL)
    first = tables.lookup(batch_of(0), learn=True)
    tables._in_use["t"].clear()
    for seed in range(1, 6):
        tables.lookup(batch_of(seed), learn=True)
    with pytest.raises(AssertionError, match="rows of batches in flight are not displaced"):
        tables.apply([RowPart(learn(tables, first, 0), SAMPLES, 0)], step=0, samples=SAMPLES)
    tables.close()


def test_counts_tell_what_was_found_and_what_moved() -> None:
    tables = GpuTables({"t": table()}, {"t": 96}, DEVICE, threads=1, **SMALL)
    distinct = len(np.unique(np.concatenate([part.keys for part in batch_of(0).parts])))
    for step in range(2):
        handle = tables.lookup(batch_of(0), learn=True)
        tables.apply([RowPart(learn(tables, handle, step), SAMPLES, step)], step=step, samples=SAMPLES)
    tables.flush()
    counts = {"rows": distinct, "capacity": 96, "hits": distinct, "up": distinct, "down": distinct}
    expected = counts | {"up_ahead": 0, "reread": 0}
    assert tables.take_counts() == {f"gpu_{name}.t": count for name, count in expected.items()}
    assert not any(tables.take_counts().values())
    tables.close()


def test_tables_in_both_places_train_side_by_side() -> None:
    both = {"t": table(), "u": table().model_copy(update={"name": "u"})}
    plain = LocalTables(both, threads=1)
    gpu = GpuTables(both, {"t": 48}, DEVICE, threads=1, **SMALL)
    batch = Batch((*batch_of(1).parts, *batch_of(2, "u").parts), *_empty())
    for tables in (plain, gpu):
        handle = tables.lookup(batch, learn=True)
        applied = tables.apply([RowPart(learn(tables, handle, 4), SAMPLES, 0)], step=0, samples=SAMPLES)
        assert set(applied) == {"t", "u"}
        tables.flush()
    for name in both:
        np.testing.assert_allclose(_rows(gpu.tiers[name]).values, _rows(plain.tiers[name]).values, atol=1e-6)
    plain.close()
    gpu.close()


def _empty() -> tuple[Any, Any]:
    return np.zeros((SAMPLES, 0), np.float32), np.zeros((SAMPLES, 1), np.float32)
