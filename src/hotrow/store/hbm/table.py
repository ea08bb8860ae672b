"""The hash table: which slot holds which key. It launches the kernels of probe.py and claim.py and knows no values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from hotrow.kernels.launch import launch
from hotrow.store.hbm import claim, probe
from hotrow.store.hbm.rows import ABSENT
from hotrow.store.hbm.spec import HbmSpec

WARPS = 1  # reductions over the keys of a program then need no barrier, and a program waits for its own 32 keys alone
BLOCK = 32 * WARPS  # keys of a program: one for each thread
assert (WARPS, BLOCK) == (1, 32), "loads may be repeated in a second layout: the arguments of probe.py do not hold"
FILL_BLOCK = 512  # of `fill_slots`, whose programs add to the same three numbers
WIDTH_MAX = 64  # columns of a tile of rows
LFU_FIRST = 1  # a new row was seen once
CLAMP_EVERY = 128  # ticks


def tile_width(dim: int) -> int:
    return min(WIDTH_MAX, int(triton.next_power_of_2(dim)))


def blocks(count: int) -> int:
    """Programs of a launch over `count` keys."""
    return int(triton.cdiv(count, BLOCK))


class ClaimBuffers(NamedTuple):
    """What a claim writes: ABSENT, but for slots that it gives and rows that it displaces, in any order."""

    made: Tensor  # int64 [keys]: new slots
    displaced_keys: Tensor
    displaced_slots: Tensor

    @classmethod
    def of(cls, keys: Tensor) -> "ClaimBuffers":
        spaced = -(-len(keys) // 2) * 2  # multiples of 16 bytes: kernels are compiled once for all sizes
        rooms = torch.full((3, spaced), ABSENT, dtype=torch.int64, device=keys.device)
        return cls(*rooms[:, : len(keys)].unbind(0))


class Claimed(NamedTuple):
    """Numbers of rows."""

    displaced: int
    turned_away: int
    made: int


class HashTable:
    """Slots for distinct 64-bit keys. A slot stays that of its key until the key is erased or evicted."""

    def __init__(self, spec: HbmSpec, device: torch.device) -> None:
        lines = spec.buckets * spec.groups
        self.spec, self.device, self.lines = spec, device, lines
        self.meta = torch.zeros(lines, 2, spec.group_slots, dtype=torch.uint8, device=device)
        self.stored = torch.zeros(spec.slots, dtype=torch.int64, device=device)
        self.locks = torch.zeros(lines, dtype=torch.int32, device=device)
        self.calls = 0  # that see rows
        self._zeros: Tensor | None = None
        self._next = 0

    @property
    def digests(self) -> Tensor:
        """uint8 [slots]; 0 and 1 are free slots."""
        return self.meta[:, 0, :].reshape(-1)

    @property
    def ages(self) -> Tensor:
        """uint8 [slots]: the tick in which a row was last seen (LRU), or how often it was seen (LFU)."""
        return self.meta[:, 1, :].reshape(-1)

    @property
    def bytes(self) -> int:
        return self.meta.nbytes + self.stored.nbytes + self.locks.nbytes

    @property
    def _now(self) -> int:
        return (self.calls // self.spec.calls_per_tick) & 255

    @property
    def _first_age(self) -> int:
        return self._now if self.spec.eviction == "lru" else LFU_FIRST

    def begin_call(self) -> None:
        """A call begins that sees rows. Rows that were not seen for long count as equally old."""
        self.calls += 1
        if self.spec.eviction == "lru" and self.calls % (CLAMP_EVERY * self.spec.calls_per_tick) == 0:
            self._run(probe.clamp_ages, self.lines, self.meta, self.lines, self._now)

    def find(
        self,
        keys: Tensor,
        values: Tensor,
        out: Tensor | None,
        *,
        seen: bool,
        size: Tensor | None = None,
        bucket_full: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Slot of each key, ABSENT without a row, and how many are absent (int32 [1]).

        Rows go into `out`, NaN where absent. With `size` (int32 [1]) only so many keys are looked up. With LFU the keys
        of a lookup that sees rows are distinct. `bucket_full` (int8) is set for absent keys whose bucket is full; with
        it they are not counted.
        """
        slots, missed = torch.empty_like(keys), self._zero()
        touch = {"lru": probe.TOUCH_LRU, "lfu": probe.TOUCH_LFU}[self.spec.eviction] if seen else probe.TOUCH_NONE
        self._run(
            probe.find_rows,
            len(keys),
            keys,
            slots,
            values if out is None else out,
            missed if bucket_full is None else None,
            bucket_full,
            self.meta,
            self.stored,
            values,
            size,
            len(keys),
            self.spec.buckets,
            self._now,
            TOUCH=touch.value,
            COPY=out is not None,
            DIM=self.spec.dim,
            WIDTH=tile_width(self.spec.dim),
            GROUPS=self.spec.groups,
        )
        return slots, missed

    def lock(self, slots: Tensor) -> None:
        """Keep rows from being evicted until `unlock`; negative and free slots are left out."""
        self._run(claim.lock_slots, len(slots), slots, self.meta, self.locks, len(slots))

    def unlock(self, slots: Sequence[Tensor]) -> None:
        """Every lock in the groups of these slots ends."""
        if self.lines <= 16 * sum(map(len, slots)):  # to clear all words takes less time than to find some
            self.locks.zero_()
            return
        for each in slots:
            self._run(claim.unlock_slots, len(each), each, self.locks, len(each))

    def claim(
        self, keys: Tensor, slots: Tensor, buffers: ClaimBuffers, bucket_full: Tensor | None, size: Tensor | None
    ) -> Claimed:
        """Put distinct keys whose slot is negative into slots, which are locked: TURNED_AWAY without one.

        With `size` (int32 [1]) only so many keys count. The columns of rows that are displaced hold them still: copy
        those next, or `restore` them.
        """
        counts, count = torch.zeros(3, dtype=torch.int32, device=self.device), len(keys)
        displaces = torch.empty_like(keys, dtype=torch.int8)
        self._run(
            claim.claim_slots,
            count,
            keys,
            size,
            bucket_full,
            slots,
            buffers.made,
            displaces,
            self.meta,
            self.locks,
            count,
            self.spec.buckets,
            self._now,
            LRU=self.spec.eviction == "lru",
            GROUPS=self.spec.groups,
        )
        lists = (displaces, buffers.displaced_keys, buffers.displaced_slots, counts)
        places = self.meta, self.stored, count, self._first_age
        self._run(claim.fill_slots, count, keys, slots, buffers.made, *lists, *places, block=FILL_BLOCK)
        return Claimed(*counts.tolist())

    def undo(self, keys: Tensor, buffers: ClaimBuffers, *, copied: bool) -> None:
        """Undo a claim that a later call could not follow: keys that were put have no row, and nothing is locked.

        Rows that were displaced have their slots again, unless they are `copied` out; they count as new.
        """
        try:
            if not copied:
                self._restore(buffers)  # first: it needs no memory
            made = buffers.made
            put = (made >= 0) & (self.stored[made.clamp(min=0)] == keys)  # else the slot has its old row
            self.erase(made.masked_fill(~put, ABSENT))
        finally:
            self.locks.zero_()

    def _restore(self, buffers: ClaimBuffers) -> None:
        keys, slots = buffers.displaced_keys, buffers.displaced_slots
        self._run(claim.write_keys, len(keys), keys, slots, self.meta, self.stored, len(keys), self._first_age)

    def erase(self, slots: Tensor) -> None:
        """Free distinct slots; negative ones are none."""
        self._run(probe.erase_rows, len(slots), slots, self.meta, len(slots))

    def clear(self) -> None:
        """Free all slots."""
        self.meta.zero_()

    def live_slots(self, first_line: int, last_line: int) -> Tensor:
        """Slots with rows in a range of lines, in order."""
        taken = self.meta[first_line:last_line, 0, :].reshape(-1) > 1
        return taken.nonzero().squeeze(1) + first_line * self.spec.group_slots

    def _run(
        self, kernel: Any, count: int, first: Tensor, *arguments: Any, block: int = BLOCK, **constants: Any
    ) -> None:
        """Launch a kernel over `count` keys, slots or lines."""
        constants |= {"SLOTS": self.spec.group_slots, "BLOCK": block, "num_warps": block // BLOCK}
        launch(kernel, int(triton.cdiv(count, block)), first, *arguments, **constants)

    def _zero(self) -> Tensor:
        """A number of its own, 0. A launch that clears one takes longer than to take the next of many."""
        if self._zeros is None or self._next == len(self._zeros):
            self._zeros, self._next = torch.zeros(4096, dtype=torch.int32, device=self.device), 0
        self._next += 1
        return self._zeros[self._next - 1 : self._next]
