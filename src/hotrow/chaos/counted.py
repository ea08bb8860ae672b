"""The first part of a chaos run: modes take turns on a cluster whose rows count, until its time is over."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotrow.chaos.clusters import CACHE, CACHED_MODES, COUNTED_BATCH, PARTS, REPEATS, SHARDS, counting_trainer
from hotrow.chaos.counting import CountingSource, ids_of, read_counts
from hotrow.chaos.injection import Injector, Tell, ended_unused
from hotrow.chaos.ledger import (
    Balance,
    CachedBalance,
    TrainedStretch,
    balances,
    cached_balance,
    dense_faults,
    role_faults,
)
from hotrow.data.splits import RowRange
from hotrow.errors import FileError
from hotrow.modes import Mode
from hotrow.store.shards import shard_of
from hotrow.trainer import Remark, Trainer
from hotrow.trainer.fit_loop import mode_counts

GLOBAL_BATCH = PARTS * COUNTED_BATCH
STRETCH_S = (3.0, 20.0)  # that one mode trains at a time
FIRST_RATE = 3_000.0  # samples a second, until one is measured


@dataclass(slots=True)
class CountedPart:
    """What the ledger says; of cached rows there is one balance for all modes."""

    balances: list[Balance]
    cached: CachedBalance | None
    counts: dict[str, int]  # that the run has reported
    faults: list[str] = field(default_factory=list)


def count(
    injector: Injector,
    modes: Sequence[Mode],
    until_s: float,
    folder: Path,
    tell: Tell,
    *,
    pooled: bool,
    cached: bool = False,
) -> CountedPart:
    """Train under the injector's plan until its clock is there, and compare rows with reports."""
    replicated = any(mode.dense == "local" for mode in modes)
    killed_before, source = injector.kills, CountingSource(repeats=REPEATS if cached else 1)
    with closing(counting_trainer(pooled=pooled, replicated=replicated, cached=cached)) as trainer:
        stretches = list(_train(trainer, injector, modes, source, until_s, folder, tell))
        trainer.save(folder)
        counts, killed = mode_counts(trainer.statistics), injector.kills - killed_before
        unused = ended_unused(trainer, killed, counts)
    trained = stretches[-1].stop
    applied, steps = read_counts(folder, trained)
    found, of_cached = _balances(stretches, applied, cached=cached)
    faults = [fault for each in found for fault in each.faults]
    faults += [fault for each in of_cached for fault in each.faults]
    faults += [] if replicated else dense_faults(stretches, steps)
    whole = [*faults, *role_faults(killed, counts, unused)]
    return CountedPart(found, of_cached[0] if of_cached else None, counts, whole)


def _balances(
    stretches: Sequence[TrainedStretch], applied: NDArray[np.float64], *, cached: bool
) -> tuple[list[Balance], list[CachedBalance]]:
    samples = np.arange(len(applied))
    if not cached:
        return balances(stretches, applied, shard_of(samples, SHARDS), COUNTED_BATCH), []
    of_row = np.bincount(ids_of(samples, REPEATS), minlength=len(applied))
    in_flight = max(mode.most_in_flight for mode in CACHED_MODES)
    return [], [cached_balance(stretches, applied, of_row, COUNTED_BATCH, CACHE.staleness + 1 + in_flight)]


def _train(
    trainer: Trainer,
    injector: Injector,
    modes: Sequence[Mode],
    source: CountingSource,
    until_s: float,
    folder: Path,
    tell: Tell,
) -> Iterator[TrainedStretch]:
    low, high = STRETCH_S
    stretch_s = min(max(until_s / (2 * len(modes)), low), high)
    at, rates = 0, dict.fromkeys(modes, FIRST_RATE)
    for turn, mode in enumerate(cycle(modes)):
        if turn >= len(modes) and injector.elapsed_s >= until_s:  # every mode once, however slow the machine is
            return
        steps = max(1, int(rates[mode] * stretch_s / GLOBAL_BATCH))
        began, counts = time.monotonic(), mode_counts(trainer.statistics)
        step, samples = trainer.step, trainer.samples
        stop = at + steps * GLOBAL_BATCH
        with injector.exposed(trainer):
            trainer.switch(mode)
            for report in trainer.fit(RowRange(source, at, stop)):
                if isinstance(report, Remark):
                    tell(report.sentence)
            rates[mode] = (stop - at) / (time.monotonic() - began)
            try:
                trainer.save(folder)
            except FileError as error:  # a shard was killed meanwhile: the next one, or the one at the end, is whole
                tell(str(error))
        tell(f"{mode.name}: {stop - at:,} samples, {rates[mode]:,.0f}/s")
        if trainer.samples - samples != stop - at:
            raise AssertionError(f"{mode.name}: {trainer.samples - samples:,} samples count of {stop - at:,}")
        yield TrainedStretch(mode.name, at, stop, mode_counts(trainer.statistics, counts), steps=trainer.step - step)
        at = stop
