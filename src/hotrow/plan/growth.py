"""How many distinct ids a feature will have: a growth law from the part of the data that was read. Pure.

Heaps' law says that n rows have K n^b distinct ids. On real data b falls as a feature runs out of new ids: slowly where
few ids are frequent, ever faster where all are equally frequent. So b is measured over the last doublings of the
sample, and falls from one further doubling to the next as it did there, at the same pace or at one that quickens.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from hotrow.errors import InputError

ROWS_LEAST = 2000  # to extrapolate from: three doublings then begin at 250 rows
DOUBLINGS = 3  # of the sample that the law is taken from
FEWEST = 8  # distinct ids at the start of a doubling: fewer tell nothing
STEADY = 0.999  # a fall by less than this is none
QUICKENING_MOST = 2.0  # that of equally frequent ids, where the logarithm of b is proportional to the rows


@dataclass(frozen=True, slots=True)
class FeatureGrowth:
    """The law of one feature: `exponent` held over the last doubling, and falls with each further one."""

    rows: int  # read
    distinct: int
    exponent: float
    fall: float = 1.0  # the factor of the exponent over the last doubling
    quickening: float = 1.0  # the factor of the logarithm of `fall`, from one doubling to the next

    def at(self, rows: int) -> float:
        """Distinct ids in so many rows."""
        return self.distinct * math.exp2(self._grown(self._doublings(rows)))

    def at_most(self, rows: int) -> float:
        """The same by Heaps' law with an exponent that does not fall."""
        return self.distinct * math.exp2(self.exponent * self._doublings(rows))

    def _doublings(self, rows: int) -> float:
        return math.log2(max(rows, self.rows) / max(self.rows, 1))

    def _grown(self, doublings: float) -> float:
        """The sum of the exponents of further doublings, the last of which may be a part of one."""
        total, exponent, log_fall = 0.0, self.exponent, math.log(self.fall)
        while doublings > 0:
            log_fall *= self.quickening
            exponent *= math.exp(log_fall)
            total += exponent * min(1.0, doublings)
            doublings -= 1
        return total


def check_rows(rows: int) -> None:
    """InputError where a sample is too small to extrapolate from."""
    if rows < ROWS_LEAST:
        raise InputError(
            f"the sample has {rows:,} rows: {ROWS_LEAST:,} or more are needed to extrapolate from; read more "
            f"(--sample), or the whole data"
        )


def fit_growth(first_rows: Sequence[int], rows: int) -> FeatureGrowth:
    """From the row in which each distinct id came first, in rising order, of `rows` rows that were read."""
    counts = [bisect_left(first_rows, rows / 2**step) for step in range(DOUBLINGS + 1)]
    exponents = [math.log2(new / old) for new, old in pairwise(counts) if old >= FEWEST]
    if not exponents or not exponents[0]:  # no new id in the last half: what was seen is what there is
        return FeatureGrowth(rows, len(first_rows), 0.0)
    falls = [min(1.0, new / old) for new, old in pairwise(takewhile(bool, exponents))]
    if not falls:
        return FeatureGrowth(rows, len(first_rows), exponents[0])
    return FeatureGrowth(rows, len(first_rows), exponents[0], falls[0], _quickening(falls))


def _quickening(falls: Sequence[float]) -> float:
    """How much faster the exponent fell over the last doubling than over the one before."""
    if len(falls) < 2 or max(falls[:2]) >= STEADY:
        return 1.0
    return min(QUICKENING_MOST, max(1.0, math.log(falls[0]) / math.log(falls[1])))
