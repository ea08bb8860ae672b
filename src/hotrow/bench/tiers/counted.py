"""What a tiered table has done in a stretch of training, and the shares that follow from it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hotrow.bench.rounds import Figures, Seconds


@dataclass(frozen=True, slots=True)
class TierCounts:
    """Counters of a table; the difference of two is a stretch."""

    reads: int = 0  # requests to the disk
    read_bytes: int = 0
    write_bytes: int = 0
    moved_up: int = 0  # rows that came from the disk
    moved_ahead: int = 0  # of these, before a lookup needed them
    wait_s: float = 0.0  # of lookups and updates, for the disk
    buffered: int = 0  # of the rows that moved up, those that were still in memory for rows that are written behind

    def __sub__(self, before: "TierCounts") -> "TierCounts":
        pairs = {each.name: getattr(self, each.name) - getattr(before, each.name) for each in fields(self)}
        return TierCounts(**pairs)


@dataclass(frozen=True, slots=True)
class MeasuredStretch:
    """A stretch of training on a tiered table: of one contestant, in one round."""

    seconds: float
    steps: int
    counts: TierCounts
    processor_s: float = 0.0  # of all threads of the process

    @property
    def reads_per_s(self) -> float:
        """Requests that the disk got. One may read several rows that are close to each other."""
        return self.counts.reads / self.seconds

    @property
    def rows_per_s(self) -> float:
        """Rows that the disk was read for."""
        return (self.counts.moved_up - self.counts.buffered) / self.seconds

    @property
    def request_bytes(self) -> float:
        """Of a request, on average."""
        return self.counts.read_bytes / max(self.counts.reads, 1)


def tier_figures(stretches: Sequence[MeasuredStretch], distinct_ids: float) -> Figures:
    """Medians over the rounds; `distinct_ids` are those of a batch."""

    def median(values: Sequence[float]) -> float:
        return float(np.median(values))

    per_step = [(each.counts, each.steps, each.seconds) for each in stretches]
    return {
        "processor_ms": 1e3 * median([each.processor_s / each.steps for each in stretches]),
        "ram_hit_share": median([1 - counts.moved_up / steps / distinct_ids for counts, steps, _ in per_step]),
        "moved_up_per_step": median([counts.moved_up / steps for counts, steps, _ in per_step]),
        "buffered_share": median([counts.buffered / max(counts.moved_up, 1) for counts, _, _ in per_step]),
        "ahead_share": median([counts.moved_ahead / max(counts.moved_up, 1) for counts, _, _ in per_step]),
        "disk_wait_ms": 1e3 * median([counts.wait_s / steps for counts, steps, _ in per_step]),
        "disk_wait_share": median([counts.wait_s / seconds for counts, _, seconds in per_step]),
        "disk_rows_per_s": median([each.rows_per_s for each in stretches]),
        "disk_reads_per_s": median([each.reads_per_s for each in stretches]),
        "disk_read_bytes": median([each.request_bytes for each in stretches]),
        "disk_write_mbps": median([counts.write_bytes / seconds / 1e6 for counts, _, seconds in per_step]),
    }


def disk_shares(stretches: Sequence[MeasuredStretch], rates: Sequence[float], sized: Sequence[float]) -> Figures:
    """What training has of the reads that the disk does alone, within each round; the medians.

    `rates` are of blocks of the least size, `sized` of blocks as large as the requests of training. Rows may be more
    than requests, because one request reads rows that are close to each other.
    """
    if not len(stretches) == len(rates) == len(sized):
        counts = f"{len(stretches)} stretches and {len(rates)} and {len(sized)} rates of the disk"
        raise ValueError(f"{counts} are not of the same rounds")
    rounds = list(zip(stretches, rates, sized, strict=True))
    return {
        "disk_rate_share": float(np.median([each.reads_per_s / rate for each, _, rate in rounds])),
        "disk_request_share": float(np.median([each.reads_per_s / rate for each, rate, _ in rounds])),
        "disk_row_share": float(np.median([each.rows_per_s / rate for each, rate, _ in rounds])),
    }


def processor_ratio(base: Sequence[MeasuredStretch], others: Sequence[MeasuredStretch]) -> float:
    """Processor time of a step of `base` over that of `others`: the median over the rounds."""
    pairs = zip(base, others, strict=True)
    return float(np.median([one.processor_s / one.steps / (two.processor_s / two.steps) for one, two in pairs]))


def relative_rates(seconds: dict[str, Seconds]) -> dict[str, float]:
    """How fast each contestant was relative to the mean of its round: the median over the rounds."""
    rates = {name: 1 / taken for name, taken in seconds.items()}
    mean = np.mean(list(rates.values()), axis=0)
    return {name: float(np.median(rate / mean)) for name, rate in rates.items()}


def flatness(rates: Sequence[float]) -> float:
    """The slowest over the fastest: 1 is flat."""
    return min(rates) / max(rates)
