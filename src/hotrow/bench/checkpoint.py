"""`hotrow bench checkpoint`: saving and loading beside plain writes and reads of as many bytes, and training meanwhile.

What is compared has run in the same round, and the median over the rounds counts. A load starts from an empty table, as
in a process that continues a run, and from files that are not in memory. A background save is compared with as many
steps without one, right after it.
"""

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hotrow.bench.checkpoint_plan import CheckpointPlan
from hotrow.bench.ids import keys_of, zipf_batches
from hotrow.bench.network import network
from hotrow.bench.raw_files import RawFiles, bytes_from_disk, drop_cache, read
from hotrow.bench.rounds import BenchProgress, Figures, Seconds, interleave, median_ratio, timed
from hotrow.bench.workload import torch_threads
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.modes import Sync
from hotrow.optim.sparse import Adagrad
from hotrow.store import RamTier
from hotrow.trainer import Trainer
from hotrow.trainer.saving import Saving

WARM_UP = 1  # rounds
FILL = 1 << 17  # rows made at once while the table is filled


def measure(plan: CheckpointPlan, folder: Path, watch: BenchProgress) -> Figures:
    """All figures, flat: plain_save_vs_raw, lru_save_vs_raw and so on. Files are made in `folder`."""
    figures: Figures = {}
    with torch_threads(plan.threads):
        for name, capacity in (("plain", None), ("lru", plan.rows)):
            place = folder / name
            place.mkdir()
            found = SavingTable(plan, capacity, place).measure(name, watch)
            figures |= {f"{name}_{key}": value for key, value in found.items()}
            gc.collect()  # the next table needs the memory of this one
    return figures


