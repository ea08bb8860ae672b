"""The part `speed`: training on a table in two tiers beside one in memory, beside the disk's own rate, beside peers."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.peers import EPS, Adapter, TiersPeer
from hotrow.bench.rounds import BenchProgress, Figures, interleave, median_ratio, timed
from hotrow.bench.tiers.counted import MeasuredStretch, disk_shares, processor_ratio, tier_figures
from hotrow.bench.tiers.disk_rate import BLOCK, RandomReads
from hotrow.bench.tiers.plan import TiersPlan
from hotrow.bench.tiers.training import TierTraining, make_rows
from hotrow.bench.train import FILL, rarest_first, stretch_of, write_file
from hotrow.bench.workload import torch_threads
from hotrow.config import Table
from hotrow.data.loader import Loader
from hotrow.data.source import Source
from hotrow.optim.sparse import Adagrad
from hotrow.store import RamTier
from hotrow.store.tier_plan import slot_bytes
from hotrow.store.tiered import TieredTier

Keys = NDArray[np.int64]


def measure_speed(plan: TiersPlan, folder: Path, watch: BenchProgress, adapters: Sequence[Adapter]) -> Figures:
    """All figures of the part, flat: d16_tiered_vs_ram and so on."""
    source = stream_file(plan, folder, watch)
    figures: Figures = {}
    with torch_threads(plan.threads):
        for dim in plan.dims:
            found = race(plan, dim, source, folder, watch)
            if adapters:
                found |= beside_peers(plan, dim, source, folder, watch, adapters)
            figures |= {f"d{dim}_{key}": value for key, value in found.items()}
    return figures


def stream_file(plan: TiersPlan, folder: Path, watch: BenchProgress) -> Source:
    """The samples of all rounds."""
    watch.stage("writing the file", plan.rounds + plan.warm_up)
    return write_file(plan.train, folder / "tiers.parquet", watch)


def tiered_table(plan: TiersPlan, dim: int, folder: Path, *, direct_io: bool = True) -> Table:
    """Memory for one row in ten, a file for all."""
    return Table(
        dim=dim,
        optimizer=Adagrad(lr=plan.lr, eps=EPS),
        capacity=plan.memory_rows,
        disk=f"{plan.table_bytes(dim)}B",
        path=folder,
        direct_io=direct_io,
    )


def race(plan: TiersPlan, dim: int, source: Source, folder: Path, watch: BenchProgress) -> Figures:
    """The same training on both tables and the disk alone, interleaved."""
    watch.stage(f"dim {dim}: training, interleaved", plan.rounds + plan.warm_up)
    stretches: list[MeasuredStretch] = []
    in_memory: list[MeasuredStretch] = []
    rates: list[float] = []
    sized: list[float] = []
    table = tiered_table(plan, dim, folder)
    block = -(-slot_bytes(table) // BLOCK) * BLOCK
    order = rarest_first(plan.train)
    with ExitStack() as opened:
        ram = opened.enter_context(closing(TierTraining(plan, Table(dim=dim, optimizer=table.optimizer))))
        tiered = opened.enter_context(closing(TierTraining(plan, table)))
        disk = opened.enter_context(
            closing(RandomReads(folder, plan.disk_file_bytes, block_bytes=block, depth=plan.depth))
        )
        for each in (ram, tiered):
            each.fill(order)

        def disk_alone(turn: int) -> float:
            rates.append(disk.measure(plan.disk_s).reads_per_s)
            request = stretches[-1].request_bytes if stretches else block  # of this round, or of the one before
            sized.append(disk.measure(plan.disk_s, max(block, round(request / BLOCK) * BLOCK)).reads_per_s)
            return 1 / rates[-1]

        contestants = {
            "ram": ram.contestant(plan, lambda turn: stretch_of(plan.train, source, turn), in_memory),
            "tiered": tiered.contestant(plan, lambda turn: stretch_of(plan.train, source, turn), stretches),
            "disk": disk_alone,
        }
        seconds = interleave(contestants, plan.rounds, watch, burst=1, warm_up=plan.warm_up)
        memory_bytes, stats = tiered.tier.stats().bytes, tiered.tier.stats()
    kept = stretches[plan.warm_up :]
    return {
        "samples_per_s": plan.samples / float(np.median(seconds["tiered"])),
        "ram_samples_per_s": plan.samples / float(np.median(seconds["ram"])),
        "tiered_vs_ram": median_ratio(seconds["ram"], seconds["tiered"]),
        "processor_vs_ram": processor_ratio(in_memory[plan.warm_up :], kept),
        **disk_shares(kept, rates[plan.warm_up :], sized[plan.warm_up :]),
        **tier_figures(kept, distinct_ids(plan, source)),
        "fio_reads_per_s": float(np.median(rates[plan.warm_up :])),
        "fio_block_bytes": float(block),
        "fio_sized_reads_per_s": float(np.median(sized[plan.warm_up :])),
        "fio_installed": float(disk.reader == "fio"),
        "rows": float(stats.rows),
        "disk_rows": float(stats.disk_rows),
        "memory_bytes": float(memory_bytes),
        "disk_bytes": float(stats.disk_bytes),
    }


def distinct_ids(plan: TiersPlan, source: Source) -> float:
    """Of a batch, on average over a stretch."""
    counts = [
        len(np.unique(batch.parts[0].keys)) for _, batch in Loader(stretch_of(plan.train, source, 0), plan.samples)
    ]
    return float(np.mean(counts))


class TieredLookups:
    """Lookups and updates of our table alone, in line."""

    def __init__(self, tier: RamTier, ids: int) -> None:
        self._tier, self._out, self._steps = tier, np.empty((ids, tier.dim), np.float32), 0

    def step(self, keys: Keys, gradients: NDArray[np.float32]) -> None:
        found = self._tier.find_or_init(keys, self._out)
        self._tier.apply(found, gradients, step=self._steps)
        self._steps += 1


def beside_peers(
    plan: TiersPlan, dim: int, source: Source, folder: Path, watch: BenchProgress, adapters: Sequence[Adapter]
) -> Figures:
    """Lookups and updates of the same batches on our table and on those of peers, each with the same memory."""
    rounds = plan.rounds + plan.warm_up
    watch.stage(f"dim {dim}: lookups and updates beside peers", rounds)
    batches = key_batches(plan, source, rounds * plan.lookups)
    gradients = np.random.default_rng(2).normal(0, 0.01, (plan.ids, dim)).astype(np.float32)
    order = rarest_first(plan.train)
    with ExitStack() as opened:
        tier = opened.enter_context(closing(TieredTier(tiered_table(plan, dim, folder), threads=plan.threads)))
        make_rows(tier, order)
        memory = tier.stats().bytes
        peers: dict[str, TiersPeer] = {}
        for adapter in adapters:
            assert adapter.tiers is not None
            place = folder / adapter.name
            peer = adapter.tiers(place, dim, memory_bytes=memory, lr=plan.lr, depth=plan.depth)
            opened.enter_context(closing(peer))
            for start in range(0, len(order), FILL):
                rows = tier.whole_rows(order[start : start + FILL])
                peer.fill(rows.keys, rows.values, rows.state)
            peer.settle()
            peers[adapter.name] = peer
        ours = TieredLookups(tier, plan.ids)
        contestants = {"ours": timed(lambda turn: ours.step(batches[turn], gradients))}
        for name, peer in peers.items():
            contestants[name] = timed(lambda turn, peer=peer: peer.step(batches[turn], gradients))  # type: ignore[misc]
        seconds = interleave(contestants, plan.rounds, watch, burst=plan.lookups, warm_up=plan.warm_up)
    figures: Figures = {"lookup_kids": plan.ids / float(np.median(seconds["ours"])) / 1e3}
    for name in peers:
        figures[f"{name}_kids"] = plan.ids / float(np.median(seconds[name])) / 1e3
        figures[f"vs_{name}"] = median_ratio(seconds[name], seconds["ours"])
    return figures


def key_batches(plan: TiersPlan, source: Source, count: int) -> list[Keys]:
    """The keys of the first batches of the stream."""
    found: list[Keys] = []
    for _, batch in Loader(source, plan.samples):
        found.append(batch.parts[0].keys)
        if len(found) == count:
            break
    return found
