"""Kernels that find rows: the search of a bucket, lookups, removals, and ages that are made to fit into a byte.

A bucket is GROUPS groups of SLOTS slots. A group has one line in `meta`: the digests of its slots, then their ages, a
byte each (64 bytes with 32 slots), so a lookup reads one line, the keys whose digest agrees (one, as a rule) and the
row. The keys are apart from the values. A search begins at the home group and goes round the bucket.

Invariant: no group between the home of a key and the group of its row has an EMPTY slot. So a search ends at the first
group that has one. Inserts keep it by taking the first free slot of the search order, evictions because they happen in
full buckets, removals by leaving REMOVED where the group was full.

Races. All kernels of a table run in one stream, so a launch sees everything that the launches before it wrote.
- `find_rows` changes ages only. With LRU all lanes that find a slot write the same byte. With LFU the byte is read,
  raised and written, so the keys of such a launch are distinct. Neighbouring ages are other bytes, which stay.
- No launch that compares keys inserts, evicts or removes.
- `erase_rows` reads digests that other lanes free. EMPTY is only written to a group that had an EMPTY slot when the
  launch began, so all lanes of a group decide alike, whatever they see of each other.
- A program is one warp with a key for each thread. With more warps Triton may repeat a load in a second layout, and a
  late warp would load what another has already stored; the lanes of one warp load before any of them stores.
"""

import triton
import triton.language as tl

from hotrow.store.hbm.hashing import EMPTY, REMOVED, VARYING, bucket_of, digest_of, hash_key, home_of

TOUCH_NONE = tl.constexpr(0)
TOUCH_LRU = tl.constexpr(1)
TOUCH_LFU = tl.constexpr(2)
AGE_MAX = tl.constexpr(255)
AGE_KEPT_MAX = tl.constexpr(127)  # ticks; older rows count as this old


@triton.jit
def locate(meta, stored, key, live, buckets, SLOTS: tl.constexpr, GROUPS: tl.constexpr):
    """The slot of each key, -1 where it is absent; and whether the search of an absent key passed a free slot.

    Of the slots of a group whose digest agrees, the first and the last are compared, then those between them: a load of
    one key for each of them, where loads for all slots of the tile would take all registers.
    """
    h = hash_key(key)
    first_group = bucket_of(h, buckets) * GROUPS
    home = home_of(h, GROUPS)
    digest = digest_of(h)
    lane = tl.arange(0, SLOTS)
    slot = tl.full(key.shape, -1, tl.int64)
    after = tl.full(key.shape, -1, tl.int32)  # slots up to this one were compared,
    before = tl.full(key.shape, SLOTS, tl.int32)  # and those from this one on
    turn = tl.zeros_like(after)
    lowest = tl.full(key.shape, 255, tl.int32)  # digest
    searching = live
    while tl.sum(searching.to(tl.int32), 0) > 0:
        group = first_group + ((home + turn) & (GROUPS - 1))
        line = tl.load(meta + group[:, None] * (2 * SLOTS) + lane[None, :], mask=searching[:, None], other=EMPTY)
        line = line.to(tl.int32)
        same = (line == digest[:, None]) & (lane[None, :] > after[:, None]) & (lane[None, :] < before[:, None])
        low = tl.min(tl.where(same, lane[None, :], SLOTS), 1)
        high = tl.max(tl.where(same, lane[None, :], -1), 1)
        several = low < high
        at_low = tl.load(stored + group * SLOTS + low, mask=searching & (low < SLOTS), other=0)
        at_high = tl.load(stored + group * SLOTS + high, mask=searching & several, other=0)
        slot = tl.where((low < SLOTS) & (at_low == key) & searching, group * SLOTS + low, slot)
        slot = tl.where(several & (at_high == key) & searching, group * SLOTS + high, slot)
        after = tl.where(several, low, -1)
        before = tl.where(several, high, SLOTS)
        turn = tl.where(several, turn, turn + 1)
        lowest = tl.where(searching, tl.minimum(lowest, tl.min(line, 1)), lowest)
        full = tl.min(line, 1) > EMPTY
        searching = searching & (slot < 0) & (several | (full & (turn < GROUPS)))
    return slot, lowest <= REMOVED


