"""The planted teacher: the log-odds of a click from ids and numbers, by weights that are functions of the id alone.

Each id has a weight; ids of the first few features have a second one, which acts times that of a partner's id, as a
factorisation machine can learn. Weights shrink with the rank of an id, because no model can learn what it sees once.
They are made of bits of the id's hash: there is no table, however many ids there are.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from hotrow.data.chance import F64, STEP, U64, bits, stream
from hotrow.data.synthetic.config import SyntheticConfig
from hotrow.data.synthetic.draws import F32, I16, I64, normal

HALF_RANK = 50.0  # an id of this rank weighs half of what the first one weighs
PAIRS = 3
SHARES = (0.65, 0.15, 0.2)  # of the variance of the log-odds: single ids, pairs, numbers


class Teacher:
    """Which features are pairs, what the numbers weigh, and how far the weights of ids have drifted by a day."""

    def __init__(self, config: SyntheticConfig) -> None:
        self._seed, self._drift = config.seed, config.drift
        self.number_weights: F32 = normal(bits(stream(config.seed, 101), np.arange(config.numbers, dtype=np.uint64)))
        pairs = min(PAIRS, config.features // 2)
        self.partners = {2 * pair + 1: 2 * pair for pair in range(pairs)}  # second of a pair -> the first

    def sums(self, rows: int, day: int) -> "Sums":
        """The sums over a block of rows, nothing added yet."""
        moved = day * self._drift
        version, ahead = int(moved), moved - int(moved)
        now, later = (np.uint64(stream(self._seed, 102, version + step)) for step in (0, 1))
        return Sums(self, rows, now, later, np.uint64(int(ahead * 2**64)))


class Sums:
    """Single ids, pairs and numbers, each summed over the columns. Columns come one by one: each is in cache once."""

    def __init__(self, teacher: Teacher, rows: int, now: np.uint64, later: np.uint64, ahead: np.uint64) -> None:
        self._teacher, self._now, self._later, self._ahead = teacher, now, later, ahead
        self.parts: F32 = np.zeros((3, rows), np.float32)
        self._firsts: dict[int, F32] = {}  # first of a pair -> its second weights, until the partner comes

    def add_ids(self, feature: int, mixed_ids: U64, ranks: I64) -> None:
        """A column of ids, well mixed, and their ranks from 1."""
        hashes: I16 = self._hashes(mixed_ids).view(np.int16).reshape(-1, 4)
        strength: F32 = np.float32(HALF_RANK) / (ranks.astype(np.float32) + np.float32(HALF_RANK - 1))
        self.parts[0] += hashes[:, 0] * strength
        if feature in self._teacher.partners:
            self.parts[1] += hashes[:, 1] * strength * self._firsts.pop(self._teacher.partners[feature])
        elif feature in self._teacher.partners.values():
            self._firsts[feature] = hashes[:, 1] * strength

    def add_number(self, number: int, values: F32) -> None:
        """A column of numbers."""
        self.parts[2] += values * self._teacher.number_weights[number]

    def _hashes(self, ids: U64) -> U64:
        """Fresh bits for each (id, version of its weights). A share of the ids is one version ahead of the others."""
        hashes: U64 = ids ^ self._now
        if self._ahead:
            np.bitwise_xor(ids, self._later, out=hashes, where=ids * np.uint64(STEP) < self._ahead)
        hashes *= np.uint64(STEP)
        hashes ^= hashes >> np.uint64(32)
        return hashes


@dataclass(frozen=True, slots=True)
class TeacherScale:
    """What brings the sums to the deviation and the click rate that were asked for."""

    factors: tuple[float, ...]
    bias: float = 0.0

    @classmethod
    def fitted(cls, sample: Sums, signal: float) -> "TeacherScale":
        """From the sums of a sample. Parts without variance (no pairs, no numbers) leave their share to the others."""
        deviations = [float(part.std(dtype=np.float64)) for part in sample.parts]
        shares = [share if deviation > 0 else 0.0 for share, deviation in zip(SHARES, deviations, strict=True)]
        lengths = [signal * math.sqrt(share / (sum(shares) or 1.0)) for share in shares]
        return cls(tuple(length / (deviation or 1.0) for length, deviation in zip(lengths, deviations, strict=True)))

    def with_click_rate(self, sample: Sums, click_rate: float) -> "TeacherScale":
        """The same, with the bias that makes the sample's mean chance of a click `click_rate`."""
        odds = replace(self, bias=0.0).log_odds(sample).astype(np.float64)
        middle, reach = math.log(click_rate / (1 - click_rate)), float(np.abs(odds).max()) + 1
        low, high = middle - reach, middle + reach
        for _ in range(60):  # halvings: to the last bits of float32
            bias = (low + high) / 2
            low, high = (bias, high) if float(chances(odds + bias).mean()) < click_rate else (low, bias)
        return replace(self, bias=bias)

    def log_odds(self, sums: Sums) -> F32:
        """The best that can be known of every row."""
        odds: F32 = sums.parts[0] * np.float32(self.factors[0])
        odds += sums.parts[1] * np.float32(self.factors[1])
        odds += sums.parts[2] * np.float32(self.factors[2])
        odds += np.float32(self.bias)
        return odds


def chances(log_odds: F32 | F64) -> F64:
    """The logistic function; beyond 700 its float64 is 0 or 1 anyway, and the exponential would overflow."""
    odds: F64 = np.clip(log_odds.astype(np.float64), -700, 700)
    chance: F64 = 1 / (1 + np.exp(-odds))
    return chance
