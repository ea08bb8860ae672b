"""Kernels that give new keys a slot: a free one, or that of the row with the lowest score of the bucket.

Locks. `locks` has a bit for each slot, a 32-bit word for each group. A lane that sets a bit with `atomic_or` and learns
that it was clear owns the slot until the end of the call; rows that the call uses are locked before any is claimed.
So no row of a batch in use is evicted, no slot is given twice, and what an owner writes nobody else writes.
Locks are cleared in a launch of their own. Triton's `atomic_cas` has no mask and is not needed: `atomic_or` has one.

Races, in one launch of `claim_slots`, whose keys are distinct and absent:
- Two lanes, of one program or of two, choose one slot: `atomic_or` tells exactly one of them that the bit was clear.
  The other chooses again from words that it reads anew (`volatile`: the first-level cache of a multiprocessor may hold
  the word as it was, and the same slot would be chosen for ever).
  The atomics are relaxed: the bit alone decides, and nothing else is written.
- It writes nothing but locks: digests and ages stay, so rows go in the order of their scores.
- A lane that sees a group without a free slot goes on to the next group. Slots become taken and never free in this
  launch, so the group is still full when the row is written: the invariant of probe.py holds. A locked slot that is
  free counts as taken, because a lane of this launch has claimed it: `lock_slots` locks none that is free.
  Only when no group has a free slot does a lane look for a victim.
- Each failed attempt means that another lane took a slot of that bucket: a lane makes at most GROUPS * SLOTS attempts.

`fill_slots` writes keys, digests and ages, each in a slot that its lane owns. In the launch that claims, that took
1,270 us for 2^20 keys of a full table on an H200; two launches take half of it. Its programs have many keys, because
all of them add to the same numbers. Values, state and counters of a victim stay as they are until later launches, which
copy them out first.
"""

import triton
import triton.language as tl

from hotrow.store.hbm.hashing import REMOVED, VARYING, bucket_of, digest_of, hash_key, home_of
from hotrow.store.hbm.probe import age_at
from hotrow.store.hbm.rows import TURNED_AWAY

NO_VICTIM = tl.constexpr(2**30)
NO_ROOM = tl.constexpr(TURNED_AWAY)


