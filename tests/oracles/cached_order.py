"""The slow twin of a cache's eviction order: one partition, plain dicts and lists."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from oracles.life import FREQUENCIES, hash_key

MOST_REMEMBERED = 0xFFFF


@dataclass
class TwinRow:
    frequency: int
    next_use: int  # 0: none is known


@dataclass
class TwinOrder:
    """`moved` has the keys in the order in which they got their present place."""

    policy: str
    capacity: int
    hot: int = 10
    rows: dict[int, TwinRow] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)
    announced: dict[int, set[int]] = field(default_factory=dict)  # by number, batches that have not begun
    remembered: dict[int, tuple[int, int]] = field(default_factory=dict)  # by place: tag and frequency
    numbers: int = 0

    def order(self) -> list[int]:
        """The first to go first."""
        return sorted(self.moved, key=self._rank)

    def announce(self, keys: Sequence[int]) -> int:
        self.numbers += 1
        self.announced[self.numbers] = set(keys)
        for key in keys:
            if key in self.rows and self._next_use(key) == self.numbers:
                self._move(key)
        return self.numbers

    def withdraw(self, number: int, keys: Sequence[int]) -> None:
        del self.announced[number]
        for key in keys:
            if key in self.rows and self.rows[key].next_use != self._next_use(key):
                self._move(key)

    def place(self, keys: Sequence[int], number: int, pinned: Collection[int] = ()) -> None:
        """`pinned`: keys of other batches in use."""
        if number:
            del self.announced[number]
        absent = [key for key in keys if key not in self.rows]
        for key in keys:
            if key in self.rows and not (self.policy == "light_lfu" and self.rows[key].frequency >= self.hot):
                self.rows[key].frequency += 1
                self._move(key)
        self._come_in(absent, {*keys, *pinned})

    def _come_in(self, absent: Sequence[int], in_use: Collection[int]) -> None:
        """Rows beyond the capacity go, the first in the order, but for those in use."""
        self._evict_beyond(in_use)
        for key in absent:
            frequency = 1 + self._recall(key)
            self.rows[key] = TwinRow(min(frequency, self.hot) if self.policy == "light_lfu" else frequency, 0)
            self.moved.append(key)
            self._move(key)
            self._evict_beyond(in_use)

    def _evict_beyond(self, in_use: Collection[int]) -> None:
        for key in self.order()[: self.beyond]:
            if key not in in_use:
                self._evict(key)

    @property
    def beyond(self) -> int:
        """Rows beyond the capacity."""
        return max(len(self.rows) - self.capacity, 0)

    def _rank(self, key: int) -> tuple[int, int]:
        row = self.rows[key]
        match self.policy:
            case "lru":
                return 0, 0
            case "light_lfu":
                return 0, min(row.frequency, self.hot)
            case "ahead" if row.next_use:
                return 1, -row.next_use
        return 0, min(row.frequency, FREQUENCIES)

    def _next_use(self, key: int) -> int:
        return min((number for number, keys in self.announced.items() if key in keys), default=0)

    def _move(self, key: int) -> None:
        self.moved.remove(key)
        self.moved.append(key)
        self.rows[key].next_use = self._next_use(key) if self.policy == "ahead" else 0

    def _evict(self, key: int) -> None:
        self.moved.remove(key)
        frequency = self.rows.pop(key).frequency
        if self.policy == "light_lfu" and frequency >= self.hot:
            self.hot = min(2 * self.hot, FREQUENCIES)
        if self.policy != "lru":
            place, tag = self._memory(key)
            self.remembered[place] = tag, min(frequency, MOST_REMEMBERED)

    def _recall(self, key: int) -> int:
        place, tag = self._memory(key)
        kept_tag, frequency = self.remembered.get(place, (0, 0))
        return frequency if kept_tag == tag else 0

    def _memory(self, key: int) -> tuple[int, int]:
        """Place and tag of a key among what is remembered: native/store/remembered.h"""
        places, value = 1 << (2 * self.capacity - 1).bit_length(), hash_key(key)
        return value & (places - 1), value >> 28 & 0xFFFF
