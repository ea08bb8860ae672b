"""Part `kernels`: folding duplicates, pooling, its backward, updates and fp16 rows, beside torch and a plain copy.

Rates are in billions per second. `update_ceiling_share` is the share of a copy's bytes per second at which an
update reads and writes gradients, values and state.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.workload import keys_of, zipf_ranks
from hotrow.kernels.backward import update_from_bags
from hotrow.kernels.codec import decode_rows, encode_rows, reference_decode, reference_encode
from hotrow.kernels.cuda import triton_only
from hotrow.kernels.pool import Mode, bag_of, pool, reference_pool
from hotrow.kernels.scatter import reference_scatter, scatter
from hotrow.kernels.unique import reference_unique, unique
from hotrow.kernels.update import RowFields, StepScalars, UpdateRule, reference_update, update_rows
from hotrow.kernels.update_tile import TableRows

RULE = UpdateRule("adagrad", lr=0.05)
MODES: tuple[Mode, ...] = ("sum", "mean")


class _Rows:
    """Ids, and rows to go with them: row r belongs to rank r."""

    def __init__(self, device: torch.device, plan: GpuPlan) -> None:
        self.ranks = zipf_ranks(device, plan)
        self.keys = keys_of(self.ranks)
        count = min(plan.rows, plan.distinct)
        self.values = torch.zeros(count, plan.dim, device=device)
        self.state = torch.zeros(count, plan.dim, device=device)
        self.slots = self.ranks % count
        random = torch.Generator(device).manual_seed(plan.seed)
        self.gradients = torch.randn(plan.ids, plan.dim, device=device, generator=random)

    def distinct_slots(self, batch: int) -> Tensor:
        distinct: Tensor = torch.unique(self.slots[batch])
        return distinct


def check(device: torch.device, plan: GpuPlan) -> None:
    """Compare every kernel with its reference."""
    rows = _Rows(device, plan)
    keys, slots = rows.keys[0], rows.slots[0]
    rows.values.copy_(torch.randn(rows.values.shape, device=device))
    wanted = reference_unique(keys)
    with triton_only():
        in_triton = unique(keys)
    for found in (unique(keys), in_triton, unique(keys, deterministic=True)):
        size = int(found.size)
        order = found.keys[:size].argsort()
        _equal(found.keys[:size][order], wanted.keys[: int(wanted.size)])
        _equal(found.counts[:size][order], wanted.counts[: int(wanted.size)])
        _equal(found.keys[found.inverse], keys)
        exact = torch.zeros(size, plan.dim, dtype=torch.float64, device=device)
        exact.index_add_(0, found.inverse, rows.gradients.double())
        # Some keys have tens of thousands of gradients. One that is missing makes a difference of about 1.
        torch.testing.assert_close(scatter(found, rows.gradients)[:size].double(), exact, rtol=1e-5, atol=0.01)
    _equal(pool(rows.values, slots), reference_pool(rows.values, slots, None, None, "sum"))
    _check_bags(rows.values, slots, rows.gradients)
    half, scale = encode_rows(rows.gradients)
    _equal(half, reference_encode(rows.gradients)[0])
    _equal(decode_rows(half, scale), reference_decode(half, scale))
    _check_update(rows)
    _check_backward(rows)


def _equal(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def _check_bags(values: Tensor, slots: Tensor, gradients: Tensor) -> None:
    """Bags of 0 to 3 positions, summed and averaged, in float32 and bfloat16, and their backward."""
    positions, found = len(slots), unique(slots)
    lengths = torch.arange(positions, device=slots.device) % 4
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0).clamp(max=positions)])
    bag, share = bag_of(offsets, positions), 1.0 / offsets.diff().clamp(min=1).double()[:, None]
    distinct = torch.full_like(slots, -1)
    distinct[: int(found.size)] = found.keys[: int(found.size)]
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 2**-7)):  # the interpreter cuts off where a GPU rounds
        given = gradients.to(dtype)
        for mode in MODES:
            got = pool(values, distinct, found.inverse, offsets, mode, dtype)
            wanted = reference_pool(values, slots, None, offsets, mode)
            torch.testing.assert_close(got.float(), wanted, rtol=near, atol=near)
            each = (given.double() * share if mode == "mean" else given.double())[bag]
            exact = torch.zeros_like(each).index_add_(0, found.inverse, each)[: int(found.size)]
            got = scatter(found, given, offsets, mode)[: int(found.size)]
            torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=0.01)


def _check_update(rows: _Rows) -> None:
    slots = rows.distinct_slots(0)
    gradients = rows.gradients[: len(slots)]
    before = rows.values[slots]
    update_rows(RULE, rows.values, rows.state, slots, gradients)
    values, state = before, torch.zeros_like(before)
    scalars, places = (
        StepScalars.of(RULE, step=0, samples=0, lr_scale=1.0),
        torch.arange(len(slots), device=slots.device),
    )
    reference_update(RULE, values, state, places, gradients, RowFields(), scalars, slots.new_zeros(1))
    torch.testing.assert_close(rows.values[slots], values)
    torch.testing.assert_close(rows.state[slots], state)


def _check_backward(rows: _Rows) -> None:
    """The update in one pass with the sums, and that of sums in float64."""
    found = unique(rows.slots[0])
    size = int(found.size)
    slots = torch.full_like(rows.slots[0], -1)
    slots[:size] = found.keys[:size]
    table = (rows.values.clone(), torch.ones_like(rows.state), RowFields(), slots.new_zeros(1))
    values = table[0][slots[:size]].double()
    sums = torch.zeros_like(values).index_add_(0, found.inverse, rows.gradients.double())
    update_from_bags(TableRows("check", RULE, *table), slots, found, rows.gradients)
    state, places = torch.ones_like(values), torch.arange(size, device=slots.device)
    scalars = StepScalars.of(RULE, step=0, samples=0, lr_scale=1.0)
    reference_update(RULE, values, state, places, sums, RowFields(), scalars, slots.new_zeros(1))
    torch.testing.assert_close(table[0][slots[:size]].double(), values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(table[1][slots[:size]].double(), state, rtol=1e-4, atol=1e-3)


def torch_adagrad(values: Tensor, state: Tensor, slots: Tensor, gradients: Tensor) -> None:
    """What a person would write in torch for distinct rows: no checks, no counters."""
    squares = state[slots].addcmul_(gradients, gradients)
    state[slots] = squares
    values.index_add_(0, slots, gradients / squares.sqrt_().add_(RULE.eps), alpha=-RULE.lr)


def measure(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    rows = _Rows(clock.device, plan)
    keys, batches = list(rows.keys), plan.batches
    folded = [unique(each) for each in keys]
    distinct = [rows.distinct_slots(batch) for batch in range(batches)]
    copy = clock.copy_bytes_per_s(plan.copy_bytes)
    gradients = [rows.gradients[: len(each)] for each in distinct]

    def update_s(update: Callable[..., object], *rule: UpdateRule) -> float:
        return clock.seconds(
            lambda turn: update(*rule, rows.values, rows.state, distinct[turn % batches], gradients[turn % batches])
        )

    own_s = update_s(update_rows, RULE)
    updated = sum(map(len, distinct)) / batches
    bytes_per_row = 4 * plan.dim * 5 + 8  # gradient in, value and state in and out, slot in
    yield "copy_gb_per_s", copy / 1e9
    yield "update_brows", updated / own_s / 1e9
    yield "update_ceiling_share", updated * bytes_per_row / own_s / copy
    yield "update_torch_brows", updated / update_s(torch_adagrad) / 1e9
    half, scale = encode_rows(rows.gradients)
    table = TableRows("measure", RULE, rows.values, rows.state, RowFields(), distinct[0].new_zeros(1))
    slots = [torch.nn.functional.pad(each, (0, plan.ids - len(each)), value=-1) for each in distinct]
    calls = {
        "unique_bkeys": lambda turn: unique(keys[turn % batches]),
        "unique_triton_bkeys": lambda turn: _in_triton(lambda: unique(keys[turn % batches])),
        "unique_sorted_bkeys": lambda turn: unique(keys[turn % batches], deterministic=True),
        "unique_torch_bkeys": lambda turn: torch.unique(keys[turn % batches], return_inverse=True, return_counts=True),
        "pool_brows": lambda turn: pool(rows.values, rows.slots[turn % batches]),
        "pool_bf16_brows": lambda turn: pool(rows.values, rows.slots[turn % batches], dtype=torch.bfloat16),
        "pool_torch_brows": lambda turn: rows.values.index_select(0, rows.slots[turn % batches]),
        "scatter_bids": lambda turn: scatter(folded[turn % batches], rows.gradients),
        "backward_bids": lambda turn: update_from_bags(
            table, slots[turn % batches], folded[turn % batches], rows.gradients
        ),
        "scatter_torch_bids": lambda turn: reference_scatter(folded[turn % batches], rows.gradients, None, None),
        "encode_brows": lambda turn: encode_rows(rows.gradients),
        "decode_brows": lambda turn: decode_rows(half, scale),
    }
    for name, call in calls.items():
        yield name, plan.ids / clock.seconds(call) / 1e9


def _in_triton(call: Callable[[], object]) -> None:
    with triton_only():
        call()