@triton.jit(do_not_specialize=VARYING)
def lock_slots(slots, meta, locks, count, BLOCK: tl.constexpr, SLOTS: tl.constexpr):
    """Lock slots that hold a row; they may occur more than once, -1 to skip."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, mask=i < count, other=-1)
    digest = tl.load(age_at(meta, slot, SLOTS) - SLOTS, mask=slot >= 0, other=0).to(tl.int32)
    bit = (tl.full(slot.shape, 1, tl.int32)) << (slot % SLOTS).to(tl.int32)
    tl.atomic_or(locks + slot // SLOTS, bit, mask=digest > REMOVED, sem="relaxed")


@triton.jit(do_not_specialize=VARYING)
def unlock_slots(slots, locks, count, BLOCK: tl.constexpr, SLOTS: tl.constexpr):
    """Unlock the groups of slots: every lock is of this call."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, mask=i < count, other=-1)
    tl.store(locks + slot // SLOTS, tl.zeros(slot.shape, tl.int32), mask=slot >= 0)


@triton.jit
def mark_slots(meta, stored, slot, key, digest, age, won, SLOTS: tl.constexpr):
    """Put keys into slots that the lanes own."""
    tl.store(stored + slot, key, mask=won)
    at = age_at(meta, slot, SLOTS)
    tl.store(at - SLOTS, digest.to(tl.uint8), mask=won)
    tl.store(at, (tl.zeros_like(digest) + age).to(tl.uint8), mask=won)


@triton.jit(do_not_specialize=VARYING)
def write_keys(keys, slots, meta, stored, count, age, BLOCK: tl.constexpr, SLOTS: tl.constexpr):
    """Put keys into these slots, -1 to skip: rows that were displaced, and are where they were."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    key = tl.load(keys + i, mask=live, other=0)
    slot = tl.load(slots + i, mask=live, other=-1)
    mark_slots(meta, stored, slot, key, digest_of(hash_key(key)), age, slot >= 0, SLOTS)


@triton.jit
def free_slot(meta, locks, h, first_group, searching, SLOTS: tl.constexpr, GROUPS: tl.constexpr):
    """Claim the first free slot of the search order of each key; -1 where the bucket is full."""
    home = home_of(h, GROUPS)
    lane = tl.arange(0, SLOTS)
    start = (h >> 3).to(tl.int32) & (SLOTS - 1)  # lanes of one group begin at different slots
    slot = tl.full(h.shape, -1, tl.int64)
    turn = tl.zeros_like(start)
    while tl.sum(searching.to(tl.int32), 0) > 0:
        group = first_group + ((home + turn) & (GROUPS - 1))
        line = tl.load(
            meta + group[:, None] * (2 * SLOTS) + lane[None, :], mask=searching[:, None], other=255, volatile=True
        )
        held = tl.load(locks + group, mask=searching, other=-1, volatile=True)
        free = (line.to(tl.int32) <= REMOVED) & (((held[:, None] >> lane[None, :]) & 1) == 0)
        rank = tl.min(tl.where(free, (lane[None, :] - start[:, None]) & (SLOTS - 1), SLOTS), 1)
        chosen = (rank + start) & (SLOTS - 1)
        wants = searching & (rank < SLOTS)
        bit = tl.full(chosen.shape, 1, tl.int32) << chosen
        before = tl.atomic_or(locks + group, bit, mask=wants, sem="relaxed")
        won = wants & ((before & bit) == 0)
        slot = tl.where(won, group * SLOTS + chosen, slot)
        turn = tl.where(searching & (rank == SLOTS), turn + 1, turn)
        searching = searching & (slot < 0) & (turn < GROUPS)
    return slot


@triton.jit
def lowest_score(
    meta, locks, first_group, start, searching, now, LRU: tl.constexpr, SLOTS: tl.constexpr, GROUPS: tl.constexpr
):
    """Score of the row to go and its distance from `start`, in one number; NO_VICTIM where all rows are in use."""
    lane = tl.arange(0, SLOTS)
    best = tl.full(start.shape, NO_VICTIM, tl.int32)
    for turn in range(GROUPS):
        group = first_group + turn
        at = meta + group[:, None] * (2 * SLOTS) + SLOTS + lane[None, :]
        age = tl.load(at, mask=searching[:, None], other=0, volatile=True).to(tl.int32)
        held = tl.load(locks + group, mask=searching, other=-1, volatile=True)
        score = 255 - ((now - age) & 255) if LRU else age
        distance = (turn * SLOTS + lane[None, :] - start[:, None]) & (GROUPS * SLOTS - 1)
        rank = score * (GROUPS * SLOTS) + distance
        best = tl.minimum(best, tl.min(tl.where(((held[:, None] >> lane[None, :]) & 1) == 0, rank, NO_VICTIM), 1))
    return best


@triton.jit
def victim_slot(
    meta, locks, h, first_group, searching, now, LRU: tl.constexpr, SLOTS: tl.constexpr, GROUPS: tl.constexpr
):
    """Claim the slot of the row with the lowest score for each key; -1 where all rows of the bucket are in use."""
    start = (h >> 3).to(tl.int32) & (GROUPS * SLOTS - 1)  # among equal scores lanes begin at different slots
    slot = tl.full(h.shape, -1, tl.int64)
    while tl.sum(searching.to(tl.int32), 0) > 0:
        best = lowest_score(meta, locks, first_group, start, searching, now, LRU, SLOTS, GROUPS)
        wants = searching & (best < NO_VICTIM)
        chosen = ((best & (GROUPS * SLOTS - 1)) + start) & (GROUPS * SLOTS - 1)
        bit = tl.full(chosen.shape, 1, tl.int32) << (chosen % SLOTS)
        before = tl.atomic_or(locks + first_group + chosen // SLOTS, bit, mask=wants, sem="relaxed")
        won = wants & ((before & bit) == 0)
        slot = tl.where(won, first_group * SLOTS + chosen, slot)
        searching = wants & (slot < 0)
    return slot


@triton.jit(do_not_specialize=VARYING)
def claim_slots(
    keys,
    size,
    bucket_full,
    slots,
    made,
    displaces,
    meta,
    locks,
    count,
    buckets,
    now,
    LRU: tl.constexpr,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Claim slots for keys whose slot is below 0, which get NO_ROOM where all rows of their bucket are in use.

    `slots` has those of all keys then, `made` the new ones, and `displaces` is 1 where another row is in it. The keys
    are distinct; where `size` is given, only so many of them count. `bucket_full`, of the lookup that missed them, says
    which buckets have no free slot.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    if size is not None:
        live = live & (i < tl.load(size))
    live = live & (tl.load(slots + i, mask=live, other=0) < 0)
    key = tl.load(keys + i, mask=live, other=0)
    h = hash_key(key)
    first_group = bucket_of(h, buckets) * GROUPS
    hopeful = live
    if bucket_full is not None:
        hopeful = live & (tl.load(bucket_full + i, mask=live, other=0) == 0)
    free = free_slot(meta, locks, h, first_group, hopeful, SLOTS, GROUPS)
    victim = victim_slot(meta, locks, h, first_group, live & (free < 0), now, LRU, SLOTS, GROUPS)
    slot = tl.where(victim >= 0, victim, free)
    tl.store(slots + i, tl.where(slot >= 0, slot, NO_ROOM), mask=live)
    tl.store(made + i, slot, mask=live)
    tl.store(displaces + i, (victim >= 0).to(tl.int8), mask=i < count)


@triton.jit(do_not_specialize=VARYING)
def fill_slots(
    keys,
    slots,
    made,
    displaces,
    displaced_keys,
    displaced_slots,
    counts,
    meta,
    stored,
    count,
    age,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Put keys into the slots that `claim_slots` gave them.

    Keys and slots of the rows that were in them are listed in any order; counts has their number, then that of the
    keys that got no slot, and of those that got one.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    slot = tl.load(made + i, mask=live, other=-1)
    key = tl.load(keys + i, mask=live, other=0)
    there = tl.load(displaces + i, mask=live, other=0) != 0
    old = tl.load(stored + slot, mask=there, other=0)
    tl.debug_barrier()  # should a load be repeated in another warp: before the slot has its new key
    mark_slots(meta, stored, slot, key, digest_of(hash_key(key)), age, slot >= 0, SLOTS)
    displaced = tl.sum(there.to(tl.int32), 0)
    if displaced > 0:
        place = tl.atomic_add(counts, displaced, sem="relaxed") + tl.cumsum(there.to(tl.int32), 0) - 1
        tl.store(displaced_keys + place, old, mask=there)
        tl.store(displaced_slots + place, slot, mask=there)
    without = tl.sum((tl.load(slots + i, mask=live, other=0) == NO_ROOM).to(tl.int32), 0)
    if without > 0:
        tl.atomic_add(counts + 1, without, sem="relaxed")
    placed = tl.sum((slot >= 0).to(tl.int32), 0)
    if placed > 0:
        tl.atomic_add(counts + 2, placed, sem="relaxed")
