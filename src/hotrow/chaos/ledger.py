"""The ledger: how often each sample was applied, by the rows of a checkpoint, beside what the run has reported. Pure.

A push is what one batch sends to one shard; a shard applies all of it or nothing. The run may lose a push, or apply one
twice, only where it says so: the counts have to agree exactly.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.types import RoleKind

LOST = ("lost_pushes", "parked_pushes_lost", "forgotten_pushes")  # counts of pushes that were not applied
PARTLY = "partly_applied_pushes"  # a shard ended while it applied them: none, some or all of their rows have them
TWICE = "rows_applied_twice"
CHANGED_MOST = 1_024  # rows of a cache whose changes one request has
ROLES_LOST: dict[RoleKind, str] = {
    "trainer": "trainers_lost",
    "embedding worker": "embedding_workers_lost",
    "shard": "shards_lost",
    "loader": "loaders_lost",
}


@dataclass(frozen=True, slots=True)
class TrainedStretch:
    """Samples that were trained once in one mode, and what the run counted meanwhile."""

    mode: str
    first: int
    stop: int
    counts: Mapping[str, int]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Balance:
    """Of one mode: pushes by how often they were applied, and what was reported of them."""

    mode: str
    samples: int
    pushes: int
    never: int
    twice: int  # applications beyond the first
    never_reported: int
    twice_reported: int
    uneven: int  # pushes of which some samples were applied more often than others; they are in no other count
    partly_reported: int
    odd: int  # samples whose row is no whole number, or below 0

    @property
    def faults(self) -> Iterator[str]:
        """A sentence for each disagreement."""
        if self.odd:
            yield f"{self.mode}: {self.odd:,} samples have rows that no number of gradients explains"
        if self.uneven > self.partly_reported:
            said = f"the run reports {self.partly_reported:,}"
            yield f"{self.mode}: {self.uneven:,} pushes were applied in part, and {said}"
        unexplained = self.never - self.never_reported
        if not 0 <= unexplained <= max(0, self.partly_reported - self.uneven):
            said = f"the run reports {self.never_reported:,}"
            yield f"{self.mode}: {self.never:,} pushes were never applied, and {said}"
        if self.twice != self.twice_reported:
            said = f"the run reports {self.twice_reported:,}"
            yield f"{self.mode}: {self.twice:,} pushes were applied once more than they should, and {said}"


def balances(
    stretches: Sequence[TrainedStretch], applied: NDArray[np.float64], shards: NDArray[np.integer], local_batch: int
) -> list[Balance]:
    """One for each mode. `applied`: by sample, how often its gradient is in its row; `shards`: by sample."""
    found: dict[str, list[Balance]] = {}
    for each in stretches:
        part = slice(each.first, each.stop)
        found.setdefault(each.mode, []).append(_balance(each, applied[part], shards[part], local_batch))
    return [_sum(each) for each in found.values()]


def _balance(
    stretch: TrainedStretch, applied: NDArray[np.float64], shards: NDArray[np.integer], local_batch: int
) -> Balance:
    times = np.rint(applied).astype(np.int64)
    odd = int(np.count_nonzero((times != applied) | (times < 0)))
    batches = np.arange(len(applied)) // local_batch
    _, first, push = np.unique(
        batches * (int(shards.max(initial=0)) + 1) + shards, return_index=True, return_inverse=True
    )
    of_push = times[first]
    uneven = np.unique(push[times != of_push[push]])
    even = np.delete(of_push, uneven)
    return Balance(
        stretch.mode,
        len(applied),
        len(of_push),
        never=int(np.count_nonzero(even == 0)),
        twice=int((even - 1).clip(min=0).sum()),
        never_reported=sum(stretch.counts.get(name, 0) for name in LOST),
        twice_reported=stretch.counts.get(TWICE, 0),
        uneven=len(uneven),
        partly_reported=stretch.counts.get(PARTLY, 0),
        odd=odd,
    )


def _sum(parts: Sequence[Balance]) -> Balance:
    names = (
        "samples",
        "pushes",
        "never",
        "twice",
        "never_reported",
        "twice_reported",
        "uneven",
        "partly_reported",
        "odd",
    )
    return Balance(parts[0].mode, **{name: sum(getattr(each, name) for each in parts) for name in names})


@dataclass(frozen=True, slots=True)
class CachedBalance:
    """Of rows that trainers cache, whose ids occur several times: updates that are missing, and those that are extra.

    Trainers write back changes of rows, of several batches together, so there are no pushes to be compared.
    """

    samples: int
    rows: int
    missing: int
    missing_most: int  # that the reports explain
    extra: int
    extra_most: int
    odd: int  # rows that are no whole number, or below 0

    @property
    def faults(self) -> Iterator[str]:
        """A sentence for each disagreement."""
        if self.odd:
            yield f"cached: {self.odd:,} rows have values that no number of gradients explains"
        for kind, found, most in (("missing", self.missing, self.missing_most), ("extra", self.extra, self.extra_most)):
            if found > most:
                yield f"cached: {found:,} updates of rows are {kind}, and the reports explain {most:,}"


def cached_balance(
    stretches: Sequence[TrainedStretch],
    applied: NDArray[np.float64],
    samples_of_row: NDArray[np.int64],
    local_batch: int,
    updates_most: int,
) -> CachedBalance:
    """`applied`: by row, how often a gradient is in it; `samples_of_row`: how often one should be.

    `updates_most`: of a row, that a trainer may not have written back.

    A killed trainer loses updates of `cached_rows_lost` rows, and batches that count and that it did not answer for.
    A shard that is killed while it adds changes leaves some of them out. Only batches that are dealt again are trained
    again.
    """
    counted = Counter[str]()
    for each in stretches:
        counted.update(each.counts)
    times = np.rint(applied).astype(np.int64)
    short = samples_of_row - times
    rows_lost = counted["cached_rows_lost"] + sum(n for name, n in counted.items() if name.startswith("cache_dropped"))
    in_doubt = CHANGED_MOST * sum(counted[name] for name in (PARTLY, *LOST))  # rows of requests
    missing_most = updates_most * (rows_lost + in_doubt) + local_batch * counted["pushes_unanswered"]
    dealt_again = counted["lost_batches_dropped"] + counted["applied_batches_dealt_again"]
    return CachedBalance(
        samples=int(samples_of_row.sum()),
        rows=int(np.count_nonzero(samples_of_row)),
        missing=int(short.clip(min=0).sum()),
        missing_most=missing_most,
        extra=int((-short).clip(min=0).sum()),
        extra_most=local_batch * dealt_again,
        odd=int(np.count_nonzero((times != applied) | (times < 0))),
    )


def dense_faults(stretches: Sequence[TrainedStretch], counted: float) -> Iterator[str]:
    """`counted`: dense steps by the parameter that counts them."""
    lost = sum(each.counts.get("dense_steps_lost", 0) for each in stretches)
    pushes = sum(each.counts.get("dense_pushes_lost", 0) for each in stretches)  # each up to a whole step
    steps = sum(each.steps for each in stretches)
    if not steps - lost - pushes <= counted <= steps - lost:
        said = f"the run reports {steps:,}, {lost:,} of them lost"
        said += f" and {pushes:,} gradients of others" if pushes else ""
        yield f"the dense parameter was updated {counted:,.10g} times, and {said}"


def role_faults(
    killed: Mapping[RoleKind, int], counts: Mapping[str, int], unused: Mapping[RoleKind, int]
) -> Iterator[str]:
    """`killed`: roles that were killed, by kind; every one has to be reported as lost, and no other.

    `unused`: roles that have ended since the run needed them last.
    """
    for kind, name in ROLES_LOST.items():
        if (did := killed.get(kind, 0)) != (reported := counts.get(name, 0) + unused.get(kind, 0)):
            yield f"{did} of the roles {kind!r} were killed, and the run reports {reported} as lost"
