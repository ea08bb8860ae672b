"""Random calls of a table in GPU memory, each followed by its twin in torch."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.table_twin import TableTwin, check_close, require
from hotrow.bench.gpu.workload import exact_gradients, keys_of
from hotrow.kernels.pool import Mode, bag_of, reference_pool
from hotrow.kernels.update_rule import StepScalars, UpdateRule
from hotrow.store.hbm import HbmPartitions, HbmSpec, HbmTier

EXTREMES = (0, -1, 2**63 - 1, -(2**63))
GROUPS = 4


@dataclass(frozen=True, slots=True)
class Case:
    """A table to check. With one bucket the choice of evicted rows is checked too."""

    dim: int
    rule: UpdateRule
    eviction: Literal["lru", "lfu"] = "lru"
    init: Literal["uniform", "normal", "constant"] = "uniform"
    one_bucket: bool = False
    partitions: int = 0  # 0: HbmTier
    deterministic: bool = False

    def spec(self, plan: GpuPlan) -> HbmSpec:
        bucket = GROUPS * plan.check_group
        return HbmSpec(
            dim=self.dim,
            capacity=bucket if self.one_bucket else max(GROUPS * bucket, plan.check_ids),
            rule=self.rule,
            amount=0.5,
            eviction=self.eviction,
            init=self.init,
            deterministic=self.deterministic,
            group_slots=plan.check_group,
            groups=GROUPS,
            calls_per_tick=3,  # so that some calls share a tick, and 40 have several
        )


class TableCalls:
    """A table and its twin, given the same calls."""

    def __init__(self, case: Case, device: torch.device, plan: GpuPlan, seed: int) -> None:
        self.spec, self.device = case.spec(plan), device
        devices = [device] * case.partitions
        self.tier: Any = HbmPartitions(self.spec, devices) if devices else HbmTier(self.spec, device)
        keys = torch.cat([torch.tensor(EXTREMES), keys_of(torch.arange(3 * self.spec.slots))]).to(device)
        self.twin = TableTwin(self.spec, keys, case.one_bucket)
        self.positions = (8 if case.one_bucket else 1) * self.spec.slots
        self.random = torch.Generator(device).manual_seed(seed)
        self.turns, self.turn, self.samples = plan.check_calls, 0, 0

    def run(self) -> None:
        for turn in range(self.turns):
            self.turn = turn
            self._step()
            self._verify()
            (self._erase, self._put, self._touch)[turn % 3]()
            self._verify()
        for rows in self.tier.export():
            self.twin.check_rows(rows)
        exported = torch.cat([rows.keys for rows in self.tier.export()])
        require(len(torch.unique(exported)) == len(self.tier) == len(exported), "export does not have each row once")
        stats = self.tier.stats()
        require(stats.created - stats.evicted - stats.erased == len(self.tier), f"counts do not add up: {stats}")

    def _draw(self) -> Tensor:
        """Ids of a call: some of them often, from a range that may have more ids than the table has slots."""
        start, share = torch.rand(2, device=self.device, generator=self.random).tolist()
        numbers = torch.rand(self.positions, device=self.device, generator=self.random).square()
        numbers = numbers * (self.spec.slots * (0.3 + share)) + start * len(self.twin.keys)
        ids: Tensor = numbers.to(torch.int64) % len(self.twin.keys)
        return ids

    def _verify(self) -> None:
        faults = self.tier.verify()
        require(not faults, "; ".join(faults))
        wanted = int(self.twin.there.sum())
        require(len(self.tier) == wanted, f"the table has {len(self.tier)} rows, its twin {wanted}")

    def _step(self) -> None:
        """Forward and update of a batch; every second time another batch comes between, and the first is pinned."""
        self.samples += self.positions
        ids = self._draw()
        plan = self._look_up(ids, [], torch.zeros_like(self.twin.there))
        if self.turn % 2:
            self._look_up(self._draw(), [plan], self.twin.mask(ids[plan.present]))
        mode: Mode = "mean" if self.turn % 3 else "sum"
        offsets = self._offsets() if isinstance(self.tier, HbmTier) else None
        if offsets is not None:
            self._check_pool(plan, ids, offsets, mode)
        gradients = exact_gradients(len(ids if offsets is None else offsets[1:]), self.spec.dim, self.random)
        gradients[:1] = torch.nan if self.turn % 4 == 1 else gradients[:1]
        self._apply(plan, ids, gradients, offsets, mode)

    def _look_up(self, ids: Tensor, pinned: list[Any], held: Tensor) -> Any:
        """find_or_init: rows, those that it makes and those that it evicts."""
        keys, out = self.twin.keys[ids], torch.empty(len(ids), self.spec.dim, device=self.device)
        folded = self.turn % 2 and isinstance(self.tier, HbmTier)
        plan = self.tier.find_or_init(
            self.tier.batch(keys) if folded else keys, out, samples=self.samples, pinned=pinned
        )
        self.twin.period = self.spec.rule.period_at(self.samples)
        made = self.twin.follow(plan, ids, held)
        self.twin.learn_first_values(made, ids, out)
        self._check_values(ids, out, without=0.0)
        return plan

    def _check_values(self, ids: Tensor, out: Tensor, without: float) -> None:
        wanted = torch.where(self.twin.there[ids, None], self.twin.values[ids], without)
        check_close(out, wanted)

    def _offsets(self) -> Tensor:
        """Bags of 1, 2, 4 and 0 positions: means of multiples of 1/16 are exact too."""
        lengths = torch.tensor([1, 2, 4, 0], device=self.device).repeat(self.positions // 4)
        ends = lengths.cumsum(0)
        ends = ends[ends < self.positions]
        return torch.cat([ends.new_zeros(1), ends, ends.new_full((1,), self.positions)])

    def _check_pool(self, plan: Any, ids: Tensor, offsets: Tensor, mode: Mode) -> None:
        slots = torch.where(self.twin.there[ids], ids, -1)
        wanted = reference_pool(self.twin.values, slots, None, offsets, mode)
        check_close(self.tier.pool(plan, offsets, mode), wanted)
        half = self.tier.pool(plan, offsets, mode, torch.bfloat16)
        torch.testing.assert_close(half.float(), wanted, rtol=2**-7, atol=1e-4)

    def _apply(self, plan: Any, ids: Tensor, gradients: Tensor, offsets: Tensor | None, mode: Mode) -> None:
        bags = {} if offsets is None else {"offsets": offsets, "mode": mode}
        applied = self.tier.apply(plan, gradients, **bags, step=self.turn, samples=self.samples, lr_scale=0.5)
        each = gradients.double()
        if offsets is not None:
            lengths = offsets.diff().clamp(min=1)[:, None]
            each = (each / lengths if mode == "mean" else each)[bag_of(offsets, len(ids))]
        scalars = StepScalars.of(self.spec.rule, self.turn, self.samples, lr_scale=0.5)
        wanted = self.twin.apply(ids, each, scalars)
        got = (applied.rows, applied.refused, applied.absent + applied.unadmitted)
        require(got == wanted, f"rows updated, refused and absent: {got}, in the twin {wanted}")
        out = torch.empty(len(ids), self.spec.dim, device=self.device)
        found = self.tier.find(self.twin.keys[ids], out)
        require(found.absent == wanted[2], f"{found.absent} keys are absent, {wanted[2]} in the twin")
        self._check_values(ids, out, without=torch.nan)

    def _put(self) -> None:
        ids = torch.unique(self._draw())[: self.spec.slots // 2]
        values = exact_gradients(len(ids), self.spec.dim, self.random)
        state = values.new_full((len(ids), self.spec.state_dim), 2.0) if (self.turn + self.spec.dim) % 2 else None
        version = torch.arange(1, len(ids) + 1, dtype=torch.int32, device=self.device)
        plan = self.tier.put_and_evict(self.twin.keys[ids], values, state, {"version": version})
        self.twin.follow(plan, ids, torch.zeros_like(self.twin.there))
        rows = ids[plan.present]
        self.twin.values[rows] = values[plan.present]
        self.twin.fields["version"][rows] = version[plan.present]
        if state is not None:
            self.twin.state[rows] = state[plan.present]

    def _erase(self) -> None:
        ids = self._draw()[: self.spec.slots // 8]
        there = self.twin.mask(ids) & self.twin.there
        erased = self.tier.erase(self.twin.keys[ids])
        require(erased == int(there.sum()), f"{erased} rows were erased, {int(there.sum())} in the twin")
        self.twin.there[ids] = False

    def _touch(self) -> None:
        ids = self._draw()
        plan = self.tier.touch(self.twin.keys[ids])
        require(torch.equal(plan.present, self.twin.there[ids]), "touch found other rows than the twin has")
        self.twin.see(ids)