@triton.jit
def age_at(meta, slot, SLOTS: tl.constexpr):
    """Addresses of the ages of slots."""
    return meta + (slot // SLOTS) * (2 * SLOTS) + SLOTS + slot % SLOTS


@triton.jit(do_not_specialize=VARYING)
def find_rows(
    keys,
    slots,
    out,
    missed,
    bucket_full,
    meta,
    stored,
    values,
    size,
    count,
    buckets,
    now,
    TOUCH: tl.constexpr,
    COPY: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Slots of keys, their rows (NaN where absent) and the number of absent keys. TOUCH renews their ages.

    The number may be left out: where most keys are absent, adding it up takes longer than the search.

    Where `size` is given, only so many of the `count` keys are looked up; the slots of the others are ABSENT. Where
    `bucket_full` is given, it is set to 1 for absent keys in whose bucket all slots are taken, else to 0.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    if size is not None:
        live = live & (i < tl.load(size))
    key = tl.load(keys + i, mask=live, other=0)
    slot, has_room = locate(meta, stored, key, live, buckets, SLOTS, GROUPS)
    tl.store(slots + i, slot, mask=i < count)
    if bucket_full is not None:
        tl.store(bucket_full + i, (live & (slot < 0) & (has_room == 0)).to(tl.int8), mask=i < count)
    hit = slot >= 0
    if missed is not None:
        absent = tl.sum((live & (slot < 0)).to(tl.int32), 0)
        if absent > 0:
            tl.atomic_add(missed, absent, sem="relaxed")
    if TOUCH != TOUCH_NONE:
        at = age_at(meta, slot, SLOTS)
        age = tl.load(at, mask=hit, other=0).to(tl.int32)
        new = tl.zeros_like(age) + now if TOUCH == TOUCH_LRU else tl.minimum(age + 1, AGE_MAX)
        tl.store(at, new.to(tl.uint8), mask=hit & (new != age))
    if COPY:
        for first in range(0, DIM, WIDTH):
            column = first + tl.arange(0, WIDTH)
            inside = column[None, :] < DIM
            row = tl.load(
                values + slot[:, None] * DIM + column[None, :], mask=hit[:, None] & inside, other=float("nan")
            )
            tl.store(out + i[:, None] * DIM + column[None, :], row, mask=live[:, None] & inside)


@triton.jit(do_not_specialize=VARYING)
def erase_rows(
    slots,
    meta,
    count,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Free slots, each given once, -1 to skip: EMPTY where the group has an EMPTY slot, else REMOVED."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, mask=i < count, other=-1)
    hit = slot >= 0
    line_at = meta + (slot // SLOTS) * (2 * SLOTS)
    line = tl.load(line_at[:, None] + tl.arange(0, SLOTS)[None, :], mask=hit[:, None], other=EMPTY).to(tl.int32)
    freed = tl.where(tl.min(line, 1) == EMPTY, EMPTY, REMOVED)
    tl.store(line_at + slot % SLOTS, freed.to(tl.uint8), mask=hit)


@triton.jit(do_not_specialize=VARYING)
def clamp_ages(meta, lines, now, BLOCK: tl.constexpr, SLOTS: tl.constexpr):
    """Make ages of more than AGE_KEPT_MAX ticks AGE_KEPT_MAX, before one byte could not tell them from new ones."""
    line = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = meta + line[:, None] * (2 * SLOTS) + SLOTS + tl.arange(0, SLOTS)[None, :]
    inside = (line < lines)[:, None]
    age = tl.load(at, mask=inside, other=0).to(tl.int32)
    old = ((now - age) & 255) > AGE_KEPT_MAX
    oldest = tl.zeros_like(age) + ((now - AGE_KEPT_MAX) & 255)
    tl.store(at, oldest.to(tl.uint8), mask=inside & old)