class SavingTable:
    """A trainer with a filled table, and the folders of its checkpoints."""

    def __init__(self, plan: CheckpointPlan, capacity: int | None, folder: Path) -> None:
        self._plan, self._capacity = plan, capacity
        self._batches = training_batches(plan)
        self._trainer = self._make(plan.threads)
        self._tier = tier_of(self._trainer)
        for start in range(0, plan.rows, FILL):
            self._tier.find_or_init(keys_of(np.arange(start, min(start + FILL, plan.rows))))
        self._full, self._chain, self._raw_folder = folder / "full", folder / "chain", folder / "raw"
        self._raw_folder.mkdir()
        self._raw = RawFiles(self._raw_folder)
        self._turn = 0  # of training: which batch is next
        self._from_disk: list[float] = []  # share of the bytes of each raw read
        self._load_work: list[tuple[float, float]] = []  # seconds of all threads of each load: own code, the system

    def measure(self, name: str, watch: BenchProgress) -> Figures:
        """Everything of this table."""
        rounds = self._plan.rounds
        watch.stage(f"{name}: save and load beside raw files", rounds + WARM_UP)
        self._trainer.save(self._full)
        self._raw.prepare(sizes_of(files_of(self._full)))
        contestants = {
            "save": timed(lambda _: self._trainer.save(self._full)),
            "raw write": timed(lambda _: self._raw.write(sizes_of(files_of(self._full)))),
            "load": self._load,
            "raw read": self._read_raw,
        }
        seconds = interleave(contestants, rounds, watch, burst=1, warm_up=WARM_UP)
        self._raw.remove()
        figures = self._against_raw(seconds)
        watch.stage(f"{name}: training during a save", rounds + WARM_UP)
        figures |= self._measure_pause(watch)
        watch.stage(f"{name}: changes alone", rounds)
        figures |= self._measure_delta(watch)
        self._trainer.close()
        return figures

    def _against_raw(self, seconds: dict[str, Seconds]) -> Figures:
        return {
            "bytes": float(sum(sizes_of(files_of(self._full)))),
            "save_s": float(np.median(seconds["save"])),
            "raw_write_s": float(np.median(seconds["raw write"])),
            "save_vs_raw": median_ratio(seconds["save"], seconds["raw write"]),
            "load_s": float(np.median(seconds["load"])),
            "raw_read_s": float(np.median(seconds["raw read"])),
            "load_vs_raw": median_ratio(seconds["load"], seconds["raw read"]),
            "load_processor_s": float(np.median([sum(each) for each in self._load_work])),
            "load_system_s": float(np.median([system for _, system in self._load_work])),
            "read_from_disk": float(np.median(self._from_disk)),
        }

    def _measure_pause(self, watch: BenchProgress) -> Figures:
        """What training loses while a thread writes, in wall time and in processor time of the training thread."""
        shares, processor, pauses, steps, copied = [], [], [], [], 0
        for turn in range(self._plan.rounds + WARM_UP):
            began, worked = time.perf_counter(), time.thread_time()
            saving = self._trainer.save_in_background(self._full)
            trained = self._train_until(saving)
            with_save, worked_with = time.perf_counter() - began, time.thread_time() - worked
            self._trainer.finish_saving()
            began, worked = time.perf_counter(), time.thread_time()
            self._train(trained)
            without, worked_without = time.perf_counter() - began, time.thread_time() - worked
            watch.tick()
            copied = max(copied, saving.copied_bytes)
            if turn >= WARM_UP:
                shares.append((with_save - without) / saving.seconds)
                processor.append((worked_with - worked_without) / saving.seconds)
                pauses.append(saving.pause_s)
                steps.append(trained)
        return {
            "pause_share": float(np.median(shares)),
            "pause_share_processor": float(np.median(processor)),
            "pause_s": float(np.median(pauses)),
            "steps_during_save": float(np.median(steps)),
            "copied_bytes": float(copied),
        }

    def _measure_delta(self, watch: BenchProgress) -> Figures:
        """A checkpoint of the changes alone, after some rows were updated."""
        sizes, seconds = [], []
        generator = np.random.default_rng(4)
        for _ in range(self._plan.rounds):
            self._trainer.save(self._full)  # so that the next one of the other folder is full
            self._trainer.save(self._chain, delta=True)
            self._update(generator.choice(self._plan.rows, round(self._plan.changed * self._plan.rows), replace=False))
            began = time.perf_counter()
            self._trainer.save(self._chain, delta=True)
            seconds.append(time.perf_counter() - began)
            full, delta = SavedCheckpoint.open(self._chain).chain
            sizes.append(delta.manifest.size / full.manifest.size)
            watch.tick()
        return {"delta_share": float(np.median(sizes)), "delta_s": float(np.median(seconds))}

    def _load(self, turn: int) -> float:
        """Seconds to load into an empty table with all cores, from files that are not in memory."""
        fresh = self._make(None)
        drop_cache(files_of(self._full))
        began, before = time.perf_counter(), os.times()
        fresh.load(self._full)
        taken, after = time.perf_counter() - began, os.times()
        self._load_work.append((after.user - before.user, after.system - before.system))
        fresh.close()
        return taken

    def _read_raw(self, turn: int) -> float:
        files = files_of(self._full)
        drop_cache(files)
        fetched, began = bytes_from_disk(), time.perf_counter()
        read(files)
        taken = time.perf_counter() - began
        self._from_disk.append((bytes_from_disk() - fetched) / sum(sizes_of(files)))
        return taken

    def _train_until(self, saving: Saving) -> int:
        """Train while a checkpoint is written; how many steps that were."""
        first = self._turn

        def batches() -> Iterator[Batch]:
            while not saving.done:
                yield self._next_batch()

        for _ in self._trainer.fit(batches()):
            pass
        return self._turn - first

    def _train(self, steps: int) -> None:
        for _ in self._trainer.fit(self._next_batch() for _ in range(steps)):
            pass

    def _next_batch(self) -> Batch:
        self._turn += 1
        return self._batches[self._turn % len(self._batches)]

    def _update(self, rows: np.ndarray) -> None:
        keys = keys_of(rows)
        gradients = np.full((len(keys), self._plan.dim), 0.01, np.float32)
        self._tier.apply(self._tier.find_or_init(keys), gradients, step=self._trainer.step)

    def _make(self, threads: int | None) -> Trainer:
        plan = self._plan
        model, dense = network(plan.training, plan.dim, plan.hidden)
        table = Table(dim=plan.dim, optimizer=Adagrad(lr=plan.lr), capacity=self._capacity)
        return Trainer(
            model,
            table,
            optimizer=dense,
            global_batch=plan.samples,
            mode=Sync(look_ahead=0),
            threads=threads,
            report_every_s=3600,
        )


def training_batches(plan: CheckpointPlan) -> list[Batch]:
    """Zipf ids over the rows of the table, in memory; a table with a capacity has lost some of them and evicts."""
    names = tuple(f"c{place}" for place in range(plan.features))
    numbers, labels = np.zeros((plan.samples, 0), np.float32), np.ones((plan.samples, 1), np.float32)
    made = zipf_batches(plan.rows, plan.samples * plan.features, plan.pool, exponent=plan.zipf)
    blocks = (FeatureBlock("default", "one", names, each.keys.view(np.int64)) for each in made)
    return [Batch((block,), numbers, labels=labels) for block in blocks]


def tier_of(trainer: Trainer) -> RamTier:
    """Its one table."""
    tier = trainer.tables.tiers["default"]
    assert isinstance(tier, RamTier)
    return tier


def files_of(folder: Path) -> list[Path]:
    """The files of the newest checkpoint, of which there is one."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sizes_of(files: list[Path]) -> list[int]:
    return [path.stat().st_size for path in files]
