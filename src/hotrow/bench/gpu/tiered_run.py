"""Large batches trained through a working set, and the time of each stage.

Stages of the trainer: `begin` (touch, wait for rows, put), `prefetch` (fold the next batch, look it up) and `train`.
The thread beside it reads and writes rows of the tier below; what of its time the trainer did not wait for is hidden.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from hotrow.bench.gpu.training import OwnTable, TrainingBatch
from hotrow.bench.gpu.workload import keys_of
from hotrow.store.hbm import HbmPlan, HbmTier, WorkingSet
from hotrow.store.hbm.rows import KeyBatch

STAGES = ("begin", "prefetch", "train")


class WorkingTable(OwnTable):
    """Rows of a working set, for mini-batches in the order in which they were folded."""

    def __init__(self, working: WorkingSet[HbmPlan], tier: HbmTier) -> None:
        super().__init__(tier)
        self.working = working
        self.folded: deque[KeyBatch] = deque()

    def fold(self, large: Sequence[TrainingBatch]) -> list[KeyBatch]:
        return [self.tier.batch(keys_of(batch.ids)) for batch in large]

    def look_up(self, ids: Tensor) -> HbmPlan:
        return self.working.find(self.folded.popleft())


class StageClock:
    """Time between marks in a stream, by stage; on the CPU that of its calls."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[str, Any]] = []

    def mark(self, stage: str) -> None:
        """A stage begins."""
        now: Any = perf_counter()
        if self._device.type == "cuda":
            now = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            now.record()
        self._marks.append((stage, now))

    def seconds(self) -> dict[str, float]:
        """Sums up to the last mark, which begins nothing."""
        found = dict.fromkeys(STAGES, 0.0)
        synchronize(self._device)
        for (stage, begin), (_, end) in pairwise(self._marks):
            found[stage] += begin.elapsed_time(end) / 1_000 if self._device.type == "cuda" else end - begin
        self._marks.clear()
        return found


@dataclass(slots=True)
class TieredTimes:
    """Of some large batches."""

    seconds: float
    stages: dict[str, float]
    read_s: float
    write_s: float
    wait_s: float
    rows_up: int
    rows_down: int

    @property
    def hidden(self) -> float:
        """Share of the time of the thread below that the trainer did not wait for."""
        busy = self.read_s + self.write_s
        return 1 - min(self.wait_s, busy) / busy if busy else 1.0


@dataclass(slots=True)
class TieredRun:
    """A stream of large batches through a working set. One batch more than was trained is folded and prefetched."""

    table: WorkingTable
    step: Callable[[TrainingBatch], object]  # trains one mini-batch
    large: Iterator[Sequence[TrainingBatch]]
    _next: tuple[Sequence[TrainingBatch], list[KeyBatch]] | None = field(default=None, init=False)

    def run(self, batches: int) -> TieredTimes:
        """Train so many large batches."""
        device, moved = self.table.tier.device, self.table.working.moved
        before = (moved.read_s, moved.write_s, moved.wait_s, moved.up, moved.down)
        clock = StageClock(device)
        synchronize(device)
        begin = perf_counter()
        for _ in range(batches):
            self._one(clock)
        clock.mark("end")
        synchronize(device)
        seconds = perf_counter() - begin
        after = (moved.read_s, moved.write_s, moved.wait_s, moved.up, moved.down)
        read_s, write_s, wait_s, up, down = (b - a for a, b in zip(before, after, strict=True))
        return TieredTimes(seconds, clock.seconds(), read_s, write_s, wait_s, int(up), int(down))

    def _one(self, clock: StageClock) -> None:
        working = self.table.working
        large, folded = self._next or self._folded()
        clock.mark("begin")
        working.begin(folded)
        clock.mark("prefetch")
        self._next = self._folded()
        working.prefetch(self._next[1])
        clock.mark("train")
        self.table.folded.extend(folded)
        for batch in large:
            self.step(batch)

    def _folded(self) -> tuple[Sequence[TrainingBatch], list[KeyBatch]]:
        large = next(self.large)
        return large, self.table.fold(large)


def seconds_in_memory(
    step: Callable[[TrainingBatch], object], device: torch.device, large: Sequence[Sequence[TrainingBatch]]
) -> float:
    """Of the same large batches without tiers."""
    synchronize(device)
    begin = perf_counter()
    for batch in (each for batches in large for each in batches):
        step(batch)
    synchronize(device)
    return perf_counter() - begin


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
