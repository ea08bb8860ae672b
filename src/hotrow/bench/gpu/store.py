"""Part `store`: the table in GPU memory, and a whole step of embeddings (forward, backward, Adagrad) beside torch.

Rates are in billions of keys or ids per second, at the plan's dim; lookups ask for rows that exist, in random
order. `find` is measured at loads of a half and of 0.95, `put_and_evict` at a load of 1: every row displaces another,
and the caller knows that keys are distinct. `vs_torch` is against the faster of two ways in torch.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import torch
from torch import Tensor

from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.workload import keys_of, zipf_ranks
from hotrow.kernels.cuda import triton_only
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmSpec, HbmTier

LR, EPS = 0.05, 1e-10
ADAGRAD = UpdateRule("adagrad", lr=LR, eps=EPS)
SGD = UpdateRule("sgd", lr=LR)
FULL = 0.999  # the last free slots of a table are in few buckets


def _tier(device: torch.device, rows: int, plan: GpuPlan, rule: UpdateRule = ADAGRAD) -> HbmTier:
    return HbmTier(HbmSpec(dim=plan.dim, capacity=rows, rule=rule), device)


def _fill(tier: HbmTier, load: float, plan: GpuPlan, first: int = 0) -> int:
    """Make rows until the table has this load; returns the number of the next new key."""
    while tier.stats().load < load:
        missing = int(load * tier.spec.slots) - len(tier)
        ranks = torch.arange(first, first + max(1, min(missing, plan.ids)), device=tier.device)
        tier.find_or_init(keys_of(ranks))
        first += len(ranks)
    return first


def check(device: torch.device, plan: GpuPlan) -> None:
    """A batch twice, a step beside torch, and rows that displace each other."""
    small = replace(plan, rows=max(128, min(plan.rows, 4 * plan.ids)))
    tier = _tier(
        device, small.rows, small, SGD
    )  # Adagrad's first step has the sign of a sum alone, SGD's has all of it
    keys = keys_of(zipf_ranks(device, small)[0])
    first, again = (torch.empty(len(keys), small.dim, device=device) for _ in range(2))
    plan_made = tier.find_or_init(keys, first)
    tier.find(keys, again)
    torch.testing.assert_close(again[plan_made.present], first[plan_made.present], rtol=0, atol=0)
    _check_step(tier, keys, small)
    _check_eviction(tier, small)
    faults = tier.verify()
    assert faults == [], faults


def _check_step(tier: HbmTier, keys: Tensor, plan: GpuPlan) -> None:
    before = torch.empty(len(keys), plan.dim, device=tier.device)
    batch = tier.find_or_init(tier.batch(keys), before)
    there = batch.present
    torch.testing.assert_close(tier.pool(batch)[there], before[there], rtol=0, atol=0)
    gradients = _gradients(tier.device, plan)
    tier.apply(batch, gradients)
    after = torch.empty_like(before)
    tier.find(keys, after)
    _, which = torch.unique(keys, return_inverse=True)
    sums = torch.zeros_like(before, dtype=torch.float64).index_add_(0, which, gradients.double())[which]
    # Some keys have tens of thousands of gradients. One that is missing makes a difference of about LR.
    torch.testing.assert_close(after[there].double(), (before - LR * sums)[there], rtol=1e-5, atol=0.01 * LR)


def _check_eviction(tier: HbmTier, plan: GpuPlan) -> None:
    """What is put is there afterwards or was displaced, with its row."""
    ranks = torch.arange(plan.distinct, plan.distinct + plan.ids, device=tier.device)
    compared = 0
    for turn in range(3 + 2 * tier.spec.slots // plan.ids):
        keys = keys_of(ranks + turn * plan.ids)
        rows = len(tier)
        put = tier.put_and_evict(keys, _rows_of(keys, plan.dim))
        evicted = 0 if put.evicted is None else len(put.evicted)
        assert len(tier) == rows + plan.ids - put.turned_away - evicted
        if put.evicted is not None:
            earlier = torch.arange(plan.distinct, plan.distinct + turn * plan.ids, device=tier.device)
            known = torch.isin(put.evicted.keys, keys_of(earlier))
            wanted = _rows_of(put.evicted.keys, plan.dim)
            torch.testing.assert_close(put.evicted.values[known], wanted[known], rtol=0, atol=0)
            compared += int(known.sum())
    assert compared > 0, "no row that was put was displaced: nothing was compared"


def _rows_of(keys: Tensor, dim: int) -> Tensor:
    """Values that tell whose row they are."""
    return (keys % 65_521).float()[:, None].expand(-1, dim).contiguous()


def _gradients(device: torch.device, plan: GpuPlan) -> Tensor:
    random = torch.Generator(device).manual_seed(plan.seed)
    return torch.randn(plan.ids, plan.dim, device=device, generator=random)


def measure(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    yield from _measure_keys(clock, plan)
    for rule in (SGD, ADAGRAD):  # values alone, as tables of other systems have, and with the state of an optimizer
        yield f"put_and_evict_d64{'' if rule is SGD else '_adagrad'}_bkeys", _measure_put(clock, plan, rule)
    own = plan.ids / clock.seconds(_own_step(clock.device, plan)) / 1e9
    yield "step_d64_bids", own
    with triton_only():
        yield "step_d64_triton_bids", plan.ids / clock.seconds(_own_step(clock.device, plan)) / 1e9
    in_torch = []
    for step, name in ((_torch_step, ""), (_sparse_torch_step, "_sparse")):
        in_torch.append(plan.ids / clock.seconds(step(clock.device, plan)) / 1e9)
        yield f"step_torch{name}_d64_bids", in_torch[-1]
    yield "step_d64_vs_torch", own / max(in_torch)


def _measure_keys(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    tier = _tier(clock.device, plan.rows, plan)
    out = torch.empty(plan.ids, plan.dim, device=clock.device)

    def batches() -> list[Tensor]:
        keys = tier.keys()
        picks = [torch.randint(len(keys), (plan.ids,), device=clock.device) for _ in range(plan.batches)]
        return [keys[pick] for pick in picks]

    following = 0
    for load, name in ((0.5, ""), (0.95, "_load95")):
        following = _fill(tier, load, plan, following)
        asked = batches()
        for lookup in (tier.find, tier.find_or_init):
            rate = plan.ids / clock.seconds(partial(_look_up, lookup, asked, out)) / 1e9
            yield f"{lookup.__name__}_d64{name}_bkeys", rate


def _measure_put(clock: EventClock, plan: GpuPlan, rule: UpdateRule) -> float:
    """Every row that is put displaces another."""
    tier = _tier(clock.device, plan.rows, plan, rule)
    numbers = count(_fill(tier, FULL, plan), plan.ids)
    fresh = torch.arange(plan.ids, device=clock.device)
    values = torch.randn(plan.ids, plan.dim, device=clock.device)
    state = torch.randn(plan.ids, tier.spec.state_dim, device=clock.device) if tier.spec.state_dim else None
    put = partial(tier.put_and_evict, values=values, state=state, distinct=True)
    return plan.ids / clock.seconds(lambda _: put(keys_of(fresh + next(numbers)))) / 1e9


def _look_up(lookup: Callable[[Tensor, Tensor], object], batches: list[Tensor], out: Tensor, turn: int) -> None:
    lookup(batches[turn % len(batches)], out)


def _own_step(device: torch.device, plan: GpuPlan) -> Callable[[int], object]:
    tier = _tier(device, plan.rows, plan)
    batches = list(keys_of(zipf_ranks(device, plan)))
    gradients = _gradients(device, plan)
    for keys in batches:
        tier.find_or_init(keys)

    def step(turn: int) -> None:
        batch = tier.find_or_init(tier.batch(batches[turn % plan.batches]))
        tier.pool(batch)
        tier.apply(batch, gradients, counted=False)

    return step


def _torch_step(device: torch.device, plan: GpuPlan) -> Callable[[int], object]:
    """The same as a person would write it in torch, ids already numbered: duplicates are folded by `torch.unique`."""
    values = torch.zeros(plan.distinct, plan.dim, device=device)
    state = torch.zeros_like(values)
    ranks, gradients = zipf_ranks(device, plan), _gradients(device, plan)

    def step(turn: int) -> None:
        ids = ranks[turn % plan.batches]
        values.index_select(0, ids)
        rows, inverse = torch.unique(ids, return_inverse=True)
        sums = torch.zeros(len(rows), plan.dim, device=device).index_add_(0, inverse, gradients)
        squares = state.index_select(0, rows).addcmul_(sums, sums)
        state.index_copy_(0, rows, squares)
        values.index_add_(0, rows, sums.div_(squares.sqrt_().add_(EPS)), alpha=-LR)

    return step


def _sparse_torch_step(device: torch.device, plan: GpuPlan) -> Callable[[int], object]:
    """With torch's sparse embedding and Adagrad."""
    table = torch.nn.Embedding(plan.distinct, plan.dim, sparse=True, device=device)
    optimizer = torch.optim.Adagrad(table.parameters(), lr=LR, eps=EPS)
    ranks, gradients = zipf_ranks(device, plan), _gradients(device, plan)

    def step(turn: int) -> None:
        optimizer.zero_grad()
        table(ranks[turn % plan.batches]).backward(gradients)
        optimizer.step()

    return step
