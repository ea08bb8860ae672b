"""Part `checks`: random calls of tables in GPU memory beside a twin in torch. It shows races, and measures nothing.

Keys of a call repeat, buckets are full, and many lanes compete for the slots of one bucket, because only a GPU runs
lanes at the same time: the interpreter finds mistakes, and no races. Gradients are multiples of 1/16, so that sums are
exact in any order.
"""

from collections.abc import Iterator

import torch

from hotrow.bench.gpu.clock import EventClock
from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.table_calls import Case, TableCalls
from hotrow.bench.gpu.table_twin import require
from hotrow.bench.gpu.working_set import check_working_set
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store.hbm import HbmSpec, HbmTier

CASES = (
    Case(1, UpdateRule("sgd", lr=0.1, clip=0.5, l2=0.1, decay=0.1), one_bucket=True),
    Case(16, UpdateRule("adagrad", lr=0.1, initial=0.1), "lfu", one_bucket=True),
    Case(65, UpdateRule("rowwise_adagrad", lr=0.1, initial=0.1, swap_period=999, swap_decay=0.5), init="normal"),
    Case(128, UpdateRule("adam", lr=0.01), "lfu", init="normal"),
    Case(16, UpdateRule("decayed_adagrad", lr=0.1, rate=0.9, initial=0.1), init="constant", deterministic=True),
    Case(65, UpdateRule("adagrad", lr=0.1, eps=1e-3, eps_inside=True, swap_period=99, swap_decay=0.9), one_bucket=True),
    Case(16, UpdateRule("adam", lr=0.01, correction="global"), "lfu", one_bucket=True),
    Case(16, UpdateRule("adagrad", lr=0.1, initial=0.1), partitions=3),
)
SGD = UpdateRule("sgd", lr=0.1)
# Of the keys 0 and -1, for seed 0, table "default" and amount 0.5, in the store in memory.
FIRST_VALUES = {
    "uniform": [
        [-0.3396545648574829, 0.4487117528915405, -0.11340165138244629],
        [0.29825079441070557, -0.00894254446029663, -0.3434545397758484],
    ],
    "normal": [
        [0.9512611627578735, 0.11887995153665543, -0.6033519506454468],
        [-0.28992295265197754, -0.5912857055664062, -0.7078813910484314],
    ],
}
AGED_CALLS = 255  # then a row that was last seen by the call before them has an age of 256: 0 in a byte


def check(device: torch.device, plan: GpuPlan) -> None:
    """Every case, first values, ages beyond a byte, and a working set."""
    for number, case in enumerate(CASES):
        calls = TableCalls(case, device, plan, plan.seed + number)
        try:
            calls.run()
        except Exception as error:
            raise AssertionError(f"call {calls.turn} of {case}: {error}") from error
    check_first_values(device)
    check_ages(device, plan)
    check_working_set(device, plan)


def measure(clock: EventClock, plan: GpuPlan) -> Iterator[tuple[str, float]]:
    """No figures."""
    return iter(())


def check_first_values(device: torch.device) -> None:
    for init, wanted in FIRST_VALUES.items():
        spec = HbmSpec(dim=3, capacity=128, rule=SGD, init=init, amount=0.5)  # type: ignore[arg-type]
        out = torch.empty(2, 3, device=device)
        HbmTier(spec, device).find_or_init(torch.tensor([0, -1], device=device), out)
        torch.testing.assert_close(out.cpu(), torch.tensor(wanted), rtol=3e-7, atol=0)


def check_ages(device: torch.device, plan: GpuPlan) -> None:
    """Rows that were not seen for 256 calls are older than those of the last call."""
    spec = HbmSpec(dim=1, capacity=4 * plan.check_group, rule=SGD, group_slots=plan.check_group, calls_per_tick=1)
    tier, keys = HbmTier(spec, device), torch.arange(spec.slots, device=device)
    old, recent = keys.chunk(2)
    tier.find_or_init(keys)
    for _ in range(AGED_CALLS - 1):
        tier.find_or_init(keys[-1:])
    tier.find_or_init(recent)
    evicted = tier.find_or_init(keys[: len(old)] + spec.slots).evicted
    require(evicted is not None and torch.equal(evicted.keys.sort().values, old), "LRU evicted a row of the last call")
