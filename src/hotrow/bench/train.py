"""`hotrow bench train`: a DeepFM from a Parquet file to the update, our table beside torch's and those of peers.

In every round each contestant opens the file anew and trains on the same stretch of it, with its own table and
network; all read through our loader. The clock of each starts when its first batch is there: in a long run nobody waits
for that. What is compared has run in the same round, and the median over the rounds counts. Exact Adagrad runs first,
then row-wise Adagrad after those tables are freed.

Ours trains each stretch in line and with a step of look-ahead, and the faster of the two counts, as with "auto".
"""

import gc
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotrow.bench.network import NetworkAlone, network
from hotrow.bench.peers import EPS, Adapter, TrainingPeer
from hotrow.bench.rounds import WARM_UP_ROUNDS, BenchProgress, Contestant, Figures, Seconds, interleave, median_ratio
from hotrow.bench.torch_peers import TorchByHand, TorchTrained
from hotrow.bench.train_plan import TrainPlan
from hotrow.bench.workload import torch_threads
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader, RowReading
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.source import Source
from hotrow.data.splits import RowRange
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.modes import Sync
from hotrow.optim.sparse import Adagrad, AnyOptimizer, RowwiseAdagrad
from hotrow.store import RamTier
from hotrow.trainer import Trainer

FILL = 1 << 17  # rows made at once while our table is filled


class HotrowTraining:
    """Our trainer."""

    def __init__(self, plan: TrainPlan, dim: int, hidden: tuple[int, ...], optimizer: AnyOptimizer) -> None:
        model, dense = network(plan, dim, hidden)
        self.trainer = Trainer(
            model,
            Table(dim=dim, optimizer=optimizer),
            optimizer=dense,
            global_batch=plan.samples,
            threads=plan.threads,
            report_every_s=3600,
        )
        tier = self.trainer.tables.tiers["default"]
        assert isinstance(tier, RamTier)
        for start in range(0, plan.rows, FILL):
            tier.find_or_init(np.arange(start, min(start + FILL, plan.rows)))

    def segment(self, loader: Loader, look_ahead: Literal[0, 1] = 0) -> None:
        self.trainer.switch(Sync(look_ahead=look_ahead))
        for _ in self.trainer.fit(loader):
            pass


