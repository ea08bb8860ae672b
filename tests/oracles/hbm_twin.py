"""A table in GPU memory as a dict for each bucket: the same promises in plain Python, one key at a time."""

import struct
from dataclasses import dataclass, field

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def scramble(bits: int) -> int:
    for _ in range(2):
        bits = (bits ^ bits >> 32) * 0xD6E8FEB86659FD93 & MASK
    return bits ^ bits >> 32


def first_value(stream: int, key: int, dim: int, bound: float) -> list[float]:
    """Uniform in [-bound, bound), exact in float32 where the bound is a power of two."""
    own = scramble(stream & MASK ^ scramble(key + GOLDEN & MASK))
    words = [scramble(own + (i + 1) * GOLDEN & MASK) >> 40 for i in range(dim)]
    return [struct.unpack("f", struct.pack("f", (word - 2**23) / 2**23 * bound))[0] for word in words]


@dataclass
class TwinRow:
    value: list[float]
    seen: int  # LRU: the call that last saw it; LFU: how many calls did
    version: int = 1


@dataclass
class Twin:
    """What a table holds. A call names the rows that it evicted: of equal scores any may go."""

    buckets: int
    bucket_slots: int
    dim: int
    lr: float
    stream: int
    bound: float
    lfu: bool
    calls: int = 0
    rows: dict[int, TwinRow] = field(default_factory=dict)

    def bucket(self, key: int) -> int:
        return (scramble(key) >> 10 & 2**34 - 1) * self.buckets >> 34

    def see(self, keys: set[int]) -> None:
        self.calls += 1
        for key in keys & self.rows.keys():
            row = self.rows[key]
            row.seen = min(row.seen + 1, 255) if self.lfu else self.calls

    def make(self, keys: set[int], pinned: set[int], evicted: set[int], turned_away: set[int]) -> None:
        """Rows for the keys that have none; checks which rows the table chose to evict and which keys to turn away."""
        used = keys | pinned
        for bucket in range(self.buckets):
            own = {key for key in self.rows if self.bucket(key) == bucket}
            fresh = {key for key in keys - self.rows.keys() if self.bucket(key) == bucket}
            lacking = max(0, len(own) + len(fresh) - self.bucket_slots)
            free_to_go = sorted(self.rows[key].seen for key in own - used)
            gone, away = evicted & own, turned_away & fresh
            assert len(gone) == min(lacking, len(free_to_go))
            assert not gone & used
            assert sorted(self.rows[key].seen for key in gone) == free_to_go[: len(gone)]
            assert len(away) == lacking - len(gone)
            for key in gone:
                del self.rows[key]
            for key in fresh - away:
                first = first_value(self.stream, key, self.dim, self.bound)
                self.rows[key] = TwinRow(first, 1 if self.lfu else self.calls)

    def apply(self, gradients: dict[int, list[float]]) -> None:
        for key in gradients.keys() & self.rows.keys():
            row = self.rows[key]
            row.value = [value - self.lr * g for value, g in zip(row.value, gradients[key], strict=True)]
            row.version += 1
