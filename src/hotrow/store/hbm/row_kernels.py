"""Kernels on rows at slots: copies in and out, and the first values of new rows.

First values are those of native/store/isa/rows.cpp, operation by operation, so they have the same bits: 24 random bits
times a power of two times the bound (uniform), the constant, or Box and Muller in double precision with the same series
for logarithm and cosine (normal), for which products and sums must not be fused (`enable_fp_fusion=False`).
Slots are distinct in each launch, so no element is written twice; offsets are int64.
"""

import triton
import triton.language as tl

from hotrow.store.hbm.hashing import VARYING, hash_key

UNIFORM = tl.constexpr(0)
NORMAL = tl.constexpr(1)
CONSTANT = tl.constexpr(2)
GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
TWO_PI = tl.constexpr(6.283185307179586)
LN_2 = tl.constexpr(0.6931471805599453)
ROOT_2 = tl.constexpr(1.4142135623730951)


@triton.jit(do_not_specialize=VARYING)
def copy_values(
    table,
    slots,
    rows,
    fill,
    count,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """rows[i] = table[slots[i]], or `fill` without a slot."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    slot = tl.load(slots + i, mask=live, other=-1)
    for first in range(0, DIM, WIDTH):
        column = first + tl.arange(0, WIDTH)
        mask = (slot >= 0)[:, None] & (column[None, :] < DIM)
        inside = live[:, None] & (column[None, :] < DIM)
        row = tl.load(table + slot[:, None] * DIM + column[None, :], mask=mask, other=fill)
        tl.store(rows + i[:, None] * DIM + column[None, :], row, mask=inside)


@triton.jit
def move_floats(table, slot, rows, i, INTO: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """rows[i] = table[slot], or with INTO the reverse; negative slots are skipped."""
    for first in range(0, DIM, WIDTH):
        column = first + tl.arange(0, WIDTH)
        mask = (slot >= 0)[:, None] & (column[None, :] < DIM)
        at = table + slot[:, None] * DIM + column[None, :]
        beside = rows + i[:, None] * DIM + column[None, :]
        if INTO:
            tl.store(at, tl.load(beside, mask=mask), mask=mask)
        else:
            tl.store(beside, tl.load(at, mask=mask), mask=mask)


@triton.jit
def counter_place(each: tl.constexpr, count, i):
    """Of counters that are one after the other, `count` of each."""
    return each * count.to(tl.int64) + i


@triton.jit
def first_counter(zero, each: tl.constexpr, period, VERSION_AT: tl.constexpr, PERIOD_AT: tl.constexpr):
    """Of new rows."""
    return zero + 1 if each == VERSION_AT else (zero + period if each == PERIOD_AT else zero)


@triton.jit(do_not_specialize=[*VARYING, "period"])
def move_rows(
    slots,
    fresh,
    values,
    state,
    counters,
    row_values,
    row_state,
    row_counters,
    period,
    count,
    INTO: tl.constexpr,
    GIVEN: tl.constexpr,
    VERSION_AT: tl.constexpr,
    PERIOD_AT: tl.constexpr,
    COUNTERS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    STATE_DIM: tl.constexpr,
    STATE_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Whole rows out of the table at these slots, or with INTO into them; negative slots are skipped.

    Of the counters, those whose bit is set in GIVEN: in the table side by side, in the rows one after the other. The
    others start as in new rows, where `fresh` has a slot.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, mask=i < count, other=-1)
    move_floats(values, slot, row_values, i, INTO, DIM, WIDTH)
    if state is not None:
        move_floats(state, slot, row_state, i, INTO, STATE_DIM, STATE_WIDTH)
    there = slot >= 0
    for each in tl.static_range(COUNTERS):
        at = counters + slot * COUNTERS + each
        if (GIVEN >> each) & 1:
            beside = row_counters + counter_place(each, count, i)
            if INTO:
                tl.store(at, tl.load(beside, mask=there), mask=there)
            else:
                tl.store(beside, tl.load(at, mask=there), mask=there)
        elif fresh is not None:
            new = there & (tl.load(fresh + i, mask=there, other=-1) >= 0)
            first = first_counter(tl.zeros([BLOCK], tl.int32), each, period, VERSION_AT, PERIOD_AT)
            tl.store(at, first, mask=new)


@triton.jit(do_not_specialize=[*VARYING, "period"])
def fresh_rows(
    slots,
    state,
    counters,
    initial,
    period,
    count,
    VERSION_AT: tl.constexpr,
    PERIOD_AT: tl.constexpr,
    COUNTERS: tl.constexpr,
    STATE_DIM: tl.constexpr,
    STATE_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """First state and counters of new rows at these slots; negative ones are skipped."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + i, mask=i < count, other=-1)
    there = slot >= 0
    if state is not None:
        for first in range(0, STATE_DIM, STATE_WIDTH):
            column = first + tl.arange(0, STATE_WIDTH)
            mask = there[:, None] & (column[None, :] < STATE_DIM)
            value = tl.zeros([BLOCK, STATE_WIDTH], tl.float32) + initial
            tl.store(state + slot[:, None] * STATE_DIM + column[None, :], value, mask=mask)
    for each in tl.static_range(COUNTERS):
        first = first_counter(tl.zeros([BLOCK], tl.int32), each, period, VERSION_AT, PERIOD_AT)
        tl.store(counters + slot * COUNTERS + each, first, mask=there)


@triton.jit
def logarithm(x):
    """ln of normal float64 x > 0 by + - * / alone."""
    bits = x.to(tl.int64, bitcast=True)
    exponent = (bits >> 52) - 1023
    mantissa = ((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True)
    large = mantissa > ROOT_2
    mantissa = tl.where(large, mantissa * 0.5, mantissa)
    exponent = tl.where(large, exponent + 1, exponent)
    s = (mantissa - 1) / (mantissa + 1)
    square = s * s
    series = tl.zeros_like(s)
    for step in tl.static_range(12):
        series = series * square + 1.0 / (23 - 2 * step)
    return 2 * s * series + exponent.to(tl.float64) * LN_2


@triton.jit
def cosine_of_turn(turn):
    """cos(2 pi turn) for float64 turn in [0, 1)."""
    fold = tl.where(turn > 0.5, 1 - turn, turn)
    negative = fold > 0.25
    fold = tl.where(negative, 0.5 - fold, fold)
    sine = fold > 0.125
    angle = TWO_PI * tl.where(sine, 0.25 - fold, fold)
    square = angle * angle
    term = tl.where(sine, angle, 1.0)
    total = term
    for step in tl.static_range(10):
        n = tl.where(sine, 2.0 + 2 * step, 1.0 + 2 * step).to(tl.float64)
        following = term * (-square / (n * (n + 1)))
        term = tl.where(sine & (step == 9), term, following)  # the sine's series has one term less
        total = tl.where(sine & (step == 9), total, total + term)
    return tl.where(negative, -total, total)


@triton.jit
def random_bits(stream, column):
    """One uint64 for each element."""
    return hash_key((stream + (column.to(tl.uint64) + 1) * GOLDEN).to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=VARYING)
def first_values(
    keys,
    slots,
    values,
    stream,
    amount,
    count,
    KIND: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the first values of keys to values[slots]; -1 to skip."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < count
    key = tl.load(keys + i, mask=live, other=0)
    slot = tl.load(slots + i, mask=live, other=-1)
    seeded = (key.to(tl.uint64, bitcast=True) + GOLDEN).to(tl.int64, bitcast=True)
    own = hash_key(hash_key(seeded).to(tl.int64, bitcast=True) ^ tl.load(stream))
    for first in range(0, DIM, WIDTH):
        column = first + tl.arange(0, WIDTH)
        bits = random_bits(own[:, None], column[None, :])
        if KIND == UNIFORM:
            value = ((bits >> 40).to(tl.int32) - (1 << 23)).to(tl.float32) * (1.0 / (1 << 23)) * amount
        elif KIND == NORMAL:
            more = hash_key((bits + GOLDEN).to(tl.int64, bitcast=True))
            radius = ((bits >> 11) + 1).to(tl.float64) * (1.0 / (1 << 53))
            turn = (more >> 11).to(tl.float64) * (1.0 / (1 << 53))
            value = (tl.sqrt(-2 * logarithm(radius)) * cosine_of_turn(turn)).to(tl.float32) * amount
        else:
            value = tl.zeros([BLOCK, WIDTH], tl.float32) + amount
        mask = (slot >= 0)[:, None] & (column[None, :] < DIM)
        tl.store(values + slot[:, None] * DIM + column[None, :], value, mask=mask)