class StartedLoader(Loader):
    """A loader whose first batch is there, and its rows are in memory where `load_rows` brings them."""

    def __init__(
        self,
        source: Source,
        batch: int,
        load_rows: RowReading | None = None,
        prefetch: int = 4,
        thread_started: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(source, batch, prefetch=prefetch)
        self.load_rows, self.thread_started = load_rows, thread_started  # a fit sets them too late
        self._pairs = super().__iter__()
        self._first = next(self._pairs)

    def __iter__(self) -> Generator[tuple[Lease, Batch], None, None]:
        yield self._first
        yield from self._pairs

    def close(self) -> None:
        """End the reading thread."""
        self._pairs.close()


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """One network at one dim, and the peers that train it too."""

    plan: TrainPlan
    source: Source
    dim: int
    hidden: tuple[int, ...]
    adapters: Sequence[Adapter]

    @property
    def shape(self) -> tuple[TrainPlan, int, tuple[int, ...]]:
        """What every contestant is made from."""
        return self.plan, self.dim, self.hidden

    def peers(self, *, rowwise: bool) -> dict[str, TrainingPeer]:
        """Of the adapters, by name."""
        return {each.name: each.training(*self.shape, rowwise=rowwise) for each in self.adapters if each.training}


def measure(plan: TrainPlan, folder: Path, watch: BenchProgress, adapters: Sequence[Adapter] = ()) -> Figures:
    """All figures, flat: wide_d16_vs_torch and so on. A file is made in `folder`."""
    rounds = plan.rounds + WARM_UP_ROUNDS
    watch.stage("writing the file", rounds)
    source = write_file(plan, folder / "bench.parquet", watch)
    figures: Figures = {}
    with torch_threads(plan.threads):
        figures |= measure_reader(plan, source, watch)
        for dim in plan.dims:
            for name, hidden in plan.networks.items():
                case = TrainingCase(plan, source, dim, hidden, adapters)
                found = {**exact(case, watch), **rowwise(case, watch)}
                figures |= {f"{name}_d{dim}_{key}": value for key, value in found.items()}
    fastest_ms = min(value for key, value in figures.items() if key.endswith("step_ms") and value is not None)
    return figures | {"reader_vs_need": (figures["reader_rows_per_s"] or 0) / (plan.samples / fastest_ms * 1e3)}


def exact(case: TrainingCase, watch: BenchProgress) -> Figures:
    """Adagrad with a moment for every element."""
    plan = case.plan
    ours, torch = HotrowTraining(*case.shape, Adagrad(lr=plan.lr, eps=EPS)), TorchTrained(*case.shape)
    others = case.peers(rowwise=False)
    seconds = race(case, ours, {"torch": torch, **others}, "Adagrad", watch, NetworkAlone(*case.shape))
    return {
        "samples_per_s": plan.samples / float(np.median(seconds["ours"])),
        "torch_samples_per_s": plan.samples / float(np.median(seconds["torch"])),
        "vs_torch": median_ratio(seconds["torch"], seconds["ours"]),
        "network_share": float(np.median(seconds["dense"] / seconds["ours"])),
        **{f"vs_{name}": median_ratio(seconds[name], seconds["ours"]) for name in others},
        "embedding_share": float(np.median(1 - seconds["dense"] / seconds["ours"])),
        "dense_ms": 1e3 * float(np.median(seconds["dense"])),
        "step_ms": 1e3 * float(np.median(seconds["ours"])),
        "inline_ms": 1e3 * float(np.median(seconds["in line"])),
        "ahead_ms": 1e3 * float(np.median(seconds["ahead"])),
        "torch_ms": 1e3 * float(np.median(seconds["torch"])),
        **{f"{name}_ms": 1e3 * float(np.median(seconds[name])) for name in others},
    }


def rowwise(case: TrainingCase, watch: BenchProgress) -> Figures:
    """Adagrad with one moment for a row."""
    ours, by_hand = HotrowTraining(*case.shape, RowwiseAdagrad(lr=case.plan.lr, eps=EPS)), TorchByHand(*case.shape)
    others = case.peers(rowwise=True)
    seconds = race(case, ours, {"by hand": by_hand, **others}, "row-wise Adagrad", watch)
    best = np.minimum.reduce([seconds[name] for name in ("by hand", *others)])
    return {
        "rowwise_step_ms": 1e3 * float(np.median(seconds["ours"])),
        "byhand_ms": 1e3 * float(np.median(seconds["by hand"])),
        **{f"{name}_rowwise_ms": 1e3 * float(np.median(seconds[name])) for name in others},
        "rowwise_vs_best": median_ratio(best, seconds["ours"]),
    }


def race(
    case: TrainingCase,
    ours: HotrowTraining,
    peers: Mapping[str, TrainingPeer],
    label: str,
    watch: BenchProgress,
    alone: NetworkAlone | None = None,
) -> dict[str, Seconds]:
    """Seconds of a step, by contestant and round; the network alone gets one batch again and again.

    "ours" is the faster one of ours "in line" and "ahead".
    """
    plan, source = case.plan, case.source
    watch.stage(f"{case.hidden} dim {case.dim}: {label}, interleaved", plan.rounds + WARM_UP_ROUNDS)
    contestants = {name: _timed(plan, source, _peer_segment(peer)) for name, peer in peers.items()}
    contestants["in line"] = _timed(plan, source, lambda loader: ours.segment(loader, 0))
    contestants["ahead"] = _timed(plan, source, lambda loader: ours.segment(loader, 1))
    if alone is not None:
        _, held = next(iter(Loader(source, plan.samples)))
        contestants["dense"] = _timed(plan, source, lambda _: alone.repeat(held, plan.steps))
    seconds = interleave(contestants, plan.rounds, watch, burst=1)
    seconds["ours"] = min(seconds["in line"], seconds["ahead"], key=np.median)
    gc.collect()  # the next group needs the memory of this one
    return seconds


def measure_reader(plan: TrainPlan, source: Source, watch: BenchProgress) -> Figures:
    """Reading and decoding alone, as the trainer does it."""
    watch.stage("reading alone", plan.rounds + WARM_UP_ROUNDS)

    def read(turn: int) -> float:
        start = time.perf_counter()
        for _ in Loader(stretch_of(plan, source, turn), plan.samples):
            pass
        return (time.perf_counter() - start) / plan.steps

    seconds = interleave({"read": read}, plan.rounds, watch, burst=1)["read"]
    return {"reader_rows_per_s": plan.samples / float(np.median(seconds))}


def write_file(plan: TrainPlan, path: Path, watch: BenchProgress) -> Source:
    """A stretch of the synthetic stream for every round; ids are row numbers, shuffled."""
    made = SyntheticSource(_stream(plan))
    place = _row_numbers(plan)
    schema = Schema(
        label=made.schema.label,
        numbers=made.schema.numbers,
        ids=[{"column": feature.column, "space": "row"} for feature in made.schema.ids],
    )
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = []
    for batch in made.read():
        waiting.append(_renumbered(batch, [feature.column for feature in schema.ids], place))
        table = pa.Table.from_batches(waiting)
        while table.num_rows >= plan.segment:
            writer = writer or pq.ParquetWriter(path, table.schema, compression="none")
            writer.write_table(table.slice(0, plan.segment), row_group_size=plan.row_group)
            table = table.slice(plan.segment)
            watch.tick()
        waiting = table.combine_chunks().to_batches()
    assert writer is not None
    writer.close()
    return ParquetSource(path, schema)


def rarest_first(plan: TrainPlan) -> NDArray[np.int64]:
    """All row numbers of the file, by how often they occur."""
    weights = []
    for size in _stream(plan).feature_sizes():
        weight = np.arange(1, size + 1, dtype=np.float64) ** -plan.zipf
        weights.append(weight / weight.sum())
    order: NDArray[np.int64] = _row_numbers(plan)[np.argsort(np.concatenate(weights), kind="stable")]
    return order


def _stream(plan: TrainPlan) -> SyntheticConfig:
    return SyntheticConfig(
        rows=(plan.rounds + WARM_UP_ROUNDS) * plan.segment,
        features=plan.features,
        numbers=plan.numbers,
        ids=plan.rows,
        zipf=plan.zipf,
        scattered=False,
        test_rows=0,
    )


def _row_numbers(plan: TrainPlan) -> NDArray[np.int64]:
    """By the rank of an id."""
    return np.random.default_rng(0).permutation(plan.rows)


def source_of(file: Path) -> ParquetSource:
    """The file of a benchmark; its ids are row numbers."""
    names = pq.read_schema(file).names
    numbers = [name for name in names if name.startswith("number_")]
    ids = [{"column": name, "space": "row"} for name in names if name.startswith("id_")]
    return ParquetSource(file, Schema(label="label", numbers=numbers, ids=ids))


def _renumbered(batch: pa.RecordBatch, columns: list[str], place: NDArray[np.int64]) -> pa.RecordBatch:
    """Ids that are ranks of frequency become row numbers without an order."""
    for column in columns:
        ranks = batch.column(column).to_numpy().view(np.int64)
        batch = batch.set_column(batch.schema.get_field_index(column), column, pa.array(place[ranks]))
    return batch


def stretch_of(plan: TrainPlan, source: Source, turn: int) -> Source:
    """The part of the file that belongs to a round."""
    return RowRange(source, turn * plan.segment, (turn + 1) * plan.segment)


def _timed(plan: TrainPlan, source: Source, segment: Callable[[Loader], object]) -> Contestant:
    """Seconds of one step in the stretch that belongs to a round, from the moment its first batch is there."""

    def contestant(turn: int) -> float:
        with closing(StartedLoader(stretch_of(plan, source, turn), plan.samples)) as loader:
            start = time.perf_counter()
            segment(loader)
            return (time.perf_counter() - start) / plan.steps

    return contestant


def _peer_segment(peer: TrainingPeer) -> Callable[[Loader], None]:
    def segment(loader: Loader) -> None:
        for _, batch in loader:
            peer.step(batch)

    return segment
