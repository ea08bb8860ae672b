"""Day after day: train on what is known, test on the next day, go on. With replay each day also sees the past again."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from hotrow.data.batch import Batch, concatenated
from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.data.source import Source
from hotrow.data.splits import Day
from hotrow.trainer.reports import Report, TrainingEnded
from hotrow.trainer.streams import evaluation_batches
from hotrow.trainer.trainer import Trainer

PAST = 5_000_000  # samples of the past that are held


class Past:
    """Samples that were trained, in their order: the newest `most` of them."""

    def __init__(self, most: int = PAST) -> None:
        self._most = most
        self._parts: list[Batch] = []
        self.samples = 0

    def add(self, batch: Batch) -> None:
        """One more stretch of time; the oldest goes where there are too many."""
        if len(batch):
            self._parts.append(batch)
            self.samples += len(batch)
        while self.samples > self._most and len(self._parts) > 1:
            self.samples -= len(self._parts.pop(0))

    def stretch(self, start: int, stop: int) -> Batch:
        """Samples from start up to, not including, stop."""
        found, first = [], 0
        for part in self._parts:
            low, high = max(start - first, 0), min(stop - first, len(part))
            if low < high:
                found.append(part.slice(low, high))
            first += len(part)
        return concatenated(found)


def replayed(past: Past, samples: int, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """About `samples` samples of the past, as stretches of `size` that began anywhere in it.

    Stretches and not single samples, because what came together belongs together: on MovieLens day by day replay of
    single samples cost 0.002 to 0.006 of the AUC, and that of stretches nothing.
    """
    if past.samples == 0 or samples == 0:
        return
    size = min(size, samples, past.samples)
    for start in rng.integers(0, past.samples - size + 1, max(1, round(samples / size))):
        yield past.stretch(start, start + size)


def fit_days(
    trainer: Trainer,
    days: Iterable[Day],
    *,
    done: Collection[str] = (),
    position: Position | None = None,
    replay: float = 0.0,
    shuffle: int = 0,
    seed: int = 0,
) -> Iterator[Report]:
    """Train and test day after day, those in `done` left out. The last evaluation is over all test days together.

    `position` is where the first day that is not done was cut. With `replay` the rows are held in memory, each day
    begins with `replay` times as many of the days before, and a day that was cut begins anew.
    """
    rng = np.random.default_rng(seed)
    past = Past()
    everything = trainer.evaluator()
    ends: list[TrainingEnded] = []
    counts: dict[str, int] = {}
    for number, day in enumerate(days):
        if day.name in done:
            if replay:
                _remember(past, day.train, trainer.global_batch)
            continue
        if replay:
            reports = trainer.fit(_with_past(day.train, past, replay, trainer.global_batch, rng, counts))
        else:
            reports = trainer.fit(day.train, shuffle=shuffle, seed=seed, position=position)
        position = None
        for report in reports:
            if isinstance(report, TrainingEnded):
                ends.append(report)
            else:
                yield report
        tested = trainer.evaluate(day.test, epoch=number, day=day.name, also=everything)
        trainer.forget_position()  # after the test: a run that is interrupted in it has trained the day
        yield tested
    if everything.rows:
        yield trainer.evaluation_report("test", everything, epoch=0)
    yield _together(trainer, ends, counts)


def _remember(past: Past, source: Source, size: int) -> None:
    for batch in evaluation_batches(source, size):
        past.add(batch)


def _with_past(
    source: Source, past: Past, replay: float, size: int, rng: np.random.Generator, counts: dict[str, int]
) -> Iterator[Batch]:
    """Stretches of the past first, then the new rows in their order: what is newest is learned last."""
    loader = Loader(source, size)
    new = [batch for _, batch in loader]
    _add(counts, loader.counts)
    yield from replayed(past, round(replay * sum(map(len, new))), size, rng)
    for batch in new:
        past.add(batch)
        yield batch


def _together(trainer: Trainer, ends: list[TrainingEnded], counts: dict[str, int]) -> TrainingEnded:
    seconds = sum(end.seconds for end in ends)
    trained = sum(end.samples_per_s * end.seconds for end in ends)
    for end in ends:
        _add(counts, end.counts)
    speed, epochs = trained / max(seconds, 1e-9), sum(end.epochs for end in ends)
    return TrainingEnded(trainer.samples, trainer.step, seconds, speed, "data ended", None, counts, epochs)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        known = total.get(name, 0)  # all days share one account of malformed lines
        total[name] = max(known, count) if name == "malformed_lines" else known + count
