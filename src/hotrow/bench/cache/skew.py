"""Zipf laws over the rows of a table, and the exponent at which a tenth of the ids takes most of the updates. Pure.

An update is a distinct id of a batch, since a batch updates a row once. So popular ids have fewer updates than
occurrences, and a law has to be steeper to give them the same share of the updates.
"""

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

PAPER_SHARE = 0.9  # of the updates, that the top tenth of the ids takes (HET, Fig. 3)
TOP = 0.1
STEEPEST = 3.0


def weights(rows: int, exponent: float) -> F64:
    """The probability of each rank."""
    raw: F64 = np.arange(1, rows + 1, dtype=np.float64) ** -exponent
    raw /= raw.sum()
    return raw


def presence(chances: F64, draws: int) -> F64:
    """The probability that each rank is in a batch of so many ids."""
    found: F64 = -np.expm1(draws * np.log1p(-np.minimum(chances, 1 - 1e-12)))
    return found


def top_share(rows: int, exponent: float, draws: int, top: float = TOP) -> float:
    """The share of the updates that the most popular ids take, in batches of `draws` ids."""
    updates = presence(weights(rows, exponent), draws)
    return float(updates[: max(1, round(rows * top))].sum() / updates.sum())


def fitted_exponent(rows: int, draws: int, share: float = PAPER_SHARE, *, accuracy: float = 1e-3) -> float:
    """The exponent at which the top tenth takes `share` of the updates; the share rises with the exponent."""
    low, high = 0.0, STEEPEST
    while high - low > accuracy:
        middle = (low + high) / 2
        low, high = (middle, high) if top_share(rows, middle, draws) < share else (low, middle)
    return (low + high) / 2
