"""Kernel that copies rows between GPU memory and pinned host memory, which a GPU addresses as its own.

The link to the host is the limit, not the multiprocessors: a launch has few programs that stay for all its rows, so
that kernels of the trainer find room beside it. Rows are in the order of their slots: neighbours on the host are
read together, and its address translation is not asked for a new page at every row.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def pinned_rows(
    slots,
    host,
    order,
    rows,
    count,
    INTO: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """rows[i] = host[slots[i]] for i in `order`, the places of ascending slots; with INTO the reverse."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    while first < count:
        place = first + tl.arange(0, BLOCK)
        live = place < count
        i = tl.load(order + place, mask=live, other=0)
        slot = tl.load(slots + i, mask=live, other=0)
        for begin in range(0, DIM, WIDTH):
            column = begin + tl.arange(0, WIDTH)
            tile = live[:, None] & (column < DIM)[None, :]
            at = host + slot[:, None] * DIM + column[None, :]
            beside = rows + i[:, None] * DIM + column[None, :]
            if INTO:
                tl.store(at, tl.load(beside, mask=tile), mask=tile)
            else:
                tl.store(beside, tl.load(at, mask=tile), mask=tile)
        first += tl.num_programs(0).to(tl.int64) * BLOCK
