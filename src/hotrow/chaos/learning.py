"""The second part of a chaos run: a click model learns the same rows without faults and with them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from hotrow.chaos.clusters import LEARNED_BATCH, PARTS, learning_trainer
from hotrow.chaos.injection import Injector, Tell, ended_unused
from hotrow.chaos.ledger import role_faults
from hotrow.data.splits import RowRange
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.modes import Mode
from hotrow.trainer import Remark, Trainer
from hotrow.trainer.fit_loop import mode_counts

GAP_MOST = 0.002  # between the AUC with faults and without
FEWEST = 40_000  # samples: below it the order of asynchronous updates moves the AUC more than a fault does
CALIBRATED = 20  # steps
STREAM = {"features": 6, "numbers": 4, "ids": 1_000, "test_rows": 40_000}


@dataclass(frozen=True, slots=True)
class Pair:
    """One mode."""

    mode: str
    samples: int
    auc: float  # without faults
    auc_faults: float

    @property
    def gap(self) -> float:
        return self.auc_faults - self.auc


@dataclass(slots=True)
class LearnedPart:
    """All pairs, and what the run has reported."""

    pairs: list[Pair]
    counts: dict[str, int]
    faults: list[str] = field(default_factory=list)


def learn(
    injector: Injector, modes: Sequence[Mode], until_s: float, folder: Path, tell: Tell, *, pooled: bool, seed: int
) -> LearnedPart:
    """Train every mode twice from the same start."""
    stream = SyntheticConfig(rows=2**40, seed=seed, **STREAM)
    killed_before, injected_before = injector.kills, len(injector.injected)
    with closing(learning_trainer(stream, pooled=pooled, seed=seed)) as trainer:
        trainer.save(folder)
        pairs = list(_pairs(trainer, injector, stream, modes, until_s, folder, tell))
        trainer.save(folder / "end")
        counts, killed = mode_counts(trainer.statistics), injector.kills - killed_before
        unused = ended_unused(trainer, killed, counts)
    faults = [
        f"{pair.mode}: AUC {pair.auc_faults:.4f} with faults and {pair.auc:.4f} without: more than {GAP_MOST} apart"
        for pair in pairs
        if abs(pair.gap) > GAP_MOST
    ]
    if all(each.name is None for each in injector.injected[injected_before:]):
        faults.append("no fault was injected while the model learned: give more --minutes")
    return LearnedPart(pairs, counts, [*faults, *role_faults(killed, counts, unused)])


def _pairs(
    trainer: Trainer,
    injector: Injector,
    stream: SyntheticConfig,
    modes: Sequence[Mode],
    until_s: float,
    start: Path,
    tell: Tell,
) -> Iterator[Pair]:
    for place, mode in enumerate(modes):
        left_s = max(0.0, until_s - injector.elapsed_s) / (len(modes) - place)
        began = time.monotonic()
        _area(trainer, stream, mode, CALIBRATED * PARTS * LEARNED_BATCH, start, tell)
        rate = CALIBRATED * PARTS * LEARNED_BATCH / (time.monotonic() - began)
        samples = max(FEWEST, int(rate * left_s))
        tell(f"{mode.name}: {samples:,} samples without faults")
        without = _area(trainer, stream, mode, samples, start, tell)
        tell(f"{mode.name}: AUC {without:.4f} without faults; now with faults")
        under = _area(trainer, stream, mode, samples, start, tell, injector)
        tell(f"{mode.name}: AUC {under:.4f} with faults, {under - without:+.4f}")
        yield Pair(mode.name, samples, without, under)


def _area(
    trainer: Trainer,
    stream: SyntheticConfig,
    mode: Mode,
    samples: int,
    start: Path,
    tell: Tell,
    injector: Injector | None = None,
) -> float:
    trainer.load(start)
    with nullcontext() if injector is None else injector.exposed(trainer):
        trainer.switch(mode)
        for report in trainer.fit(RowRange(SyntheticSource(stream), 0, samples)):
            if isinstance(report, Remark):
                tell(report.sentence)
        area = trainer.evaluate(SyntheticSource(stream, "test")).metrics["auc"]
    assert area is not None
    return area
