"""A histogram of numbers from 0 on whose bins are as wide as their place is far from 0, for one pass over any number.

A bin is the upper half of a float32: exponent and 7 bits of mantissa. So a quantile is wrong by less than 1 part in
128, whole numbers up to 256 have bins of their own, and the memory is the same for a thousand rows and for a billion.
"""

import numpy as np
from numpy.typing import NDArray

BINS = 1 << 15  # of all float32 from 0 on
INFINITE = 0x7F80  # the bin of infinity; NaN is beyond it


class Distribution:
    """Counts and sums of numbers by size."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(BINS, np.int64)
        self.sums: NDArray[np.float64] = np.zeros(BINS, np.float64)
        self.not_finite = 0
        self.least, self.most = np.inf, -np.inf

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Numbers from 0 on; those that are not finite are counted apart."""
        with np.errstate(over="ignore"):
            small = numbers.astype(np.float32)
        finite = np.isfinite(small)
        if not finite.all():
            self.not_finite += int((~finite).sum())
            numbers, small = numbers[finite], small[finite]
        if not len(numbers):
            return
        bins = (np.abs(small).view(np.uint32) >> 16).astype(np.int64)
        self.counts += np.bincount(bins, minlength=BINS)
        self.sums += np.bincount(bins, weights=numbers, minlength=BINS)
        self.least, self.most = min(self.least, float(numbers.min())), max(self.most, float(numbers.max()))

    def __len__(self) -> int:
        return int(self.counts.sum())

    @property
    def total(self) -> float:
        return float(self.sums.sum())

    def quantile(self, part: float) -> float | None:
        """The number that `part` of all are not above: the mean of its bin; None where there are none."""
        if not len(self):
            return None
        if part <= 0 or part >= 1:
            return self.least if part <= 0 else self.most
        at = int(np.searchsorted(self.counts.cumsum(), part * len(self)))
        return float(self.sums[at] / self.counts[at])

    def share_of_top(self, part: float) -> float | None:
        """What the largest `part` of the numbers have of the sum; None where that is 0."""
        if not self.total:
            return None
        counts, sums = self.counts[::-1], self.sums[::-1]
        wanted = part * len(self)
        up_to = counts.cumsum()
        at = int(np.searchsorted(up_to, wanted))
        whole = float(sums[:at].sum())
        if at == len(counts):
            return 1.0
        of_bin = (wanted - (up_to[at] - counts[at])) / counts[at] if counts[at] else 0.0
        return min(1.0, (whole + float(sums[at]) * float(of_bin)) / self.total)
